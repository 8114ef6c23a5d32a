#include "text/unicode_byte_alphabet.h"

#include <array>

#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

constexpr uint32_t kAlphabetEnd = 0x100 + 68;  // 256 - 188 printable ones are moved to U+0100…

struct Alphabet {
  std::array<uint16_t, 256> to_char{};
  std::array<int16_t, kAlphabetEnd> to_byte{};
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.to_byte) byte = -1;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const uint32_t mapped = printable ? byte : next++;
    alphabet.to_char[byte] = static_cast<uint16_t>(mapped);
    alphabet.to_byte[mapped] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

uint32_t ByteToChar(uint8_t byte) { return kAlphabet.to_char[byte]; }

int CharToByte(uint32_t code_point) {
  return code_point < kAlphabetEnd ? kAlphabet.to_byte[code_point] : -1;
}

void AppendMapped(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) AppendUtf8(kAlphabet.to_char[static_cast<uint8_t>(byte)], out);
}

bool AppendUnmapped(std::string_view mapped, std::string& out) {
  const size_t size_before = out.size();
  for (size_t at = 0; at < mapped.size();) {
    const int byte = CharToByte(NextCodePoint(mapped, at));
    if (byte < 0) {
      out.resize(size_before);
      return false;
    }
    out.push_back(static_cast<char>(byte));
  }
  return true;
}

}  // namespace kvasir::text
