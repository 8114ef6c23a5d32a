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

template <int kT, int kN>
void Tile(const double* x, const double* w, int64_t k_count, const MatmulOutput& output, int64_t t,
          int64_t n) {
  double sums[kT][kN];
  DotTile<kT, kN>(x, k_count, w, k_count, k_count, sums);
  for (int i = 0; i < kT; ++i) {
    for (int j = 0; j < kN; ++j) {
      const double bias = output.bias == nullptr ? 0.0 : static_cast<double>(output.bias[n + j]);
      output.y[(t + i) * output.ldy + n + j] = static_cast<float>(sums[i][j] + bias);
    }
  }
}

// Rows [n, n + rows_count) of one output, for all T rows of x.
void Rows(const double* x, int64_t tokens_count, const double* w, int64_t k_count,
          const MatmulOutput& output, int64_t n, int64_t rows_count) {
  for (int64_t block = 0; block < tokens_count; block += kTokensBlock) {
    const int64_t block_end = std::min(tokens_count, block + kTokensBlock);
    int64_t row = 0;
    for (; row + 2 <= rows_count; row += 2) {
      const double* w_rows = w + row * k_count;
      int64_t t = block;
      for (; t + 2 <= block_end; t += 2) {
        Tile<2, 2>(x + t * k_count, w_rows, k_count, output, t, n + row);
      }
      if (t < block_end) Tile<1, 2>(x + t * k_count, w_rows, k_count, output, t, n + row);
    }
    if (row == rows_count) continue;
    for (int64_t t = block; t < block_end; ++t) {
      Tile<1, 1>(x + t * k_count, w + row * k_count, k_count, output, t, n + row);
    }
  }
}

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
    Rows(x.data(), args.tokens_count, scratch.weights.data(), k_count, output, n, rows_count);
  });
}

}  // namespace kvasir::kernels::ref
