// Names that somebody may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir::plan {

/// "hardware: expected WANTED, got 'NAME'; nearest: a, b, c; --list shows all".
[[nodiscard]] Error UnknownName(std::string_view field, std::string_view name,
                                const std::vector<std::string>& known, std::string_view wanted);

}  // namespace kvasir::plan
