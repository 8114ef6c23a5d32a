// Cuts a matmul into tasks for the pool: quantizes or interleaves the input once for all outputs,
// then hands out chunks of panels.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/scratch.h"
#include "kernels/matmul.h"

namespace kvasir::kernels::cpu {

class MatmulDriver {
 public:
  MatmulDriver(const MatmulKernels& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  /// All weights are PanelMatrix of these kernels' lanes.
  void Run(const MatmulArgs& args);

 private:
  struct Chunk {
    const MatmulOutput* output = nullptr;
    int64_t panel_begin = 0;
    int64_t panel_end = 0;
  };

  void Quantize(const MatmulArgs& args, int64_t cols);
  void Interleave(const MatmulArgs& args, int64_t cols);
  void PlanChunks(const MatmulArgs& args);
  void RunChunk(const MatmulArgs& args, const Chunk& chunk, std::byte* scratch);

  const MatmulKernels& kernels_;
  ThreadPool& pool_;
  std::vector<Chunk> chunks_;
  std::vector<SumsSpec> specs_;
  Scratch codes_;
  Scratch scales_;
  Scratch sums_[kSumsMax];
  Scratch interleaved_;
  Scratch widened_;
  const int8_t* x_codes_ = nullptr;
  const float* x_scales_ = nullptr;
  void* x_sums_[kSumsMax] = {};
  const float* x_dense_ = nullptr;
};

}  // namespace kvasir::kernels::cpu
