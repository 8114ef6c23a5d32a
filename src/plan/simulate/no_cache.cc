#include "plan/simulate/no_cache.h"

#include <algorithm>
#include <array>

#include "plan/simulate/measure.h"

namespace kvasir::plan {

Result<std::vector<NoCacheRow>> CompareNoCache(Runner& runner, const CacheSpec& cache,
                                               int64_t vocab_size,
                                               const std::vector<int64_t>& lengths,
                                               double seconds_per_point,
                                               const std::function<void(double)>& progress) {
  constexpr int64_t kChunkTokens = 128;
  StepBench bench(runner, cache, vocab_size);
  const int64_t length_max = *std::ranges::max_element(lengths);
  KVASIR_RETURN_IF_ERROR(bench.FillPrompt(length_max, kChunkTokens, [](double) {}));
  std::vector<NoCacheRow> rows;
  for (const int64_t length : lengths) {
    progress(static_cast<double>(rows.size()) / static_cast<double>(lengths.size()));
    std::array<CalibrationPoint, 2> both = {
        CalibrationPoint{.prefill_tokens = 1, .prefill_start = length - 1, .prefill_draws = true},
        CalibrationPoint{.prefill_tokens = length, .prefill_draws = true}};
    KVASIR_RETURN_IF_ERROR(bench.Measure(seconds_per_point, both, [](double) {}));
    rows.push_back({length, both[0].seconds, both[1].seconds});
  }
  progress(1);
  return rows;
}

}  // namespace kvasir::plan
