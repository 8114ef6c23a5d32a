// The engine's own core, driven through simulated time: its scheduler, cache, queue and switches as
// they serve, with a modelled machine in place of the kernels.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "engine/config.h"
#include "plan/simulate/result.h"
#include "plan/simulate/step_cost.h"
#include "plan/simulate/workload.h"

namespace kvasir::plan {

struct SimulationProgress {
  int64_t requests_ended = 0;
  int64_t requests_count = 0;  ///< in all
  double now_s = 0;            ///< simulated
};

struct SimulationOptions {
  ServiceLevel slo;
  int64_t samples_max = 4096;  ///< of StepSample; at least 2
  int64_t details_max = 0;     ///< steps kept in full
  int64_t snapshots_max = 0;   ///< of the cache's map; 0 or at least 2
  double seconds_max = 0;      ///< simulated; 0: until all requests have ended
  /// From a request's being sent until it stands in the queue: network, HTTP, JSON, tokenizing.
  double request_overhead_s = 0;
  /// Called now and then; returning false ends the simulation. May be empty.
  std::function<bool(const SimulationProgress&)> progress;
};

/// `config` has passed ValidateEngineConfig. Deterministic. One thread.
[[nodiscard]] SimulationResult Simulate(const engine::EngineConfig& config,
                                        const StepCostModel& cost, Workload& workload,
                                        const SimulationOptions& options);

}  // namespace kvasir::plan
