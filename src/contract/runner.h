// The one interface between the two towers.
#pragma once

#include "contract/step.h"

namespace kvasir {

/// Computes steps. Holds the KV storage, and nothing about sequences: all it needs is in the plan.
/// Engine thread only.
class Runner {
 public:
  virtual ~Runner() = default;
  /// Runs the whole plan. An item that fails says so in its result. An exception means that the
  /// step as a whole failed and none of its KV may be trusted.
  virtual StepResult Run(const StepPlan& plan) = 0;
};

}  // namespace kvasir
