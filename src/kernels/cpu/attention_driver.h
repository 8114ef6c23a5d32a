// Cuts attention into items (sequence, tokens, kv head, ranges of positions) for the pool.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/scratch.h"

namespace kvasir::kernels::cpu {

class AttentionDriver {
 public:
  AttentionDriver(const AttentionKernels& kernels, ThreadPool& pool)
      : kernels_(kernels), pool_(pool), tasks_(static_cast<size_t>(pool.size())) {}

  void Store(const StoreKvArgs& args);
  void Run(const AttentionArgs& args);

 private:
  // Tokens [token_begin, token_end) of a sequence with query heads [head_begin, head_end), which
  // read one kv head.
  struct Tile {
    const AttentionSequence* sequence = nullptr;
    int64_t token_begin = 0;
    int64_t token_end = 0;
    int64_t head_begin = 0;
    int64_t head_end = 0;
    int64_t range_begin = 0;
    int64_t range_end = 0;
    double cost = 0.0;
    /// Of its partial results, one a (range, row); negative where one item does all ranges.
    int64_t partials = -1;

    [[nodiscard]] int64_t heads() const { return head_end - head_begin; }
    [[nodiscard]] int64_t rows() const { return (token_end - token_begin) * heads(); }
  };
  struct Item {
    size_t tile = 0;
    int64_t range_begin = 0;
    int64_t range_end = 0;
  };
  // Where a worker computes; `rows` are those of a tile.
  struct Space {
    float* q = nullptr;        ///< [rows][D] in chunks, as AttendTask wants
    float* scores = nullptr;   ///< [rows][kRangePositions]
    float* turned = nullptr;   ///< [D][16]
    float* out = nullptr;      ///< [rows][D] of a range
    float* max = nullptr;      ///< [rows] of a range
    float* sum = nullptr;      ///< [rows] of a range
    float* partial = nullptr;  ///< [rows] records of the ranges so far
  };

  void PlanTiles(const AttentionArgs& args);
  void PlanItems(const AttentionArgs& args);
  Space SpaceOf(const AttentionArgs& args, int worker) const;
  void RunItem(const AttentionArgs& args, const Item& item, int worker);
  void AttendRange(const AttentionArgs& args, const Tile& tile, int64_t range, int64_t range_end,
                   int64_t token_begin, int64_t token_end, const Space& space,
                   AttendTask& task) const;
  void FinishTile(const AttentionArgs& args, const Tile& tile, float* merged) const;

  const AttentionKernels& kernels_;
  ThreadPool& pool_;
  std::vector<Tile> tiles_;
  std::vector<Item> items_;
  std::vector<AttendTask> tasks_;  ///< one a worker
  Scratch space_;
  Scratch partials_;
  float* space_base_ = nullptr;
  float* partials_base_ = nullptr;
};

}  // namespace kvasir::kernels::cpu
