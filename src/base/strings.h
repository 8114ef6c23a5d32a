// Small things about texts that several rooms need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir {

/// Levenshtein distance in bytes.
[[nodiscard]] size_t EditDistance(std::string_view a, std::string_view b);

/// With ASCII's capitals made small.
[[nodiscard]] std::string LowerCase(std::string_view text);

/// Digits in groups of three: "73,728".
[[nodiscard]] std::string CountText(int64_t count);

/// `text` as it can stand in HTML, in attributes too; as Python's markupsafe writes it.
[[nodiscard]] std::string EscapeHtml(std::string_view text);

}  // namespace kvasir
