// SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash that tells nothing of its input to
// whoever has not the key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace kvasir::plan {

struct SipKey {
  uint64_t first = 0;
  uint64_t second = 0;
};

namespace sip {

[[nodiscard]] constexpr uint64_t Rotate(uint64_t x, int bits) {
  return x << bits | x >> (64 - bits);
}

struct State {
  uint64_t v0, v1, v2, v3;
  constexpr void Round() {
    v0 += v1;
    v1 = Rotate(v1, 13) ^ v0;
    v0 = Rotate(v0, 32);
    v2 += v3;
    v3 = Rotate(v3, 16) ^ v2;
    v0 += v3;
    v3 = Rotate(v3, 21) ^ v0;
    v2 += v1;
    v1 = Rotate(v1, 17) ^ v2;
    v2 = Rotate(v2, 32);
  }
  constexpr void Take(uint64_t word) {
    v3 ^= word;
    Round();
    Round();
    v0 ^= word;
  }
};

}  // namespace sip

[[nodiscard]] inline uint64_t SipHash(const SipKey& key, std::span<const std::byte> bytes) {
  sip::State state{key.first ^ 0x736f6d6570736575u, key.second ^ 0x646f72616e646f6du,
                   key.first ^ 0x6c7967656e657261u, key.second ^ 0x7465646279746573u};
  const size_t whole = bytes.size() / 8 * 8;
  for (size_t at = 0; at < whole; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    state.Take(word);
  }
  uint64_t last = uint64_t{bytes.size()} << 56;
  for (size_t at = whole; at < bytes.size(); ++at) {
    last |= static_cast<uint64_t>(bytes[at]) << (8 * (at - whole));
  }
  state.Take(last);
  state.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) state.Round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace kvasir::plan
