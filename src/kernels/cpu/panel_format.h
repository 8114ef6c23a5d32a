// How a weight lies in memory for the fast kernels.
//
// R rows (the lanes of a vector) make a panel: one vector holds 4 neighbouring bytes of k of each
// of R rows, so a broadcast of 4 activations meets all R outputs at once and no sum crosses lanes.
// A block of 32 k is 8 such vectors; vector v holds k = 4v .. 4v + 3. A panel of a quantized format
// is
//   scales  [K/32 or K/256] records, see Scales
//   codes   [K/32] of { low plane, high plane }, unsigned codes (signed bytes where they are 8
//   bits)
// Low planes: 8 bits: the 8 vectors. 4 bits: 4 vectors; byte vector g has vector g in its low and
// vector g + 4 in its high nibbles. 2 bits: 2 vectors; vector v is bits 2 (v % 4) of vector v / 4.
// High planes hold the bits above the low plane's: 1 bit: 1 vector, bit v of it is vector v's.
// 2 bits: as the low plane of 2 bits.
// A dense panel is [K][R] values; BF16 has pairs of k, [ceil(K/2)][R][2].
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace kvasir::kernels::cpu {

enum class Scales : uint8_t {
  kBlock,          ///< half d[R] a block: value = d (code - zero)
  kBlockMin,       ///< half d[R], m[R] a block: d code + m
  kSuperMin32,     ///< half d[R], dmin[R] a super-block, then 8 of u8 scale[R], min[R]
  kSuperSigned16,  ///< half d[R] a super-block, then 16 of s8 scale[R]: d scale (code - zero)
  kSuperMin16,     ///< half d[R], dmin[R] a super-block, then 16 of u8 (scale | min << 4)[R]
};

struct PanelFormat {
  int low_bits = 0;
  int high_bits = 0;
  Scales scales = Scales::kBlock;
  int zero = 0;
  /// Codes stand for signed bytes: the values themselves (8 bits) or a code book's (4 bits).
  bool signed_bytes = false;

  [[nodiscard]] constexpr bool has_min() const {
    return scales == Scales::kBlockMin || scales == Scales::kSuperMin32 ||
           scales == Scales::kSuperMin16;
  }
  /// Values that share a scale.
  [[nodiscard]] constexpr int group() const {
    return scales == Scales::kSuperSigned16 || scales == Scales::kSuperMin16 ? 16 : 32;
  }
  /// Blocks of 32 that one record of scales covers.
  [[nodiscard]] constexpr int record_blocks() const {
    return scales == Scales::kBlock || scales == Scales::kBlockMin ? 1 : 8;
  }
  /// Bytes a row of one record of scales.
  [[nodiscard]] constexpr int record_bytes() const {
    switch (scales) {
      case Scales::kBlock:
        return 2;
      case Scales::kBlockMin:
        return 4;
      case Scales::kSuperMin32:
        return 4 + 8 * 2;
      case Scales::kSuperSigned16:
        return 2 + 16;
      case Scales::kSuperMin16:
        return 4 + 16;
    }
    return 0;
  }
  /// Bytes a row of one block's codes.
  [[nodiscard]] constexpr int code_bytes() const { return 4 * (low_bits + high_bits); }
};

/// Where `dtype` is quantized and known; low_bits 0 otherwise.
[[nodiscard]] constexpr PanelFormat PanelFormatOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return {4, 0, Scales::kBlock, 8, false};
    case DType::kQ4_1:
      return {4, 0, Scales::kBlockMin, 0, false};
    case DType::kQ5_0:
      return {4, 1, Scales::kBlock, 16, false};
    case DType::kQ5_1:
      return {4, 1, Scales::kBlockMin, 0, false};
    case DType::kQ8_0:
      return {8, 0, Scales::kBlock, 0, true};
    case DType::kIQ4_NL:
      return {4, 0, Scales::kBlock, 0, true};
    case DType::kQ2_K:
      return {2, 0, Scales::kSuperMin16, 0, false};
    case DType::kQ3_K:
      return {2, 1, Scales::kSuperSigned16, 4, false};
    case DType::kQ4_K:
      return {4, 0, Scales::kSuperMin32, 0, false};
    case DType::kQ5_K:
      return {4, 1, Scales::kSuperMin32, 0, false};
    case DType::kQ6_K:
      return {4, 2, Scales::kSuperSigned16, 32, false};
    default:
      return {};
  }
}

[[nodiscard]] constexpr bool IsDense(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace kvasir::kernels::cpu
