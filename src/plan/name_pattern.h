// Patterns of module names, as quantization configurations list them.
#pragma once

#include <string>
#include <string_view>

namespace kvasir::plan {

/// Whether Python's `re` would find `pattern` in `name`: from its begin on (`anchored`, as
/// re.match) or anywhere (as re.search). A pattern that is none, or that backtracks without end,
/// finds nothing.
[[nodiscard]] bool FindsPattern(const std::string& pattern, std::string_view name, bool anchored);

}  // namespace kvasir::plan
