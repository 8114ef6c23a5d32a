// A small paged KV storage for tests: one pool a cache group, blocks handed out in shuffled order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "kernels/attention.h"
#include "model/model.h"
#include "model/spec.h"

namespace kvasir::test {

/// KV of all layers of one model. Freshly allocated bytes hold NaN, so a read of a position that
/// was not stored shows.
class PagedKv {
 public:
  PagedKv(const model::ModelSpec& spec, int64_t blocks_count, uint64_t seed,
          int64_t block_tokens = 16, DType dtype = DType::kF32);

  /// One a layer, as Model::Forward wants them.
  [[nodiscard]] std::span<const kernels::KvView> views() const { return views_; }
  [[nodiscard]] int64_t block_tokens() const { return block_tokens_; }
  [[nodiscard]] size_t groups_count() const { return free_.size(); }
  /// A block of the group that nobody has; fails the process where none is left.
  int32_t TakeBlock(size_t group);

 private:
  int64_t block_tokens_;
  std::vector<std::vector<std::byte>> pools_;  ///< [groups]
  std::vector<kernels::KvView> views_;         ///< [L]
  std::vector<std::vector<int32_t>> free_;     ///< [groups], shuffled
};

/// One sequence's tokens and blocks.
class TestSequence {
 public:
  explicit TestSequence(PagedKv& kv) : kv_(kv), tables_(kv.groups_count()) {}
  /// The next rows of a step: `tokens` behind all that were given before. Valid until the next
  /// call.
  model::ForwardSequence Next(std::span<const int32_t> tokens);

 private:
  PagedKv& kv_;
  int64_t computed_ = 0;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<std::span<const int32_t>> spans_;
};

/// log softmax(logits)[token], in double.
[[nodiscard]] double LogProb(std::span<const float> logits, int32_t token);
/// Index of the largest (the first, where equal).
[[nodiscard]] int32_t ArgMax(std::span<const float> logits);

}  // namespace kvasir::test
