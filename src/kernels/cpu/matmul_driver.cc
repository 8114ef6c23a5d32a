#include "kernels/cpu/matmul_driver.h"

#include <algorithm>

#include "base/check.h"

namespace kvasir::kernels::cpu {
namespace {

// What a core does in a microsecond, roughly and on the low side: it only sizes tasks.
constexpr double kBytesAMicrosecond = 15'000;
constexpr double kMacsAMicrosecond = 60'000;
// Work below which a second thread costs more than it saves (waking and meeting it).
constexpr double kAloneMicroseconds = 2.0;
constexpr double kChunkMicroseconds = 1.0;
// Chunks a thread at most: enough that all end together though cores are never equally fast.
constexpr int64_t kChunksAThread = 6;
// Values of the input that are prepared by one task.
constexpr int64_t kPrepareValues = int64_t{16} << 10;

const PanelMatrix& PanelsOf(const MatmulOutput& output) {
  return static_cast<const PanelMatrix&>(*output.weight);
}

// The sums that a format needs, if any.
bool NeedsSums(const PanelMatrix& matrix, SumsSpec* spec) {
  const PanelFormat format = PanelFormatOf(matrix.dtype);
  spec->groups = 32 / format.group();
  spec->is_float = format.has_min();
  spec->zero = format.zero;
  // Signed bytes are multiplied as unsigned ones with 128 added where the instruction wants so.
  if (format.signed_bytes && matrix.lanes == 16) spec->zero = 128;
  return spec->is_float || spec->zero != 0;
}

double Microseconds(const PanelMatrix& matrix, int64_t panels, int64_t tokens) {
  const auto count = static_cast<double>(panels);
  const double bytes = count * static_cast<double>(matrix.panel_bytes);
  const double macs = count * static_cast<double>(matrix.lanes * matrix.cols * tokens);
  return std::max(bytes / kBytesAMicrosecond, macs / kMacsAMicrosecond);
}

}  // namespace

void MatmulDriver::Quantize(const MatmulArgs& args, int64_t cols) {
  const int64_t tokens = args.tokens_count;
  const int64_t blocks = cols / 32;
  const Tiling tiling(tokens, kernels_.codes_tile_max);
  auto* codes = codes_.Get<int8_t>(tokens * cols);
  auto* scales = scales_.Get<float>(tokens * blocks);
  x_codes_ = codes;
  x_scales_ = scales;
  for (size_t i = 0; i < specs_.size(); ++i) {
    x_sums_[i] = sums_[i].Get<float>(tokens * blocks * specs_[i].groups);
  }
  const auto quantize = [&](int64_t tile_begin, int64_t tile_end) {
    for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
      const int64_t begin = tiling.Begin(tile);
      QuantizeTask task;
      task.x = args.x + begin * args.ldx;
      task.ldx = args.ldx;
      task.tokens_count = tiling.Begin(tile + 1) - begin;
      task.blocks_count = blocks;
      task.codes = codes + begin * cols;
      task.scales = scales + begin * blocks;
      task.sums_count = static_cast<int>(specs_.size());
      for (size_t i = 0; i < specs_.size(); ++i) {
        task.specs[i] = specs_[i];
        task.sums[i] = static_cast<float*>(x_sums_[i]) + begin * blocks * specs_[i].groups;
      }
      kernels_.quantize(task);
    }
  };
  const int64_t chunk = std::max<int64_t>(1, kPrepareValues / (cols * kernels_.codes_tile_max));
  pool_.ParallelFor((tiling.tiles_count + chunk - 1) / chunk, [&](int64_t task, int) {
    quantize(task * chunk, std::min(tiling.tiles_count, (task + 1) * chunk));
  });
}

void MatmulDriver::Interleave(const MatmulArgs& args, int64_t cols) {
  if (args.tokens_count == 1) {
    x_dense_ = args.x;
    return;
  }
  const Tiling tiling(args.tokens_count, kernels_.dense_tile_max);
  auto* out = interleaved_.Get<float>(args.tokens_count * cols);
  x_dense_ = out;
  const int64_t chunk = std::max<int64_t>(1, kPrepareValues / (cols * kernels_.dense_tile_max));
  pool_.ParallelFor((tiling.tiles_count + chunk - 1) / chunk, [&](int64_t task, int) {
    const int64_t last = std::min(tiling.tiles_count, (task + 1) * chunk);
    for (int64_t tile = task * chunk; tile < last; ++tile) {
      const int64_t begin = tiling.Begin(tile);
      kernels_.interleave(args.x + begin * args.ldx, args.ldx, tiling.Begin(tile + 1) - begin, cols,
                          out + begin * cols);
    }
  });
}

