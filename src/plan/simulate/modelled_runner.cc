#include "plan/simulate/modelled_runner.h"

#include <cmath>

#include "base/check.h"
#include "plan/simulate/token_stream.h"

namespace kvasir::plan {

StepResult ModelledRunner::Run(const StepPlan& plan) {
  const double seconds = cost_->Seconds(plan);
  KVASIR_CHECK(seconds > 0 && std::isfinite(seconds), "a step of {} seconds", seconds);
  observer_->OnStep(plan, seconds);
  clock_->Advance(static_cast<TimeNs>(std::llround(seconds * static_cast<double>(kNsPerSecond))));
  StepResult result;
  result.items.resize(plan.items.size());
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const std::vector<SampleSlot>& slots = plan.items[i].samples;
    result.items[i].samples.resize(slots.size());
    for (size_t s = 0; s < slots.size(); ++s) {
      result.items[i].samples[s].token =
          TokenAt(slots[s].seed, static_cast<int64_t>(slots[s].history.size()), vocab_size_);
    }
  }
  return result;
}

}  // namespace kvasir::plan
