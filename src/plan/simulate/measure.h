// Steps of known shapes through a real runner, timed: what a calibration is made of.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "contract/cache_spec.h"
#include "contract/runner.h"
#include "plan/simulate/calibration.h"

namespace kvasir::plan {

/// Builds plans by hand and runs them. One prompt, whose KV is computed for real, and as many
/// decoding sequences as are asked for, whose KV is copied from it, so that each reads memory of
/// its own.
class StepBench {
 public:
  /// `runner` has a storage of `cache`, which nobody else uses meanwhile.
  StepBench(Runner& runner, const CacheSpec& cache, int64_t vocab_size);

  /// Computes the prompt's KV up to `positions` tokens, `chunk` at a time, and calls `progress`
  /// with the share that is done. Errors: the runner's, or a cache that is too small.
  [[nodiscard]] Status FillPrompt(int64_t positions, int64_t chunk,
                                  const std::function<void(double)>& progress);
  /// How many decoding sequences of `context` tokens fit beside a prompt of `prompt_positions`.
  [[nodiscard]] int64_t SequencesThatFit(int64_t context, int64_t prompt_positions) const;
  /// Makes `count` sequences that have all but the last of `context` tokens computed.
  [[nodiscard]] Status FillSequences(int64_t count, int64_t context);

  /// Runs each of the steps several times, for `seconds` altogether but at least three times, and
  /// fills in what they took. `progress` is called with the share that is done.
  [[nodiscard]] Status Measure(double seconds, std::span<CalibrationPoint> points,
                               const std::function<void(double)>& progress);

  /// Runs one step. The prompt and the sequences that it needs are there. Returns the seconds.
  [[nodiscard]] Result<double> Run(const CalibrationPoint& shape);

 private:
  [[nodiscard]] PlanItem MakeItem(const std::vector<std::vector<BlockId>>& tables, int64_t start,
                                  int64_t tokens, bool draws) const;

  Runner& runner_;
  const CacheSpec cache_;
  const int64_t vocab_size_;
  SteadyClock clock_;
  SamplingParams sampling_;
  std::vector<TokenId> tokens_;                            ///< ids of any sequence
  std::vector<std::vector<BlockId>> prompt_;               ///< a table a group
  std::vector<std::vector<std::vector<BlockId>>> tables_;  ///< of each sequence, a table a group
  int64_t prompt_computed_ = 0;
  int64_t context_ = 0;
};

struct MeasureOptions {
  int64_t step_tokens_max = 256;     ///< the largest step
  int64_t sequences_max = 64;        ///< the most that decode together
  int64_t context_max = 2048;        ///< tokens
  int64_t sequences_tokens_max = 0;  ///< tokens of KV that decoding sequences hold at most
  double seconds_per_point = 0.3;    ///< each shape is run at least three times
  /// Called with the share that is done, 0 to 1, as it grows.
  std::function<void(double)> progress = [](double) {};
};

/// Times steps over (prompt tokens, decoding sequences, context).
[[nodiscard]] Result<std::vector<CalibrationPoint>> MeasureSteps(Runner& runner,
                                                                 const CacheSpec& cache,
                                                                 int64_t vocab_size,
                                                                 const MeasureOptions& options);

}  // namespace kvasir::plan
