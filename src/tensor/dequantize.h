// Stored values to float, one row at a time: the plain definition that every fast kernel is tested
// against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace kvasir {

/// Decodes out.size() values of `dtype` that start at `data` (any alignment). Block formats need a
/// whole number of blocks. Each value is rounded once, to the nearest float: products of a block's
/// scale and code fit a float's 24 bits, so only an added minimum (and F64, I32, I64) rounds at
/// all.
void Dequantize(DType dtype, const std::byte* data, std::span<float> out);

/// OCP FP8 (finite-only E4M3: 0x7F and 0xFF are NaN; E5M2: the upper half of an F16).
[[nodiscard]] float F8E4M3ToFloat(uint8_t bits);
[[nodiscard]] float F8E5M2ToFloat(uint8_t bits);

}  // namespace kvasir
