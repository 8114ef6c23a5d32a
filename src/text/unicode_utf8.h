// UTF-8: reading, writing and repairing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  ///< U+FFFD

/// Length in bytes by the lead byte, of text known to be valid.
[[nodiscard]] inline size_t Utf8Length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/// Reads the character at `at` of valid UTF-8 and moves `at` behind it.
[[nodiscard]] inline uint32_t NextCodePoint(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = byte(at);
  if (lead < 0x80) {
    at += 1;
    return lead;
  }
  if (lead < 0xE0) {
    const uint32_t value = (lead & 0x1F) << 6 | (byte(at + 1) & 0x3F);
    at += 2;
    return value;
  }
  if (lead < 0xF0) {
    const uint32_t value = (lead & 0x0F) << 12 | (byte(at + 1) & 0x3F) << 6 | (byte(at + 2) & 0x3F);
    at += 3;
    return value;
  }
  const uint32_t value = (lead & 0x07) << 18 | (byte(at + 1) & 0x3F) << 12 |
                         (byte(at + 2) & 0x3F) << 6 | (byte(at + 3) & 0x3F);
  at += 4;
  return value;
}

[[nodiscard]] inline uint32_t CodePointAt(std::string_view text, size_t at) {
  return NextCodePoint(text, at);
}

/// Begin of the character that ends before `at` > 0 of valid UTF-8.
[[nodiscard]] inline size_t PreviousBoundary(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

void AppendUtf8(uint32_t code_point, std::string& out);

/// What stands at the begin of `bytes` (not empty).
struct Utf8Step {
  enum class Kind { kCharacter, kInvalid, kIncomplete };
  Kind kind;
  size_t length;  ///< bytes of the character, of the maximal invalid subpart, or all that is there
};

/// Classifies the begin of arbitrary bytes as WHATWG's decoder and Rust's from_utf8_lossy do: an
/// invalid sequence is as long as it could still have become a character.
[[nodiscard]] Utf8Step ClassifyUtf8(std::string_view bytes);

[[nodiscard]] bool IsValidUtf8(std::string_view bytes);
[[nodiscard]] bool IsAscii(std::string_view bytes);
/// Appends `bytes` with each maximal invalid subpart as U+FFFD.
void AppendLossy(std::string_view bytes, std::string& out);

}  // namespace kvasir::text
