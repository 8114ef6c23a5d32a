// Number formats of stored tensors, GGUF's block formats among them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvasir {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2,
  // GGUF blocks; layouts in tensor/blocks.h.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
};

struct DTypeInfo {
  std::string_view name;     ///< as people write it: "F32", "Q4_K"
  int64_t block_values = 1;  ///< values that one block holds (1 for plain formats)
  int64_t block_bytes = 0;   ///< bytes of one block
};

[[nodiscard]] const DTypeInfo& Info(DType dtype);
[[nodiscard]] std::optional<DType> DTypeFromName(std::string_view name);
/// Bytes of a row of `values`, which must be a multiple of the block.
[[nodiscard]] int64_t RowBytes(DType dtype, int64_t values);

}  // namespace kvasir
