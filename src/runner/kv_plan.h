// How the KV cache is laid out for a model, how large it becomes, and what that is worth: what the
// server prints at start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "contract/cache_spec.h"
#include "files/weights.h"
#include "model/spec.h"
#include "tensor/dtype.h"

namespace kvasir::runner {

/// `name` is auto, f32, f16 or bf16. Auto follows the format that most bytes of `weights` have:
/// f32 for F32; bf16 for BF16, whose keys and values may exceed what an F16 can hold; f16 for F16
/// and everything quantized.
[[nodiscard]] Result<DType> ChooseKvDType(std::string_view name, const files::Weights& weights);

/// The groups of `spec` and the bytes of a block; blocks_count is left 0 (PlanKv).
[[nodiscard]] CacheSpec MakeCacheSpec(const model::ModelSpec& spec, DType kv_dtype,
                                      int64_t block_tokens);

struct KvSizing {
  CacheSpec cache;  ///< as MakeCacheSpec gives it
  /// Blocks that one request of max_model_len tokens takes at most (cache::PeakBlocks).
  int64_t blocks_per_request = 0;
  int64_t max_num_seqs = 1;
  std::optional<int64_t> blocks_count;  ///< as asked for; wins over memory_bytes
  std::optional<int64_t> memory_bytes;  ///< as asked for; rounded down to whole blocks
  /// Where neither is given: bytes that the process may still take, the weights already counted.
  /// The cache gets at most seven tenths of them, and no more than max_num_seqs requests of full
  /// length can use.
  int64_t available_bytes = 0;
};

struct KvPlan {
  CacheSpec cache;              ///< with blocks_count
  int64_t bytes_per_token = 0;  ///< in all layers, none given back
  int64_t tokens_count = 0;     ///< that the pool holds, none given back
  double requests_count = 0;    ///< of max_model_len that fit at once
};

/// Errors: a number that is not positive, or room for less than one block a group.
[[nodiscard]] Result<KvPlan> PlanKv(const KvSizing& sizing);

/// "KV cache: 90.0 KiB a token, 4096 blocks of 16 tokens (5.6 GiB), 65536 tokens, 8.0 requests of
/// 8192 tokens".
[[nodiscard]] std::string Describe(const KvPlan& plan, int64_t max_model_len);

}  // namespace kvasir::runner
