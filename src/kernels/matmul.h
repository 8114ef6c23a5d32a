// y = x W^T + b, the op that nearly all time goes to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "tensor/tensor.h"

namespace kvasir::kernels {

/// A linear weight [N, K] laid out for one backend. Made by Backend::Pack. Immutable.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  int64_t rows = 0;           ///< N, outputs
  int64_t cols = 0;           ///< K, inputs
  DType dtype = DType::kF32;  ///< of the stored weight
  int64_t bytes = 0;          ///< memory that the packed form takes (0 where it refers to the file)
};

using BytesDone = std::function<void(std::span<const std::byte> stored)>;

/// One output of a matmul: y[t, n] = sum_k x[t, k] * w[n, k] + bias[n].
struct MatmulOutput {
  const PackedMatrix* weight = nullptr;
  const float* bias = nullptr;  ///< [N] or null
  float* y = nullptr;           ///< [T, N] with leading dimension ldy
  int64_t ldy = 0;
};

/// Several weights that read the same input (q, k and v; gate and up) go in one call, so that the
/// input is quantized once and the threads meet once.
struct MatmulArgs {
  const float* x = nullptr;  ///< [T, K] with leading dimension ldx
  int64_t ldx = 0;
  int64_t tokens_count = 0;  ///< T
  std::span<const MatmulOutput> outputs;
};

/// y[t] = row rows[t] of the weight.
struct GatherArgs {
  const PackedMatrix* weight = nullptr;
  std::span<const int32_t> rows;  ///< [T]
  float* y = nullptr;             ///< [T, K] with leading dimension ldy
  int64_t ldy = 0;
};

}  // namespace kvasir::kernels
