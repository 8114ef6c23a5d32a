// Counter-based randomness: the n-th draw of a seed is a pure function of (seed, n), so that a
// sampled token depends on its request's seed and position alone, never on who ran beside it.
#pragma once

#include <cstdint>

namespace kvasir {

/// SplitMix64's finalizer (Steele, Lea, Flood 2014): a bijection with good avalanche.
[[nodiscard]] constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// Combines two words into one seed.
[[nodiscard]] constexpr uint64_t CombineSeeds(uint64_t a, uint64_t b) {
  return Mix64(Mix64(a) ^ (b * 0xD6E8FEB86659FD93ull));
}

/// The draw of `seed` at `position`, uniform in [0, 1) with 53 bits.
[[nodiscard]] constexpr double UniformAt(uint64_t seed, uint64_t position) {
  return static_cast<double>(CombineSeeds(seed, position) >> 11) * 0x1.0p-53;
}

/// A small sequential generator for tests and simulations (SplitMix64).
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next() { return Mix64(state_++); }
  /// Uniform in [0, bound); bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  /// Uniform in [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low + 1)));
  }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  bool Chance(double probability) { return Uniform() < probability; }

 private:
  uint64_t state_;
};

}  // namespace kvasir
