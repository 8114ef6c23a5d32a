// Takes every tensor of a checkpoint to its place in BoundWeights, verified.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "files/weights.h"
#include "kernels/backend.h"
#include "model/blueprint.h"
#include "model/bound_weights.h"

namespace kvasir::model {

/// Reads, checks (shape and dtype) and packs all tensors that `blueprint` names. Errors are one
/// line that names file and tensor, what was expected and what came: missing, of another shape or
/// type, or not part of the model. `weights` must outlive the result.
[[nodiscard]] Result<BoundWeights> BindWeights(
    const Blueprint& blueprint, const files::Weights& weights, kernels::Backend& backend,
    const std::function<void(int64_t bytes_done, int64_t bytes_total)>& progress);

}  // namespace kvasir::model
