// How long a modelled machine takes for a step.
#pragma once

#include "contract/step.h"

namespace kvasir::plan {

class StepCostModel {
 public:
  virtual ~StepCostModel() = default;
  /// Seconds of the whole step, the engine's own work included. More than 0.
  [[nodiscard]] virtual double Seconds(const StepPlan& plan) const = 0;
};

}  // namespace kvasir::plan
