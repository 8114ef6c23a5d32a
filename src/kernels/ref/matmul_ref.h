// Matmul of the reference backend.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/matmul.h"

namespace kvasir::kernels::ref {

/// The stored parts as they are in the file: packing copies nothing.
class RefMatrix final : public PackedMatrix {
 public:
  explicit RefMatrix(std::span<const TensorView> parts);
  /// Rows [first, first + count) as double, [count, cols]. `scratch` holds cols values.
  void Decode(int64_t first, int64_t count, std::span<float> scratch, double* out) const;

 private:
  std::vector<TensorView> parts_;
};

/// True for what Dequantize reads as numbers of a weight: floats and GGUF's blocks.
[[nodiscard]] bool IsWeightFormat(DType dtype);

void Matmul(const MatmulArgs& args, ThreadPool& pool);
void Gather(const GatherArgs& args);

}  // namespace kvasir::kernels::ref
