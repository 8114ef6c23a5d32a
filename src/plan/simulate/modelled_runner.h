// A runner without a model: it lets simulated time pass and draws tokens that say nothing.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "contract/runner.h"
#include "plan/simulate/step_cost.h"

namespace kvasir::plan {

/// Sees each step while its blocks are reserved and before its time has passed.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void OnStep(const StepPlan& plan, double seconds) = 0;
};

/// A sequence whose seed is s draws at position p the token of stream s there, so that the next
/// turn of a conversation can be written down without having heard the answer.
class ModelledRunner final : public Runner {
 public:
  /// All must outlive the runner.
  ModelledRunner(const StepCostModel* cost, int64_t vocab_size, ManualClock* clock,
                 StepObserver* observer)
      : cost_(cost), vocab_size_(vocab_size), clock_(clock), observer_(observer) {}
  StepResult Run(const StepPlan& plan) override;

 private:
  const StepCostModel* cost_;
  int64_t vocab_size_;
  ManualClock* clock_;
  StepObserver* observer_;
};

}  // namespace kvasir::plan
