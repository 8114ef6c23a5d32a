#include "plan/model_shape.h"

#include <algorithm>

namespace kvasir::plan {

std::string_view PartName(Part part) {
  switch (part) {
    case Part::kEmbedding:
      return "embedding";
    case Part::kAttention:
      return "attention";
    case Part::kFfn:
      return "feed-forward";
    case Part::kExperts:
      return "experts";
    case Part::kSharedExpert:
      return "shared expert";
    case Part::kRouter:
      return "router";
    case Part::kNorms:
      return "norms and biases";
    case Part::kHead:
      return "head";
  }
  return "";
}

std::string_view LayerKindName(LayerKind kind) {
  switch (kind) {
    case LayerKind::kFull:
      return "full attention";
    case LayerKind::kWindow:
      return "sliding window";
    case LayerKind::kLatent:
      return "MLA latent";
    case LayerKind::kLinear:
      return "linear state";
  }
  return "";
}

int64_t ModelShape::ParametersCount(Part part) const {
  int64_t count = 0;
  for (const WeightShape& weight : weights) {
    if (weight.part == part) count += weight.rows * weight.cols * weight.count;
  }
  return count;
}

int64_t ModelShape::ParametersCount() const {
  int64_t count = 0;
  for (size_t part = 0; part < kPartCount; ++part) {
    count += ParametersCount(static_cast<Part>(part));
  }
  return count;
}

int64_t ModelShape::ActiveParametersCount() const {
  int64_t count = ParametersCount();
  if (!tied_embeddings) count -= ParametersCount(Part::kEmbedding);
  if (experts.experts_count > 0) {
    const int64_t all = ParametersCount(Part::kExperts);
    count -= all - all / experts.experts_count * experts.used_count;
  }
  return count;
}

Status CheckShipped(const ModelShape& shape) {
  if (shape.shipped_unknown) return *shape.shipped_unknown;
  return Status::Ok();
}

int64_t PartBytes(const ModelShape& shape, Part part, const WeightFormats& formats) {
  const NumberFormat& format = formats[static_cast<size_t>(part)];
  int64_t bytes = 0;
  for (const WeightShape& weight : shape.weights) {
    if (weight.part == part) bytes += format.Bytes(weight.rows, weight.cols) * weight.count;
  }
  return bytes;
}

WeightFormats FormatsWith(const ModelShape& shape, const NumberFormat& format) {
  WeightFormats formats = shape.shipped;
  const bool plain = format.block_values == 1 && format.tile_rows == 0;
  // A GGUF file keeps norms and routers in F32.
  const bool gguf = !plain && format.math == Math::kI8 && format.tile_rows == 0;
  NumberFormat beside;  // BF16
  beside.name = "bf16";
  if (gguf) {
    beside.name = "f32";
    beside.block_bytes = 4;
    beside.math = Math::kF32;
  }
  for (size_t i = 0; i < kPartCount; ++i) {
    const auto part = static_cast<Part>(i);
    const bool vectors = part == Part::kNorms || part == Part::kRouter;
    const bool table = part == Part::kEmbedding || part == Part::kHead;
    formats[i] = plain || (!vectors && (gguf || !table)) ? format : beside;
  }
  return formats;
}

}  // namespace kvasir::plan
