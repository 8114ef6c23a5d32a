// What a weight will take in memory, without packing it: for planning.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/dtype.h"

namespace kvasir::kernels {

/// PackedMatrix::bytes of W [rows, cols] in `dtype` with the backend of that name; 0 for "ref",
/// which reads the file. `dtype` must be one that the backend supports.
[[nodiscard]] int64_t PackedBytes(std::string_view backend, DType dtype, int64_t rows,
                                  int64_t cols);

}  // namespace kvasir::kernels
