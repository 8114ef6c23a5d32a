// The two machines that a simulation can stand on: one worked out from data sheets, one measured.
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "contract/cache_spec.h"
#include "plan/hardware.h"
#include "plan/model_shape.h"
#include "plan/roofline.h"
#include "plan/simulate/calibration.h"
#include "plan/simulate/step_cost.h"

namespace kvasir::plan {

/// Weights read once a step, keys and values by context, operations by tokens, launches, links.
[[nodiscard]] std::unique_ptr<StepCostModel> MakeRooflineCost(const Hardware& hardware,
                                                              const ModelShape& shape,
                                                              const RooflineOptions& options);

/// Fitted to what was measured. `groups` are those of the cache that is simulated. Errors: points
/// that do not suffice for a fit.
[[nodiscard]] Result<std::unique_ptr<StepCostModel>> MakeCalibratedCost(
    const Calibration& calibration, std::span<const CacheGroupSpec> groups);

/// Tokens of one prompt that a step computes in about `seconds`: a multiple of 32 between 32 and
/// `most`.
[[nodiscard]] int64_t TokensWithin(const StepCostModel& cost, double seconds, int64_t most,
                                   size_t groups_count);

}  // namespace kvasir::plan
