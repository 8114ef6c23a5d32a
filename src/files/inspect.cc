#include "files/inspect.h"

#include <algorithm>
#include <map>
#include <utility>

namespace kvasir::files {

std::string ArchitectureOf(const ModelFiles& model) {
  if (model.kind == ModelFiles::Kind::kGguf) {
    return std::string(model.gguf->metadata.String("general.architecture").value_or(""));
  }
  const auto names = model.config.find("architectures");
  if (names != model.config.end() && names->is_array() && !names->empty() &&
      names->front().is_string()) {
    return names->front().get<std::string>();
  }
  const auto type = model.config.find("model_type");
  return type != model.config.end() && type->is_string() ? type->get<std::string>() : std::string();
}

ModelSummary Summarize(const ModelFiles& model) {
  ModelSummary summary;
  summary.architecture = ArchitectureOf(model);
  const Weights* weights = model.weights();
  if (weights == nullptr) return summary;
  std::map<DType, FormatSummary> formats;
  for (const std::string& name : weights->names()) {
    const TensorView& view = *weights->Find(name);
    const int64_t values_count = ElementCount(view.shape);
    summary.parameters_count += values_count;
    summary.bytes += view.bytes;
    FormatSummary& format = formats[view.dtype];
    format.dtype = view.dtype;
    format.tensors_count += 1;
    format.values_count += values_count;
    format.bytes += view.bytes;
    summary.tensors.push_back({name, view.dtype, view.shape, view.bytes});
  }
  for (const auto& [dtype, format] : formats) summary.formats.push_back(format);
  std::stable_sort(
      summary.formats.begin(), summary.formats.end(),
      [](const FormatSummary& a, const FormatSummary& b) { return a.bytes > b.bytes; });
  return summary;
}

}  // namespace kvasir::files
