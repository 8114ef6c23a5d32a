// The JSON header of one safetensors file, read without trusting it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace kvasir::files {

/// One tensor of the header. Bytes [begin, end) count from the end of the header.
struct HeaderTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t begin = 0;
  int64_t end = 0;
};

/// Parses `header` (JSON) and checks it against the `data_bytes` that follow it: known dtypes,
/// sizes equal to shape times dtype, and the data covered from first to last byte without overlap
/// or hole. Sorted by position. `what` names the file in errors.
[[nodiscard]] Result<std::vector<HeaderTensor>> ParseSafetensorsHeader(std::string_view header,
                                                                       int64_t data_bytes,
                                                                       std::string_view what);

}  // namespace kvasir::files
