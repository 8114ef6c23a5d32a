// The numbers that GGUF files give to tensor formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace kvasir::files {

/// What is computed on here; nullopt for a known format that is not, and for an unknown number.
[[nodiscard]] std::optional<DType> DTypeOfGgml(uint32_t type);
/// "IQ2_XXS", or empty for a number that no release of ggml gave out.
[[nodiscard]] std::string_view GgmlTypeName(uint32_t type);
/// "F32, F16, Q4_0, ..." for messages.
[[nodiscard]] std::string SupportedGgmlTypes();

}  // namespace kvasir::files
