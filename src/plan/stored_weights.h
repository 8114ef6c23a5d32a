// What a model's files hold, beside what its configuration says.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "files/model_files.h"
#include "model/blueprint.h"
#include "plan/model_shape.h"

namespace kvasir::plan {

/// Sets shape.stored, and shape.shipped and shape.kv_format by the tensors' types. `loadable`: what
/// the server would load by; none where it does not run the family. `quantized`: tensors hold
/// packed words and scales, which say nothing of formats. Errors: the tensors are not those that
/// `shape` describes, in their layers, widths, experts or number of values.
[[nodiscard]] Status ReadStoredWeights(const files::ModelFiles& files,
                                       const model::Blueprint* loadable, bool quantized,
                                       const std::filesystem::path& path, ModelShape& shape);

}  // namespace kvasir::plan
