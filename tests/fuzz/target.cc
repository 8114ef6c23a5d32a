#include "fuzz/target.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>

#include "base/check.h"
#include "text/unicode_utf8.h"

namespace kvasir::fuzz {

std::map<std::string, Target, std::less<>>& Targets() {
  static std::map<std::string, Target, std::less<>> targets;
  return targets;
}

void ExpectOneLine(const Error& error) {
  KVASIR_CHECK(!error.message.empty());
  KVASIR_CHECK(error.message.size() <= 8192, "{} bytes: {}", error.message.size(),
               error.message.substr(0, 200));
  for (const char c : error.message) {
    KVASIR_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F, "{}", error.message);
  }
  ExpectUtf8(error.message);
}

void ExpectUtf8(std::string_view text) { KVASIR_CHECK(text::IsValidUtf8(text), "{}", text); }

std::string_view TakeUntil(char separator, std::string_view& rest) {
  const size_t end = rest.find(separator);
  const std::string_view taken = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return taken;
}

MemoryFile::MemoryFile(std::string_view bytes)
    : descriptor_(memfd_create("kvasir-fuzz", MFD_CLOEXEC)) {
  KVASIR_CHECK(descriptor_ >= 0);
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    KVASIR_CHECK(written > 0);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}
MemoryFile::~MemoryFile() { close(descriptor_); }
std::string MemoryFile::path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

uint8_t Numbers::Byte() {
  if (rest_.empty()) return 0;
  const auto byte = static_cast<uint8_t>(rest_.front());
  rest_.remove_prefix(1);
  return byte;
}

float Numbers::Float() {
  const auto value = std::bit_cast<float>(Word());
  return std::isnan(value) ? 1.0f : value;
}

std::string_view Numbers::Text(size_t bytes) {
  const std::string_view text = rest_.substr(0, bytes);
  rest_.remove_prefix(text.size());
  return text;
}

}  // namespace kvasir::fuzz
