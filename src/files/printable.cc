#include "files/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

namespace kvasir::files {
namespace {

// Bytes of the UTF-8 character at text[at], or 0 where there is none (RFC 3629: no overlong forms,
// no surrogates).
size_t CharacterBytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const uint8_t lead = byte(at);
  const size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (lead > 0xF4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(at + 1);
  if (lead == 0xE0 && second < 0xA0) return 0;
  if (lead == 0xED && second > 0x9F) return 0;
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second > 0x8F) return 0;
  return length;
}

}  // namespace

std::string Printable(std::string_view text, size_t max_bytes) {
  std::string line;
  for (size_t at = 0; at < text.size();) {
    if (line.size() >= max_bytes) return line + "...";
    const auto byte = static_cast<uint8_t>(text[at]);
    const size_t length = CharacterBytes(text, at);
    // C1 controls (U+0080..U+009F) and the line separators U+2028/9 would also break a line.
    const std::string_view character = text.substr(at, length);
    const bool control =
        byte < 0x20 || byte == 0x7F || byte == '\\' ||
        (byte == 0xC2 && length == 2 && static_cast<uint8_t>(text[at + 1]) < 0xA0) ||
        character == "\u2028" || character == "\u2029";
    if (length == 0 || control) {
      line += fmt::format("\\x{:02x}", byte);
      ++at;
    } else {
      line += character;
      at += length;
    }
  }
  return line;
}

std::string PrintablePath(const std::filesystem::path& path) {
  return Printable(path.native(), std::numeric_limits<size_t>::max());
}

}  // namespace kvasir::files
