// A view of a stored tensor: format, shape, bytes. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace kvasir {

/// Dimensions, outermost first, as safetensors and PyTorch have them: a linear weight is [out, in].
/// (GGUF's `ne` is the reverse; files/ turns it around.)
using Shape = std::vector<int64_t>;

[[nodiscard]] std::string ToString(const Shape& shape);
[[nodiscard]] int64_t ElementCount(const Shape& shape);

struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* data = nullptr;
  int64_t bytes = 0;

  [[nodiscard]] int64_t dim(size_t i) const { return shape[i]; }
  /// Number of rows when all but the last dimension are folded, and values a row.
  [[nodiscard]] int64_t rows() const;
  [[nodiscard]] int64_t cols() const;
};

/// Dequantizes row `row` (of cols() values) of `view` into `out`, exactly as the
/// format defines them, rounded once to float. `out.size()` must be cols().
void DequantizeRow(const TensorView& view, int64_t row, std::span<float> out);
/// The whole tensor as float. For norms, biases, tables and tests; never for large weights.
[[nodiscard]] std::vector<float> ToFloat(const TensorView& view);

}  // namespace kvasir