void MatmulDriver::PlanChunks(const MatmulArgs& args) {
  double total = 0.0;
  for (const MatmulOutput& output : args.outputs) {
    const PanelMatrix& matrix = PanelsOf(output);
    total += Microseconds(matrix, matrix.panels_count, args.tokens_count);
  }
  const int64_t threads = pool_.size();
  double target = total;
  if (threads > 1 && total > kAloneMicroseconds) {
    target = std::max(kChunkMicroseconds, total / static_cast<double>(threads * kChunksAThread));
  }
  chunks_.clear();
  for (const MatmulOutput& output : args.outputs) {
    const PanelMatrix& matrix = PanelsOf(output);
    const double one = Microseconds(matrix, 1, args.tokens_count);
    // A multiple of 4 suits the dense kernels, which take 4 panels side by side.
    constexpr int64_t kStep = 4;
    const auto wanted = static_cast<int64_t>(std::max(1.0, target / one / kStep + 0.5)) * kStep;
    for (int64_t begin = 0; begin < matrix.panels_count; begin += wanted) {
      chunks_.push_back({&output, begin, std::min(matrix.panels_count, begin + wanted)});
    }
  }
}

void MatmulDriver::RunChunk(const MatmulArgs& args, const Chunk& chunk, std::byte* scratch) {
  const PanelMatrix& matrix = PanelsOf(*chunk.output);
  if (IsDense(matrix.dtype)) {
    DenseTask task;
    task.panels = matrix.panel(0);
    task.panel_bytes = matrix.panel_bytes;
    task.panel_begin = chunk.panel_begin;
    task.panel_end = chunk.panel_end;
    task.rows = matrix.rows;
    task.cols = matrix.cols;
    task.tokens_count = args.tokens_count;
    task.x = x_dense_;
    task.bias = chunk.output->bias;
    task.y = chunk.output->y;
    task.ldy = chunk.output->ldy;
    kernels_.dense(matrix.dtype, task);
    return;
  }
  CodesTask task;
  task.panels = matrix.panel(0);
  task.panel_bytes = matrix.panel_bytes;
  task.codes_offset = matrix.codes_offset;
  task.panel_begin = chunk.panel_begin;
  task.panel_end = chunk.panel_end;
  task.rows = matrix.rows;
  task.blocks_count = matrix.cols / 32;
  task.tokens_count = args.tokens_count;
  task.x_codes = x_codes_;
  task.x_scales = x_scales_;
  SumsSpec spec;
  if (NeedsSums(matrix, &spec)) {
    const auto at = std::find(specs_.begin(), specs_.end(), spec) - specs_.begin();
    task.x_sums = x_sums_[at];
  }
  task.bias = chunk.output->bias;
  task.y = chunk.output->y;
  task.ldy = chunk.output->ldy;
  task.scratch = scratch;
  kernels_.codes(matrix.dtype, task);
}

void MatmulDriver::Run(const MatmulArgs& args) {
  if (args.tokens_count == 0 || args.outputs.empty()) return;
  const int64_t cols = PanelsOf(args.outputs[0]).cols;
  bool has_dense = false;
  bool has_codes = false;
  specs_.clear();
  for (const MatmulOutput& output : args.outputs) {
    const PanelMatrix& matrix = PanelsOf(output);
    KVASIR_CHECK(matrix.cols == cols && matrix.lanes == kernels_.lanes,
                 "weights of {} columns in panels of {} rows beside {} and {}", matrix.cols,
                 matrix.lanes, cols, kernels_.lanes);
    has_dense |= IsDense(matrix.dtype);
    has_codes |= !IsDense(matrix.dtype);
    SumsSpec spec;
    if (!IsDense(matrix.dtype) && NeedsSums(matrix, &spec) &&
        std::find(specs_.begin(), specs_.end(), spec) == specs_.end()) {
      specs_.push_back(spec);
    }
  }
  KVASIR_CHECK(specs_.size() <= static_cast<size_t>(kSumsMax));
  if (has_codes) Quantize(args, cols);
  if (has_dense) Interleave(args, cols);
  PlanChunks(args);
  const int64_t widened_bytes = CodesScratchBytes(kernels_.lanes, cols / 32);
  auto* widened = widened_.Get<std::byte>(widened_bytes * pool_.size());
  pool_.ParallelFor(static_cast<int64_t>(chunks_.size()), [&](int64_t task, int worker) {
    RunChunk(args, chunks_[static_cast<size_t>(task)], widened + widened_bytes * worker);
  });
}

}  // namespace kvasir::kernels::cpu
