// What --model may be: a path, or `default`.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace kvasir::app {

/// The path itself, or for `default` the default model's file in $KVASIR_MODEL_CACHE, in the
/// source tree that holds this binary, or in ~/.cache/kvasir/models.
[[nodiscard]] Result<std::filesystem::path> ResolveModel(const std::string& model);

}  // namespace kvasir::app
