// safetensors: an 8-byte length, a JSON header, bytes. Source: the safetensors format description.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "files/weights.h"

namespace kvasir::files {

/// `path` is one .safetensors file, a model.safetensors.index.json, or a folder with either.
[[nodiscard]] Result<std::unique_ptr<Weights>> OpenSafetensors(const std::filesystem::path& path);

}  // namespace kvasir::files
