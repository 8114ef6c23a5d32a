#include "kernels/cpu/cpu_backend.h"

#include <algorithm>

#include "kernels/cpu/arena.h"
#include "kernels/cpu/attention_driver.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/matmul_driver.h"
#include "kernels/cpu/panels.h"

namespace kvasir::kernels {
namespace {

// Nanoseconds a value, roughly: they only say when a second thread is worth waking.
constexpr double kNormNs = 0.3;
constexpr double kActivateNs = 1.0;
constexpr double kRopeNs = 0.4;
constexpr double kAddNs = 0.2;
constexpr double kScaleNs = 0.2;
constexpr double kSoftCapNs = 1.5;
constexpr double kGatherNs = 6.0;
constexpr double kTaskNs = 4'000;

class CpuBackend final : public Backend {
 public:
  CpuBackend(const cpu::KernelTable& table, ThreadPool& pool)
      : table_(table),
        pool_(pool),
        matmul_(*table.matmul, pool),
        attention_(*table.attention, pool) {}

  [[nodiscard]] std::string_view name() const override { return table_.name; }
  [[nodiscard]] bool Supports(DType dtype) const override { return cpu::CanPack(dtype); }
  [[nodiscard]] std::unique_ptr<PackedMatrix> Pack(std::span<const TensorView> parts,
                                                   const BytesDone& done) override {
    return cpu::PackPanels(parts, table_.matmul->lanes, table_.matmul->bytes_biased, arena_, pool_,
                           done);
  }

  void Matmul(const MatmulArgs& args) override { matmul_.Run(args); }
  void Gather(const GatherArgs& args) override {
    const auto& matrix = static_cast<const cpu::PanelMatrix&>(*args.weight);
    ForRows(static_cast<int64_t>(args.rows.size()), matrix.cols, kGatherNs,
            [&](int64_t begin, int64_t end) {
              for (int64_t t = begin; t < end; ++t) {
                cpu::DequantizePanelRow(matrix, args.rows[static_cast<size_t>(t)],
                                        {args.y + t * args.ldy, static_cast<size_t>(matrix.cols)});
              }
            });
  }
  void Norm(const NormArgs& args) override {
    ForRows(args.tokens_count, args.cols, kNormNs,
            [&](int64_t begin, int64_t end) { table_.elementwise->norm(args, begin, end); });
  }
  void Activate(const ActivationArgs& args) override {
    ForRows(args.tokens_count, args.cols, kActivateNs,
            [&](int64_t begin, int64_t end) { table_.elementwise->activate(args, begin, end); });
  }
  void Rope(const RopeArgs& args) override {
    ForRows(args.tokens_count, args.heads_count * args.rotated_dims, kRopeNs,
            [&](int64_t begin, int64_t end) { table_.elementwise->rope(args, begin, end); });
  }
  void Add(const AddArgs& args) override {
    ForRows(args.tokens_count, args.cols, kAddNs,
            [&](int64_t begin, int64_t end) { table_.elementwise->add(args, begin, end); });
  }
  void Scale(const ScaleArgs& args) override {
    const double cost = args.softcap != 0.0f ? kSoftCapNs : kScaleNs;
    ForRows(args.tokens_count, args.cols, cost,
            [&](int64_t begin, int64_t end) { table_.elementwise->scale(args, begin, end); });
  }
  void StoreKv(const StoreKvArgs& args) override { attention_.Store(args); }
  void Attention(const AttentionArgs& args) override { attention_.Run(args); }

 private:
  /// body(begin, end) over all rows, in tasks of at least kTaskNs.
  template <typename Body>
  void ForRows(int64_t rows, int64_t cols, double value_ns, Body&& body) {
    const double row_ns = static_cast<double>(cols) * value_ns;
    const auto wanted = static_cast<int64_t>(kTaskNs / (row_ns + 1.0)) + 1;
    const int64_t even = (rows + 4 * pool_.size() - 1) / (4 * pool_.size());
    const int64_t chunk = std::max(wanted, even);
    pool_.ParallelFor((rows + chunk - 1) / chunk, [&](int64_t task, int) {
      body(task * chunk, std::min(rows, (task + 1) * chunk));
    });
  }

  const cpu::KernelTable table_;
  ThreadPool& pool_;
  cpu::Arena arena_;
  cpu::MatmulDriver matmul_;
  cpu::AttentionDriver attention_;
};

}  // namespace

std::unique_ptr<Backend> MakeAvx2Backend(ThreadPool& pool) {
  const cpu::KernelTable table{"avx2", &cpu::kMatmulAvx2, &cpu::kElementwiseAvx2,
                               &cpu::kAttentionAvx2};
  return std::make_unique<CpuBackend>(table, pool);
}

std::unique_ptr<Backend> MakeAvx512Backend(ThreadPool& pool) {
  const cpu::KernelTable table{"avx512", &cpu::kMatmulAvx512, &cpu::kElementwiseAvx512,
                               &cpu::kAttentionAvx512};
  return std::make_unique<CpuBackend>(table, pool);
}

}  // namespace kvasir::kernels
