// The small ops between matmuls.
#pragma once

#include <cstdint>

namespace kvasir::kernels {

/// RMS: y = w * x / sqrt(mean(x^2) + eps). Layer: y = w * (x - mean) / sqrt(var + eps) + bias.
/// Sums are taken over each of `groups_count` equal parts of a row on its own (1: the whole row;
/// heads: per-head q/k norms, where weight is [cols / groups_count] for all groups, or [cols] if
/// weight_per_group).
struct NormArgs {
  enum class Kind : uint8_t { kRms, kLayer };
  Kind kind = Kind::kRms;
  const float* x = nullptr;  ///< [T, cols] with leading dimension ldx
  float* y = nullptr;        ///< [T, cols] with leading dimension ldy; may be x
  int64_t ldx = 0;
  int64_t ldy = 0;
  int64_t tokens_count = 0;
  int64_t cols = 0;
  int64_t groups_count = 1;
  bool weight_per_group = false;
  const float* weight = nullptr;  ///< null = ones
  const float* bias = nullptr;    ///< kLayer only; null = zeros
  float eps = 1e-6f;
};

enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu };

/// y[t, i] = act(gate[t, i]) * up[t, i], or act(gate[t, i]) where up is null. y may be gate.
struct ActivationArgs {
  Activation kind = Activation::kSilu;
  const float* gate = nullptr;
  const float* up = nullptr;
  float* y = nullptr;
  int64_t ld_gate = 0;
  int64_t ld_up = 0;
  int64_t ldy = 0;
  int64_t tokens_count = 0;
  int64_t cols = 0;  ///< F
};

/// Rotates the first `rotated_dims` of each head in place by cos/sin of the row's position.
/// kHalf pairs (i, i + r/2), kInterleaved pairs (2i, 2i + 1).
struct RopeArgs {
  enum class Kind : uint8_t { kHalf, kInterleaved };
  Kind kind = Kind::kHalf;
  float* x = nullptr;  ///< [T, heads, D] with leading dimension ldx
  int64_t ldx = 0;
  int64_t tokens_count = 0;
  int64_t heads_count = 0;
  int64_t head_dim = 0;
  int64_t rotated_dims = 0;            ///< r, even
  const int64_t* positions = nullptr;  ///< [T]
  /// [positions, r / 2] each; already multiplied by the scaling's attention factor.
  const float* cos = nullptr;
  const float* sin = nullptr;
};

/// x[t, i] += scale * y[t, i].
struct AddArgs {
  float* x = nullptr;
  const float* y = nullptr;
  int64_t ldx = 0;
  int64_t ldy = 0;
  int64_t tokens_count = 0;
  int64_t cols = 0;
  float scale = 1.0f;
};

/// x = cap(scale * x), cap(z) = c tanh(z / c) where softcap c is not 0. For logits and embeddings.
struct ScaleArgs {
  float* x = nullptr;  ///< [T, cols] with leading dimension ldx
  int64_t ldx = 0;
  int64_t tokens_count = 0;
  int64_t cols = 0;
  float scale = 1.0f;
  float softcap = 0.0f;
};

}  // namespace kvasir::kernels
