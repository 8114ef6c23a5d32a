// A load through the real engine and a real runner: what the engine itself takes a step, and how
// near a prediction comes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "contract/runner.h"
#include "engine/config.h"
#include "plan/simulate/step_time.h"

namespace kvasir::plan {

struct LoadRequest {
  int64_t prompt_tokens = 1;
  int64_t output_tokens = 1;
  int64_t arrival_step = 0;  ///< comes after so many steps
};

struct LoadOutcome {
  int64_t steps = 0;
  int64_t sequences = 0;         ///< summed over the steps
  double runner_seconds = 0;     ///< inside of the runner
  double seconds = 0;            ///< of the steps as a whole
  double predicted_seconds = 0;  ///< by `step_time` where one was given
};

/// Runs the requests, which share no prefix, to their end. Errors: a request that cannot fit, or
/// one that failed.
[[nodiscard]] Result<LoadOutcome> RunLoad(Runner& runner, const engine::EngineConfig& config,
                                          const std::vector<LoadRequest>& requests,
                                          const FittedStepTime* step_time);

struct HostSeconds {
  double per_step = 0;
  double per_sequence = 0;
};

/// What the engine takes beside the runner, from decoding loads of one and of many sequences.
[[nodiscard]] Result<HostSeconds> MeasureHost(Runner& runner, const engine::EngineConfig& config);

/// Requests of mixed lengths that come while others run: what a prediction is tried on.
[[nodiscard]] std::vector<LoadRequest> MixedLoad(const engine::EngineConfig& config);

}  // namespace kvasir::plan
