// Four floats at a time, as GNU vectors: they compile to whatever the target has, and each lane is
// plain IEEE arithmetic, so results do not depend on the instructions chosen.
#pragma once

#include <cstdint>
#include <cstring>

namespace kvasir::sample {

inline constexpr int64_t kLanes = 4;
using FloatLanes [[gnu::vector_size(sizeof(float) * kLanes)]] = float;
using IntLanes [[gnu::vector_size(sizeof(int32_t) * kLanes)]] = int32_t;
using DoubleLanes [[gnu::vector_size(sizeof(double) * kLanes)]] = double;

[[nodiscard]] inline FloatLanes LoadLanes(const float* from) {
  FloatLanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

[[nodiscard]] inline FloatLanes Broadcast(float value) { return FloatLanes{} + value; }

/// e^x for x <= 0, within 2 units of the last place; 0 below -87, where it would leave the normal
/// floats. x = n ln 2 + r with |r| <= ln 2 / 2, and Taylor's series of e^r up to r^7, whose rest is
/// below 6e-9 of the value.
[[nodiscard]] inline FloatLanes ExpLanes(FloatLanes x) {
  constexpr float kLowest = -87.0f;
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0x1.63p-1f;  // 9 bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  const IntLanes inside = x >= kLowest;
  x = inside ? x : FloatLanes{};
  const IntLanes n = __builtin_convertvector(x * kLog2E - 0.5f, IntLanes);
  const FloatLanes n_float = __builtin_convertvector(n, FloatLanes);
  const FloatLanes r = (x - n_float * kLn2High) - n_float * kLn2Low;
  FloatLanes series = Broadcast(1.0f / 5040.0f);
  for (const float coefficient :
       {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 1.0f / 2.0f, 1.0f, 1.0f}) {
    series = series * r + coefficient;
  }
  const IntLanes power_bits = (n + 127) << 23;
  FloatLanes power;
  std::memcpy(&power, &power_bits, sizeof power);
  return inside ? series * power : FloatLanes{};
}

}  // namespace kvasir::sample
