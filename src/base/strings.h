// Small things about texts that several rooms need.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvasir {

/// Levenshtein distance in bytes.
[[nodiscard]] size_t EditDistance(std::string_view a, std::string_view b);

/// `text` as it can stand in HTML, in attributes too; as Python's markupsafe writes it.
[[nodiscard]] std::string EscapeHtml(std::string_view text);

}  // namespace kvasir
