// Code points in UTF-8 text, and Python's notions of case and character class.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir::text::jinja {

/// Reads the code point at `at` and moves `at` behind it. A byte that begins no valid sequence is
/// taken alone, as U+FFFD.
[[nodiscard]] char32_t DecodeAt(std::string_view text, std::size_t& at);

/// Appends UTF-8. Surrogates and values beyond U+10FFFF become U+FFFD.
void AppendUtf8(std::string& out, char32_t code_point);

/// Number of code points.
[[nodiscard]] std::size_t CountCodePoints(std::string_view text);

/// Byte offset of code point `index`; the size of the text where index is beyond.
[[nodiscard]] std::size_t OffsetOf(std::string_view text, std::size_t index);

// As Python's str methods of these names, for one code point.
[[nodiscard]] bool IsSpace(char32_t c);
[[nodiscard]] bool IsAlpha(char32_t c);
[[nodiscard]] bool IsDecimal(char32_t c);
[[nodiscard]] bool IsDigit(char32_t c);
[[nodiscard]] bool IsNumeric(char32_t c);
[[nodiscard]] bool IsLower(char32_t c);
[[nodiscard]] bool IsUpper(char32_t c);
[[nodiscard]] bool IsCased(char32_t c);
[[nodiscard]] bool IsPrintable(char32_t c);
/// `\w` of Python's re.
[[nodiscard]] bool IsWord(char32_t c);

// As Python's str methods of these names, for whole strings (special casings and the final sigma
// included).
[[nodiscard]] std::string Upper(std::string_view text);
[[nodiscard]] std::string Lower(std::string_view text);
[[nodiscard]] std::string SwapCase(std::string_view text);
[[nodiscard]] std::string Title(std::string_view text);
[[nodiscard]] std::string Capitalize(std::string_view text);

[[nodiscard]] std::string_view TrimLeft(std::string_view text);
[[nodiscard]] std::string_view TrimRight(std::string_view text);
[[nodiscard]] inline std::string_view Trim(std::string_view text) {
  return TrimRight(TrimLeft(text));
}

/// What is said of a template, fit for a message: control characters as escapes, cut where long.
[[nodiscard]] std::string OneLine(std::string_view message);

}  // namespace kvasir::text::jinja
