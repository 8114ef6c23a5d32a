// GPT-2's printable alphabet for bytes: one character a byte, so that a vocabulary of strings can
// hold any bytes. Printable Latin-1 stands for itself; the other 68 bytes are U+0100 and up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir::text {

[[nodiscard]] uint32_t ByteToChar(uint8_t byte);
/// -1 where the character is not of the alphabet.
[[nodiscard]] int CharToByte(uint32_t code_point);
/// Appends the alphabet's spelling of `bytes`.
void AppendMapped(std::string_view bytes, std::string& out);
/// Appends the bytes that `mapped` (valid UTF-8) spells; false, and `out` as it was, where a
/// character is not of the alphabet.
bool AppendUnmapped(std::string_view mapped, std::string& out);

}  // namespace kvasir::text
