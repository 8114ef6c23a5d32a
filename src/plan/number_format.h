// How a number is stored, as bytes: what weights and the KV cache may be planned in.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir::plan {

/// What a machine multiplies in. A weight that is stored smaller than the machine can multiply is
/// widened first (4-bit weights with BF16 activations are computed in BF16).
enum class Math : uint8_t { kF32, kBF16, kF8, kI8, kF4 };
inline constexpr size_t kMathCount = 5;

/// "f32", "bf16", "fp8", "int8", "fp4".
[[nodiscard]] std::string_view MathName(Math math);

/// Values are stored in blocks along a row (`block_values` of them in `block_bytes`, scales
/// included), a short last block taking a whole one. Beside them a tile of tile_rows x tile_cols
/// values may have a scale.
struct NumberFormat {
  std::string name;  ///< as people type it: "bf16", "fp8", "int4-g128", "Q4_K"
  int64_t block_values = 1;
  int64_t block_bytes = 2;
  int64_t tile_rows = 0;  ///< 0: no tiles
  int64_t tile_cols = 0;  ///< 0: a tile spans the row
  int64_t tile_bytes = 0;
  Math math = Math::kBF16;  ///< what it is multiplied in where the machine can

  /// Of a matrix [rows, cols].
  [[nodiscard]] int64_t Bytes(int64_t rows, int64_t cols) const;
  /// Of one value, tiles left out.
  [[nodiscard]] double BytesPerValue() const {
    return static_cast<double>(block_bytes) / static_cast<double>(block_values);
  }
};

/// f32, f16, bf16, fp8 (a scale a 128 x 128 tile), int8 (a scale a row), int4-gN (N = 16 ... 1024;
/// int4 alone is g128), mxfp4, nvfp4, or a GGUF type (Q4_K, q8_0, ...), in any case of letters.
[[nodiscard]] Result<NumberFormat> ParseWeightFormat(std::string_view name);

/// bf16, f16, f32, fp8, int8 (a scale of 2 bytes each 32 values, as GGUF's Q8_0).
[[nodiscard]] Result<NumberFormat> ParseKvFormat(std::string_view name);

/// All names of the two, for help and messages.
[[nodiscard]] std::string WeightFormatNames();
[[nodiscard]] std::string KvFormatNames();

}  // namespace kvasir::plan
