// Turns steps into samples, details and maps of the cache.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine_core.h"
#include "plan/simulate/modelled_runner.h"
#include "plan/simulate/result.h"
#include "plan/simulate/simulator.h"

namespace kvasir::plan {

/// Ids of requests are their indices in `result->requests` plus 1.
class Recorder final : public StepObserver {
 public:
  /// All must outlive the recorder.
  Recorder(const SimulationOptions& options, const ManualClock* clock, SimulationResult* result)
      : options_(options), clock_(clock), result_(result) {}
  void Watch(const engine::EngineCore* core) { core_ = core; }

  void OnStep(const StepPlan& plan, double seconds) override;

  static int64_t IndexOf(const schedule::Sequence& sequence) {
    return static_cast<int64_t>(sequence.rank.order) - 1;
  }

 private:
  [[nodiscard]] StepSample Sample(const StepPlan& plan, double seconds);
  void AddSample(const StepSample& sample);
  void AddIntegrals(const StepSample& sample);
  void AddDetail(const StepPlan& plan, const StepSample& sample);
  void AddSnapshot(const StepSample& sample);

  SimulationOptions options_;
  const ManualClock* clock_;
  SimulationResult* result_;
  const engine::EngineCore* core_ = nullptr;
  int64_t sample_stride_ = 1;
  int64_t snapshot_stride_ = 1;
  std::vector<int64_t> reached_;  ///< of each request: tokens computed at some time
  size_t waiting_begin_ = 0;      ///< requests before it have ended
  std::vector<bool> seated_;      ///< scratch: of each request whether it runs
};

}  // namespace kvasir::plan
