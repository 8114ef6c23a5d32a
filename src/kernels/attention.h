// Attention over the paged KV cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace kvasir::kernels {

/// The KV of one layer in the pool. The bytes of (block b, this layer) begin at
/// base + b * block_stride_bytes and are LayerBlockBytes(view) long; how they are arranged inside
/// is the backend's own affair (StoreKv and Attention of one backend agree), so whole blocks can be
/// copied by anyone.
struct KvView {
  std::byte* base = nullptr;
  int64_t block_stride_bytes = 0;
  int64_t block_tokens = 16;  ///< B
  int64_t kv_heads = 0;       ///< Hkv
  int64_t head_dim = 0;       ///< D
  DType dtype = DType::kF16;  ///< kF32, kF16 or kBF16
};

/// B * Hkv * 2 * D values.
[[nodiscard]] inline int64_t LayerBlockBytes(const KvView& view) {
  return view.block_tokens * view.kv_heads * 2 * RowBytes(view.dtype, view.head_dim);
}

/// The rows of one sequence in the step. Row first_row + i stands at position start + i.
struct AttentionSequence {
  int64_t first_row = 0;
  int64_t rows_count = 0;
  int64_t start = 0;
  std::span<const int32_t> block_table;  ///< block of position p is block_table[p / B]
};

struct StoreKvArgs {
  const float* k = nullptr;  ///< [T, Hkv, D] with leading dimension ldk
  const float* v = nullptr;  ///< [T, Hkv, D] with leading dimension ldv
  int64_t ldk = 0;
  int64_t ldv = 0;
  KvView kv;
  std::span<const AttentionSequence> sequences;
};

/// out[t, h] = sum_j softmax_j(cap(scale * q[t, h] . k[j, h / (Hq / Hkv)])) v[j, h / (Hq / Hkv)]
/// over positions j in (pos(t) - window, pos(t)], all KV read from the cache (the step's own rows
/// are stored first). The sum's order depends on positions alone: not on blocks, batch, chunk or
/// threads.
struct AttentionArgs {
  const float* q = nullptr;  ///< [T, Hq, D] with leading dimension ldq
  int64_t ldq = 0;
  int64_t query_heads = 0;  ///< Hq
  KvView kv;
  std::span<const AttentionSequence> sequences;
  float scale = 1.0f;
  float softcap = 0.0f;          ///< cap(z) = c tanh(z / c); 0 = none
  int64_t window = 0;            ///< keys readable, the token itself included; 0 = all
  const float* sinks = nullptr;  ///< [Hq] logits that join the denominator, or null
  float* out = nullptr;          ///< [T, Hq, D] with leading dimension ldo
  int64_t ldo = 0;
};

}  // namespace kvasir::kernels
