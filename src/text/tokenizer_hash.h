// Hashing of short strings, for the tables that a text runs through word by word.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace kvasir::text {

/// Eight bytes at a time, folded by a 128-bit product. Not for use against an adversary: every
/// table that takes keys from a text is of fixed size.
[[nodiscard]] inline uint64_t HashBytes(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;
  const auto fold = [](uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t hash = bytes.size() * kMultiplier;
  const char* at = bytes.data();
  size_t left = bytes.size();
  while (left >= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = fold(hash ^ word, kMultiplier);
    at += 8;
    left -= 8;
  }
  uint64_t tail = 0;
  if (left >= 4) {
    uint32_t first;
    uint32_t last;
    std::memcpy(&first, at, 4);
    std::memcpy(&last, at + left - 4, 4);
    tail = static_cast<uint64_t>(first) << 32 | last;
  } else if (left > 0) {
    const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(at[i])); };
    tail = byte(0) << 16 | byte(left / 2) << 8 | byte(left - 1);
  }
  return fold(hash ^ tail, 0xD6E8FEB86659FD93ull);
}

}  // namespace kvasir::text
