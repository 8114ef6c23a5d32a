// What kind of character a code point is, as the pre-tokenizers ask it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/unicode_utf8.h"

namespace kvasir::text {

/// A set of the bits below.
using CharClass = uint16_t;

inline constexpr CharClass kUpper = 1 << 0;           ///< Lu
inline constexpr CharClass kLower = 1 << 1;           ///< Ll
inline constexpr CharClass kTitle = 1 << 2;           ///< Lt
inline constexpr CharClass kModifierLetter = 1 << 3;  ///< Lm
inline constexpr CharClass kOtherLetter = 1 << 4;     ///< Lo
inline constexpr CharClass kMark = 1 << 5;            ///< Mn, Mc, Me
inline constexpr CharClass kNonSpacingMark = 1 << 6;  ///< Mn
inline constexpr CharClass kDecimal = 1 << 7;         ///< Nd
inline constexpr CharClass kOtherNumber = 1 << 8;     ///< Nl, No
inline constexpr CharClass kPunctuation = 1 << 9;     ///< P
inline constexpr CharClass kSymbol = 1 << 10;         ///< S
inline constexpr CharClass kSpace = 1 << 11;          ///< property White_Space
inline constexpr CharClass kNewline = 1 << 12;        ///< \r, \n
inline constexpr CharClass kHan = 1 << 13;            ///< script Han
inline constexpr CharClass kWord = 1 << 14;           ///< Alphabetic, M, Nd, Pc, joiners: Rust's \w
inline constexpr CharClass kOther = 1 << 15;          ///< Cc, Cf, Co: control, format, private use

inline constexpr CharClass kLetter = kUpper | kLower | kTitle | kModifierLetter | kOtherLetter;
inline constexpr CharClass kNumber = kDecimal | kOtherNumber;

/// Planes 0 to 3 hold every letter; what lies above is looked up one by one.
inline constexpr uint32_t kCharClassTableSize = 0x40000;

/// Built on first use (about a millisecond); any thread.
[[nodiscard]] const CharClass* CharClassTable();
/// For code points beyond the table.
[[nodiscard]] CharClass RareCharClass(uint32_t code_point);

[[nodiscard]] inline CharClass ClassOf(const CharClass* table, uint32_t code_point) {
  return code_point < kCharClassTableSize ? table[code_point] : RareCharClass(code_point);
}

/// The class of the character at `at` of valid UTF-8; moves `at` behind it.
[[nodiscard]] inline CharClass NextClass(const CharClass* table, std::string_view text,
                                         size_t& at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) {
    ++at;
    return table[lead];
  }
  return ClassOf(table, NextCodePoint(text, at));
}

}  // namespace kvasir::text
