// What a model's files hold, beside what its configuration says.
#include "plan/stored_weights.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "base/strings.h"
#include "files/inspect.h"
#include "files/printable.h"
#include "model/packed_size.h"
#include "plan/units.h"
#include "runner/kv_plan.h"

namespace kvasir::plan {
namespace {

namespace fs = std::filesystem;

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
  if (IsTower(name) || Contains(name, "mtp.") || Contains(name, "mtp_") ||
      name.ends_with("rotary_emb.inv_freq")) {
    return false;
  }
  if (shape.tied_embeddings && (Contains(name, "lm_head") || name == "output.weight")) return false;
  if (loadable != nullptr && IsIgnored(name, loadable->names)) return false;
  return LayerOf(name).value_or(0) < shape.layers_count;
}

Error Contradiction(const fs::path& path, const std::string& described, const std::string& stored) {
  return MakeError(ErrorCode::kDataLoss,
                   "{}: its configuration describes {}, but its tensors hold {}",
                   files::PrintablePath(path), described, stored);
}

// Outputs of a matrix by the shape of its tensor, or of what lies beside packed words.
std::optional<int64_t> RowsOf(const files::TensorSummary& tensor, std::string_view matrix) {
  const size_t at = tensor.name.find(matrix);
  if (at == std::string::npos || tensor.shape.size() != 2) return std::nullopt;
  const std::string_view rest = std::string_view(tensor.name).substr(at + matrix.size());
  if (rest == ".weight" || rest == ".weight_packed") return tensor.shape[0];
  if (rest == ".scales") return tensor.shape[1];  // of GPTQ and AWQ: [groups, outputs]
  return std::nullopt;
}

// Keys and values, which decide how large the cache is, and the feed-forward layers.
Status CheckRows(const ModelShape& shape, const files::TensorSummary& tensor,
                 const fs::path& path) {
  for (const std::string_view matrix : {".k_proj", ".v_proj", ".attn_k", ".attn_v"}) {
    const auto rows = RowsOf(tensor, matrix);
    if (!rows) continue;
    const bool known = std::ranges::any_of(shape.layers, [&](const LayerShape& layer) {
      return layer.kv_heads * layer.key_dim == *rows || layer.kind == LayerKind::kLatent;
    });
    if (!known) {
      const LayerShape& layer = shape.layers.front();
      return Contradiction(
          path, fmt::format("keys and values of {} heads x {}", layer.kv_heads, layer.key_dim),
          fmt::format("{} values a token", CountText(*rows)));
    }
  }
  for (const std::string_view matrix : {".gate_proj", ".up_proj"}) {
    const auto rows = RowsOf(tensor, matrix);
    const Part part = PartOfTensor(tensor);
    if (!rows || (part != Part::kFfn && part != Part::kExperts && part != Part::kSharedExpert)) {
      continue;
    }
    const bool known = std::ranges::any_of(shape.weights, [&](const WeightShape& weight) {
      return weight.part == part && weight.cols == shape.hidden_size &&
             (weight.rows == *rows || weight.rows == 2 * *rows);
    });
    if (!known) {
      return Contradiction(
          path, fmt::format("another width of its {}", PartName(part)),
          fmt::format("{} of {} values", files::Printable(tensor.name, 80), CountText(*rows)));
    }
  }
  return Status::Ok();
}

// A configuration beside the wrong files would be planned as neither. `quantized`: tensors hold
// packed words and scales, whose numbers tell nothing.
Status CheckFiles(const ModelShape& shape, const files::ModelSummary& summary,
                  const model::Blueprint* loadable, bool quantized, const fs::path& path) {
  int64_t values = 0;
  int64_t layers = 0;
  int64_t experts = 0;
  bool predicts = false;
  for (const files::TensorSummary& tensor : summary.tensors) {
    const std::string& name = tensor.name;
    const int64_t layer = LayerOf(name).value_or(-1);
    // Layers for multi-token prediction come last, and have a projection that others have not.
    predicts = predicts || (layer >= shape.layers_count && Contains(name, "eh_proj"));
    if (!IsTower(name) && !name.ends_with("rotary_emb.inv_freq")) {
      layers = std::max(layers, layer + 1);
    }
    if (!IsLoaded(name, shape, loadable)) continue;
    const Part part = PartOfTensor(tensor);
    const bool by_word = (part == Part::kEmbedding || part == Part::kHead) &&
                         tensor.shape.size() == 2 && tensor.shape[0] > shape.vocab_size;
    // Rows that fill a table up are no words.
    values += by_word ? shape.vocab_size * tensor.shape[1] : ElementCount(tensor.shape);
    experts = std::max(experts, IndexIn(name, "experts.").value_or(-1) + 1);
    KVASIR_RETURN_IF_ERROR(CheckRows(shape, tensor, path));
    const bool table = part == Part::kEmbedding && tensor.shape.size() == 2 &&
                       (Contains(name, "embed_tokens") || Contains(name, "token_embd"));
    if (table && (tensor.shape[1] != shape.hidden_size || tensor.shape[0] < shape.vocab_size)) {
      return Contradiction(
          path,
          fmt::format("a vocabulary of {} and rows of {}", CountText(shape.vocab_size),
                      CountText(shape.hidden_size)),
          fmt::format("{} of {}", CountText(tensor.shape[0]), CountText(tensor.shape[1])));
    }
  }
  if (layers > 0 && (layers < shape.layers_count || (layers > shape.layers_count && !predicts))) {
    return Contradiction(path, CountedText(shape.layers_count, "layer"), CountText(layers));
  }
  if (experts > 0 && experts != shape.experts.experts_count) {
    return Contradiction(path, CountedText(shape.experts.experts_count, "expert"),
                         CountText(experts));
  }
  if (quantized) return Status::Ok();
  // A hundredth is left for what exporters add or leave out.
  const int64_t described = shape.ParametersCount();
  const int64_t slack = described / 100;
  if (values >= described - slack && values <= described + slack) return Status::Ok();
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

}  // namespace

Status ReadStoredWeights(const files::ModelFiles& files, const model::Blueprint* loadable,
                         bool quantized, const fs::path& path, ModelShape& shape) {
  const files::ModelSummary summary = files::Summarize(files);
  KVASIR_RETURN_IF_ERROR(CheckFiles(shape, summary, loadable, quantized, path));
  ReadStored(files, summary, loadable, quantized, shape);
  if (loadable != nullptr) shape.stored->loaded = LoadedBytes(*loadable, *files.weights());
  return Status::Ok();
}

}  // namespace kvasir::plan
