#include "kernels/ref/ref_backend.h"

#include "kernels/ref/attention_ref.h"
#include "kernels/ref/elementwise_ref.h"
#include "kernels/ref/matmul_ref.h"

namespace kvasir::kernels {
namespace {

class RefBackend final : public Backend {
 public:
  explicit RefBackend(ThreadPool& pool) : pool_(pool) {}

  [[nodiscard]] std::string_view name() const override { return "ref"; }
  [[nodiscard]] bool Supports(DType dtype) const override { return ref::IsWeightFormat(dtype); }
  [[nodiscard]] std::unique_ptr<PackedMatrix> Pack(std::span<const TensorView> parts,
                                                   const BytesDone&) override {
    return std::make_unique<ref::RefMatrix>(parts);
  }

  void Matmul(const MatmulArgs& args) override { ref::Matmul(args, pool_); }
  void Gather(const GatherArgs& args) override { ref::Gather(args); }
  void Norm(const NormArgs& args) override { ref::Norm(args, pool_); }
  void Activate(const ActivationArgs& args) override { ref::Activate(args, pool_); }
  void Rope(const RopeArgs& args) override { ref::Rope(args, pool_); }
  void Add(const AddArgs& args) override { ref::Add(args, pool_); }
  void Scale(const ScaleArgs& args) override { ref::Scale(args, pool_); }
  void StoreKv(const StoreKvArgs& args) override { ref::StoreKv(args, pool_); }
  void Attention(const AttentionArgs& args) override { ref::Attention(args, pool_); }

 private:
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<Backend> MakeRefBackend(ThreadPool& pool) {
  return std::make_unique<RefBackend>(pool);
}

}  // namespace kvasir::kernels
