#include "text/unicode_utf8.h"

#include <cstring>

namespace kvasir::text {
namespace {

constexpr uint64_t kHighBits = 0x8080808080808080ull;

/// The first byte from `at` on that is not ASCII, or the end.
size_t SkipAscii(std::string_view bytes, size_t at) {
  while (at + 8 <= bytes.size()) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    if ((word & kHighBits) != 0) {
      return at + static_cast<size_t>(__builtin_ctzll(word & kHighBits)) / 8;
    }
    at += 8;
  }
  while (at < bytes.size() && static_cast<uint8_t>(bytes[at]) < 0x80) ++at;
  return at;
}

/// The first byte from `at` on that does not belong to a valid character, or the end.
size_t SkipValid(std::string_view bytes, size_t at) {
  for (;;) {
    at = SkipAscii(bytes, at);
    if (at == bytes.size()) return at;
    const Utf8Step step = ClassifyUtf8(bytes.substr(at, 4));
    if (step.kind != Utf8Step::Kind::kCharacter) return at;
    at += step.length;
  }
}

}  // namespace

void AppendUtf8(uint32_t code_point, std::string& out) {
  const auto push = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
    push(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    push(0xE0 | code_point >> 12);
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  } else {
    push(0xF0 | code_point >> 18);
    push(0x80 | (code_point >> 12 & 0x3F));
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  }
}

Utf8Step ClassifyUtf8(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8Step::Kind::kCharacter, 1};
  size_t length = 0;
  uint8_t low = 0x80;  // bounds of the second byte: no overlong forms, surrogates or > U+10FFFF
  uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8Step::Kind::kInvalid, 1};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8Step::Kind::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Step::Kind::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Step::Kind::kCharacter, length};
}

bool IsValidUtf8(std::string_view bytes) { return SkipValid(bytes, 0) == bytes.size(); }

bool IsAscii(std::string_view bytes) { return SkipAscii(bytes, 0) == bytes.size(); }

void AppendLossy(std::string_view bytes, std::string& out) {
  size_t at = 0;
  for (;;) {
    const size_t bad = SkipValid(bytes, at);
    out.append(bytes.substr(at, bad - at));
    if (bad == bytes.size()) return;
    out.append(kReplacement);
    at = bad + ClassifyUtf8(bytes.substr(bad, 4)).length;
  }
}

}  // namespace kvasir::text
