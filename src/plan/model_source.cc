// From what a user names to a shape: a catalogue name, a config.json, a folder, a GGUF.
#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "base/strings.h"
#include "files/inspect.h"
#include "files/json.h"
#include "files/mapped_file.h"
#include "files/model_files.h"
#include "model/blueprint.h"
#include "model/packed_size.h"
#include "plan/catalogue.h"
#include "plan/json_fields.h"
#include "plan/model_readers.h"
#include "plan/model_shape.h"
#include "plan/nearest.h"
#include "plan/shipped_formats.h"
#include "plan/units.h"
#include "runner/kv_plan.h"

namespace kvasir::plan {
namespace {

namespace fs = std::filesystem;

// Of a config that stands alone.
class NoWeights final : public files::Weights {
 public:
  [[nodiscard]] const std::vector<std::string>& names() const override { return names_; }
  [[nodiscard]] const TensorView* Find(std::string_view) const override { return nullptr; }
  [[nodiscard]] std::string FileOf(std::string_view) const override { return {}; }
  void Release(std::span<const std::byte>) const override {}

 private:
  std::vector<std::string> names_;
};

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// By the names that safetensors and GGUF files give.
Part PartOfTensor(const files::TensorSummary& tensor) {
  const std::string& name = tensor.name;
  if (Contains(name, "norm") || name.ends_with("bias") || name.ends_with("sinks") ||
      Contains(name, "conv1d")) {
    return Part::kNorms;
  }
  if (Contains(name, "shexp") || Contains(name, "shared_expert.") ||
      Contains(name, "shared_experts.")) {
    return Contains(name, "gate_inp") ? Part::kRouter : Part::kSharedExpert;
  }
  if (Contains(name, "_exps") || Contains(name, ".experts.")) return Part::kExperts;
  if (Contains(name, "gate_inp") || Contains(name, "router") || Contains(name, "mlp.gate.") ||
      Contains(name, "block_sparse_moe.gate.") || Contains(name, "shared_expert_gate")) {
    return Part::kRouter;
  }
  if (tensor.shape.size() < 2) return Part::kNorms;
  if (Contains(name, "attn") || Contains(name, "attention") || Contains(name, "ssm_")) {
    return Part::kAttention;
  }
  if (Contains(name, "embed_out") || Contains(name, "lm_head") || name == "output.weight") {
    return Part::kHead;
  }
  if (Contains(name, "embd") || Contains(name, "embed") || Contains(name, "wte") ||
      Contains(name, "wpe")) {
    return Part::kEmbedding;
  }
  return Part::kFfn;
}

NumberFormat FormatOf(DType dtype) {
  auto known = ParseWeightFormat(Info(dtype).name);
  if (known.ok()) return *std::move(known);
  NumberFormat format;
  format.name = Info(dtype).name;
  format.block_values = Info(dtype).block_values;
  format.block_bytes = Info(dtype).block_bytes;
  return format;
}

// The number behind `word` in a tensor's name: 3 of "model.layers.3.mlp" and "layers.".
std::optional<int64_t> IndexIn(std::string_view name, std::string_view word) {
  const size_t at = name.find(word);
  if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) return std::nullopt;
  const std::string_view rest = name.substr(at + word.size());
  int64_t index = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
  const bool whole = error == std::errc() && end != rest.data() + rest.size() && *end == '.';
  return whole ? std::optional(index) : std::nullopt;
}

std::optional<int64_t> LayerOf(std::string_view name) {
  for (const std::string_view word : {"layers.", "blk.", "h."}) {
    if (const auto index = IndexIn(name, word)) return index;
  }
  return std::nullopt;
}

// Of other modalities.
bool IsTower(std::string_view name) {
  return std::ranges::any_of(
      std::array<std::string_view, 6>{"vision", "visual", "audio", "multi_modal_projector",
                                      "mm_projector", "image_newline"},
      [&](std::string_view word) { return Contains(name, word); });
}

bool IsIgnored(const std::string& name, const model::TensorNames& names) {
  return std::ranges::any_of(names.ignored_prefixes,
                             [&](const std::string& start) { return name.starts_with(start); }) ||
         std::ranges::any_of(names.ignored_suffixes,
                             [&](const std::string& end) { return name.ends_with(end); });
}

// Whether serving loads a tensor: not the towers of other modalities, layers for multi-token
// prediction, and what is worked out anew (masks, rotary tables).
bool IsLoaded(const std::string& name, const ModelShape& shape, const model::Blueprint* loadable) {
  if (IsTower(name) || name.starts_with("mtp.") || name.ends_with("rotary_emb.inv_freq")) {
    return false;
  }
  if (loadable != nullptr && IsIgnored(name, loadable->names)) return false;
  return LayerOf(name).value_or(0) < shape.layers_count;
}

Error Contradiction(const fs::path& path, const std::string& described, const std::string& stored) {
  return MakeError(ErrorCode::kDataLoss,
                   "{}: its configuration describes {}, but its tensors hold {}", path.string(),
                   described, stored);
}

// A configuration beside the wrong files would be planned as neither. `quantized`: tensors hold
// packed words and scales, whose numbers tell nothing.
Status CheckFiles(const ModelShape& shape, const files::ModelSummary& summary,
                  const model::Blueprint* loadable, bool quantized, const fs::path& path) {
  int64_t values = 0;
  int64_t layers = 0;
  int64_t experts = 0;
  for (const files::TensorSummary& tensor : summary.tensors) {
    const std::string& name = tensor.name;
    if (!IsTower(name)) layers = std::max(layers, LayerOf(name).value_or(-1) + 1);
    if (!IsLoaded(name, shape, loadable)) continue;
    values += ElementCount(tensor.shape);
    experts = std::max(experts, IndexIn(name, "experts.").value_or(-1) + 1);
    const bool table = PartOfTensor(tensor) == Part::kEmbedding && tensor.shape.size() == 2 &&
                       (Contains(name, "embed_tokens") || Contains(name, "token_embd"));
    if (table && (tensor.shape[1] != shape.hidden_size || tensor.shape[0] < shape.vocab_size)) {
      return Contradiction(
          path,
          fmt::format("a vocabulary of {} and rows of {}", CountText(shape.vocab_size),
                      CountText(shape.hidden_size)),
          fmt::format("{} of {}", CountText(tensor.shape[0]), CountText(tensor.shape[1])));
    }
  }
  // Layers for multi-token prediction come last.
  if (layers > 0 &&
      (layers < shape.layers_count || (layers > shape.layers_count && shape.skipped_values == 0))) {
    return Contradiction(path, CountedText(shape.layers_count, "layer"), CountText(layers));
  }
  if (experts > 0 && experts != shape.experts.experts_count) {
    return Contradiction(path, CountedText(shape.experts.experts_count, "expert"),
                         CountText(experts));
  }
  if (quantized) return Status::Ok();
  // A hundredth is left for what exporters add or leave out. Tied tables may be stored twice.
  const int64_t described = shape.ParametersCount();
  const int64_t slack = described / 100;
  const int64_t copied = shape.tied_embeddings ? shape.vocab_size * shape.hidden_size : 0;
  if (values >= described - slack && values <= described + slack + copied) return Status::Ok();
  return Contradiction(path, CountedText(described, "parameter"), CountText(values));
}

// The files' own bytes, and for each part the format that most of them have.
void ReadStored(const files::ModelFiles& files, const files::ModelSummary& summary,
                const model::Blueprint* loadable, bool quantized, ModelShape& shape) {
  StoredWeights stored;
  stored.bytes = summary.bytes;
  std::array<std::map<DType, int64_t>, kPartCount> formats;
  for (const files::TensorSummary& tensor : summary.tensors) {
    if (!IsLoaded(tensor.name, shape, loadable)) continue;
    const auto part = static_cast<size_t>(PartOfTensor(tensor));
    stored.part_bytes[part] += tensor.bytes;
    formats[part][tensor.dtype] += tensor.bytes;
  }
  const NumberFormat usual = FormatOf(summary.formats.front().dtype);
  for (size_t part = 0; part < kPartCount; ++part) {
    std::vector<std::pair<int64_t, DType>> sorted;
    for (const auto& [dtype, bytes] : formats[part]) sorted.emplace_back(bytes, dtype);
    std::sort(sorted.rbegin(), sorted.rend());
    // Packed words say nothing of what they hold.
    if (!quantized) shape.shipped[part] = sorted.empty() ? usual : FormatOf(sorted.front().second);
    for (const auto& [bytes, dtype] : sorted) {
      std::string& names = stored.part_formats[part];
      names += (names.empty() ? "" : ", ") + std::string(Info(dtype).name);
    }
  }
  shape.stored = std::move(stored);
  const DType kv = runner::ChooseKvDType("auto", *files.weights()).value();
  shape.kv_format = kv == DType::kF32    ? ParseKvFormat("f32").value()
                    : kv == DType::kBF16 ? ParseKvFormat("bf16").value()
                                         : ParseKvFormat("f16").value();
}

// With each backend; needs the blueprint that the server would load by.
std::vector<LoadedWeights> LoadedBytes(const model::Blueprint& blueprint,
                                       const files::Weights& weights) {
  std::vector<LoadedWeights> loaded;
  for (const std::string_view kernels : {"avx512", "avx2", "ref"}) {
    loaded.push_back({std::string(kernels), model::PackedWeightsBytes(blueprint, weights, kernels),
                      model::MappedWeightsBytes(blueprint, weights, kernels)});
  }
  return loaded;
}

// The blueprint is kept in `loadable` where the server runs the family.
Result<ModelShape> ShapeOfFiles(const files::ModelFiles& files,
                                std::optional<model::Blueprint>* loadable) {
  model::ConfigReader reader(files, 0);
  if (reader.architecture().empty()) {
    KVASIR_RETURN_IF_ERROR(reader.status());
    return MakeParamError(ErrorCode::kDataLoss, "architectures",
                          "{}: architectures: expected a list with the model's architecture, but "
                          "the key is missing",
                          reader.source());
  }
  if (IsExpertsFamily(reader)) return ReadExpertsShape(reader);
  auto made = model::MakeBlueprint(reader);
  if (!made.ok()) {
    Error error = std::move(made).error();
    if (error.code == ErrorCode::kUnsupported && error.param == "architectures") {
      error.message += fmt::format("; for plans alone: {}", ExpertsFamilyNames(reader.is_gguf()));
    }
    return error;
  }
  model::Blueprint blueprint = *std::move(made);
  ModelShape shape = ShapeOfBlueprint(blueprint, reader.weights());
  if (loadable != nullptr) *loadable = std::move(blueprint);
  return shape;
}

Result<ModelShape> ShapeOfConfig(nlohmann::json config, const fs::path& path,
                                 const std::string& what) {
  if (!config.is_object()) {
    return MakeError(ErrorCode::kDataLoss, "{}: expected a JSON object, got {}", what,
                     config.type_name());
  }
  files::ModelFiles files;
  files.path = path;
  files.config = std::move(config);
  // Read below; the server, which cannot run such files, would refuse it.
  const nlohmann::json whole = files.config;
  files.config.erase("quantization_config");
  if (const auto text = files.config.find("text_config");
      text != files.config.end() && text->is_object()) {
    text->erase("quantization_config");
  }
  files.safetensors = std::make_unique<NoWeights>();
  KVASIR_ASSIGN_OR_RETURN(ModelShape shape, ShapeOfFiles(files, nullptr));
  KVASIR_RETURN_IF_ERROR(ReadShippedFormats(whole, what, shape));
  return shape;
}

Result<ModelShape> ShapeOfConfigFile(const fs::path& path) {
  constexpr int64_t kMostBytes = 64'000'000;
  KVASIR_ASSIGN_OR_RETURN(const std::string text, files::ReadTextFile(path, kMostBytes));
  KVASIR_ASSIGN_OR_RETURN(nlohmann::json config, files::ParseJson(text, path.string()));
  KVASIR_ASSIGN_OR_RETURN(ModelShape shape,
                          ShapeOfConfig(std::move(config), path.parent_path(), path.string()));
  shape.name = fs::absolute(path).parent_path().filename().string();
  shape.source = path.string();
  return shape;
}

Result<ModelShape> ShapeOfPath(const fs::path& path) {
  if (path.extension() == ".json") return ShapeOfConfigFile(path);
  auto opened = files::OpenModel(path);
  if (!opened.ok()) {
    // A folder with a config.json alone will do.
    std::error_code ignored;
    if (opened.error().code != ErrorCode::kNotFound || !fs::exists(path / "config.json", ignored)) {
      return std::move(opened).error();
    }
    return ShapeOfConfigFile(path / "config.json");
  }
  ModelShape shape;
  std::optional<model::Blueprint> blueprint;
  // Packed words and scales, which are no values.
  const bool quantized = opened->kind == files::ModelFiles::Kind::kHuggingFace &&
                         opened->config.contains("quantization_config");
  if (quantized) {
    KVASIR_ASSIGN_OR_RETURN(shape,
                            ShapeOfConfig(opened->config, path, (path / "config.json").string()));
  } else {
    KVASIR_ASSIGN_OR_RETURN(shape, ShapeOfFiles(*opened, &blueprint));
  }
  const files::ModelSummary summary = files::Summarize(*opened);
  const model::Blueprint* const loadable = blueprint ? &*blueprint : nullptr;
  KVASIR_RETURN_IF_ERROR(CheckFiles(shape, summary, loadable, quantized, path));
  ReadStored(*opened, summary, loadable, quantized, shape);
  if (blueprint) shape.stored->loaded = LoadedBytes(*blueprint, *opened->weights());
  shape.name = opened->name;
  shape.source = path.string();
  return shape;
}

struct Entry {
  ModelListing listing;
  nlohmann::json config;
};

Result<Entry> ReadEntry(const EmbeddedFile& file) {
  const std::string what(file.name);
  KVASIR_ASSIGN_OR_RETURN(const nlohmann::json json, files::ParseJson(file.text, what));
  JsonFields fields(json, what);
  Entry entry;
  entry.listing.name = what;
  entry.listing.title = fields.RequiredString("title");
  entry.listing.source = fields.RequiredString("source");
  const nlohmann::json* config = fields.Object("config");
  if (config == nullptr) fields.Fail("config", "expected an object, but the field is missing");
  KVASIR_RETURN_IF_ERROR(fields.Finish());
  entry.config = *config;
  return entry;
}

const EmbeddedFile* FindEntry(std::string_view name) {
  const auto found = std::ranges::find(kModelFiles, name, &EmbeddedFile::name);
  return found == kModelFiles.end() ? nullptr : &*found;
}

Result<ModelShape> ShapeOfEntry(const EmbeddedFile& file) {
  KVASIR_ASSIGN_OR_RETURN(Entry entry, ReadEntry(file));
  const std::string name(file.name);
  KVASIR_ASSIGN_OR_RETURN(ModelShape shape, ShapeOfConfig(std::move(entry.config), name, name));
  shape.name = name;
  shape.source = entry.listing.source;
  return shape;
}

}  // namespace

const std::vector<ModelListing>& ModelCatalogue() {
  static const std::vector<ModelListing> catalogue = [] {
    std::vector<ModelListing> all;
    for (const EmbeddedFile& file : kModelFiles) {
      auto entry = ReadEntry(file);
      KVASIR_CHECK(entry.ok(), "{}", entry.error().message);
      all.push_back(std::move(entry->listing));
    }
    return all;
  }();
  return catalogue;
}

Result<ModelShape> FindModelShape(std::string_view model) {
  if (const EmbeddedFile* file = FindEntry(model); file != nullptr) return ShapeOfEntry(*file);
  const fs::path path(model);
  std::error_code ignored;
  if (fs::exists(path, ignored)) return ShapeOfPath(path);
  // As others write it, where no file has that name.
  if (const EmbeddedFile* file = FindEntry(LowerCase(model)); file != nullptr) {
    return ShapeOfEntry(*file);
  }
  std::vector<std::string> names;
  names.reserve(std::size(kModelFiles));
  for (const EmbeddedFile& file : kModelFiles) names.emplace_back(file.name);
  return UnknownName("model", model, names,
                     "a model folder, a .gguf, a config.json or a name of the catalogue");
}

}  // namespace kvasir::plan
