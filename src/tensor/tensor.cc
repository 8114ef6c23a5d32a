#include "tensor/tensor.h"

#include <fmt/format.h>

#include "base/check.h"
#include "tensor/dequantize.h"

namespace kvasir {

std::string ToString(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) {
    KVASIR_CHECK(dim >= 0 && !__builtin_mul_overflow(count, dim, &count), "shape {}",
                 ToString(shape));
  }
  return count;
}

int64_t TensorView::rows() const {
  int64_t count = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
  return count;
}

int64_t TensorView::cols() const { return shape.empty() ? 1 : shape.back(); }

void DequantizeRow(const TensorView& view, int64_t row, std::span<float> out) {
  KVASIR_CHECK(row >= 0 && row < view.rows(), "row {} of {}", row, view.rows());
  KVASIR_CHECK(static_cast<int64_t>(out.size()) == view.cols(), "{} values for a row of {}",
               out.size(), view.cols());
  Dequantize(view.dtype, view.data + row * RowBytes(view.dtype, view.cols()), out);
}

std::vector<float> ToFloat(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(ElementCount(view.shape)));
  Dequantize(view.dtype, view.data, values);
  return values;
}

}  // namespace kvasir
