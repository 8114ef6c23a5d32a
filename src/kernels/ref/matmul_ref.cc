#include "kernels/ref/matmul_ref.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/ref/sums.h"

namespace kvasir::kernels::ref {
namespace {

// A task decodes this many weight rows once and meets all T rows of x in blocks of kTokensBlock: at
// K = 1536 both blocks are 196 KiB of doubles, which a second-level cache holds.
constexpr int64_t kRowsPerTask = 16;
constexpr int64_t kTokensBlock = 16;

// Rows [n, n + rows_count) of one output, for all T rows of x. `w` holds them, [rows_count, K].
class OutputRows {
 public:
  OutputRows(const double* x, const double* w, int64_t k_count, const MatmulOutput& output,
             int64_t n, int64_t rows_count)
      : x_(x), w_(w), k_count_(k_count), output_(output), n_(n), rows_count_(rows_count) {}

  void Run(int64_t tokens_count) const {
    for (int64_t block = 0; block < tokens_count; block += kTokensBlock) {
      const int64_t end = std::min(tokens_count, block + kTokensBlock);
      int64_t row = 0;
      for (; row + 2 <= rows_count_; row += 2) {
        int64_t t = block;
        for (; t + 2 <= end; t += 2) StoreTile(t, row);
        if (t == end) continue;
        StoreOne(t, row);
        StoreOne(t, row + 1);
      }
      if (row == rows_count_) continue;
      for (int64_t t = block; t < end; ++t) StoreOne(t, row);
    }
  }

 private:
  [[nodiscard]] const double* X(int64_t t) const { return x_ + t * k_count_; }
  [[nodiscard]] const double* W(int64_t row) const { return w_ + row * k_count_; }

  void StoreTile(int64_t t, int64_t row) const {
    const DotTile tile = DotTwoByTwo(X(t), X(t + 1), W(row), W(row + 1), k_count_);
    Store(t, row, tile.x0_w0);
    Store(t, row + 1, tile.x0_w1);
    Store(t + 1, row, tile.x1_w0);
    Store(t + 1, row + 1, tile.x1_w1);
  }
  void StoreOne(int64_t t, int64_t row) const { Store(t, row, Dot(X(t), W(row), k_count_)); }
  void Store(int64_t t, int64_t row, double sum) const {
    const int64_t n = n_ + row;
    const double bias = output_.bias == nullptr ? 0.0 : static_cast<double>(output_.bias[n]);
    output_.y[t * output_.ldy + n] = static_cast<float>(sum + bias);
  }

  const double* const x_;
  const double* const w_;
  const int64_t k_count_;
  const MatmulOutput& output_;
  const int64_t n_;
  const int64_t rows_count_;
};

}  // namespace

bool IsWeightFormat(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
    case DType::kBool:
      return false;
    default:
      return true;
  }
}

RefMatrix::RefMatrix(std::span<const TensorView> parts) : parts_(parts.begin(), parts.end()) {
  KVASIR_CHECK(!parts_.empty());
  dtype = parts_.front().dtype;
  cols = parts_.front().cols();
  for (const TensorView& part : parts_) {
    KVASIR_CHECK(part.dtype == dtype && part.cols() == cols, "parts {} {} and {} [{}]",
                 Info(dtype).name, cols, Info(part.dtype).name, ToString(part.shape));
    rows += part.rows();
  }
}

void RefMatrix::Decode(int64_t first, int64_t count, std::span<float> scratch, double* out) const {
  int64_t part_begin = 0;
  for (const TensorView& part : parts_) {
    const int64_t part_end = part_begin + part.rows();
    for (; count > 0 && first < part_end; ++first, --count, out += cols) {
      DequantizeRow(part, first - part_begin, scratch);
      std::copy(scratch.begin(), scratch.end(), out);
    }
    part_begin = part_end;
  }
  KVASIR_CHECK(count == 0);
}

void Gather(const GatherArgs& args) {
  const auto& matrix = static_cast<const RefMatrix&>(*args.weight);
  std::vector<float> scratch(static_cast<size_t>(matrix.cols));
  std::vector<double> decoded(scratch.size());
  for (size_t t = 0; t < args.rows.size(); ++t) {
    matrix.Decode(args.rows[t], 1, scratch, decoded.data());
    std::ranges::copy(scratch, args.y + static_cast<int64_t>(t) * args.ldy);
  }
}

void Matmul(const MatmulArgs& args, ThreadPool& pool) {
  if (args.tokens_count == 0 || args.outputs.empty()) return;
  const int64_t k_count = args.outputs.front().weight->cols;
  std::vector<int64_t> first_tasks = {0};  // of each output, then the end
  for (const MatmulOutput& output : args.outputs) {
    KVASIR_CHECK(output.weight->cols == k_count, "K {} and {}", k_count, output.weight->cols);
    const int64_t tasks = (output.weight->rows + kRowsPerTask - 1) / kRowsPerTask;
    first_tasks.push_back(first_tasks.back() + tasks);
  }

  std::vector<double> x(static_cast<size_t>(args.tokens_count * k_count));
  for (int64_t t = 0; t < args.tokens_count; ++t) {
    std::copy_n(args.x + t * args.ldx, k_count, x.data() + t * k_count);
  }
  struct Scratch {
    std::vector<float> decoded;
    std::vector<double> weights;
  };
  std::vector<Scratch> scratches(static_cast<size_t>(pool.size()));
  pool.ParallelFor(first_tasks.back(), [&](int64_t task, int worker) {
    Scratch& scratch = scratches[static_cast<size_t>(worker)];
    scratch.decoded.resize(static_cast<size_t>(k_count));
    scratch.weights.resize(static_cast<size_t>(kRowsPerTask * k_count));
    const auto after = std::upper_bound(first_tasks.begin(), first_tasks.end(), task);
    const auto index = static_cast<size_t>(after - first_tasks.begin()) - 1;
    const MatmulOutput& output = args.outputs[index];
    const int64_t n = (task - first_tasks[index]) * kRowsPerTask;
    const int64_t rows_count = std::min(kRowsPerTask, output.weight->rows - n);
    static_cast<const RefMatrix*>(output.weight)
        ->Decode(n, rows_count, scratch.decoded, scratch.weights.data());
    OutputRows(x.data(), scratch.weights.data(), k_count, output, n, rows_count)
        .Run(args.tokens_count);
  });
}

}  // namespace kvasir::kernels::ref
