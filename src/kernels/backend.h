// The dispatch table: one Backend a way of computing (ref, avx2, ...). All ops take and give float
// rows; each output element's order of arithmetic depends on its own row and the weights alone, so
// a row's result is bit for bit the same in any batch, on any number of threads.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "tensor/tensor.h"

namespace kvasir::kernels {

/// Stateless but for scratch; ops are called by one thread (the engine's), which the pool helps.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// True where Pack takes this stored format.
  [[nodiscard]] virtual bool Supports(DType dtype) const = 0;
  /// Lays out W [N, K] for Matmul, without loss. `weight` must outlive the result where bytes == 0.
  /// Parts are stacked along N in order (q, k, v of one layer may be packed as one matrix); all
  /// have the same dtype and K.
  /// `done`, where given, hears of the stored bytes that have been laid out and are not read again,
  /// piece by piece, so that a mapped file's pages can go before all are in memory twice.
  [[nodiscard]] virtual std::unique_ptr<PackedMatrix> Pack(std::span<const TensorView> parts,
                                                           const BytesDone& done) = 0;
  [[nodiscard]] std::unique_ptr<PackedMatrix> Pack(std::span<const TensorView> parts) {
    return Pack(parts, nullptr);
  }

  virtual void Matmul(const MatmulArgs& args) = 0;
  /// Rows of a weight as floats, equal bit for bit to DequantizeRow of what was packed.
  virtual void Gather(const GatherArgs& args) = 0;
  virtual void Norm(const NormArgs& args) = 0;
  virtual void Activate(const ActivationArgs& args) = 0;
  virtual void Rope(const RopeArgs& args) = 0;
  virtual void Add(const AddArgs& args) = 0;
  virtual void Scale(const ScaleArgs& args) = 0;
  virtual void StoreKv(const StoreKvArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;
};

/// Names of the backends that this machine can run, best first; "ref" is always among them.
[[nodiscard]] std::vector<std::string_view> AvailableBackends();
/// `name` is one of them, or "auto" for the best. The pool must outlive the backend.
[[nodiscard]] Result<std::unique_ptr<Backend>> MakeBackend(std::string_view name, ThreadPool& pool);

}  // namespace kvasir::kernels
