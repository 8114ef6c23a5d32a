// What a KV cache is worth: a token with it, and by computing the whole sequence again.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "contract/cache_spec.h"
#include "contract/runner.h"

namespace kvasir::plan {

struct NoCacheRow {
  int64_t length = 0;             ///< tokens of the sequence, the new one included
  double cached_seconds = 0;      ///< for the next token, all others' KV being there
  double recomputed_seconds = 0;  ///< for the same token, computing all of them
};

/// The same runner, kernels and memory both ways: only what is computed differs. A recomputation is
/// one step of `length` tokens.
[[nodiscard]] Result<std::vector<NoCacheRow>> CompareNoCache(
    Runner& runner, const CacheSpec& cache, int64_t vocab_size, const std::vector<int64_t>& lengths,
    double seconds_per_point, const std::function<void(double)>& progress);

}  // namespace kvasir::plan
