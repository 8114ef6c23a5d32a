// Drives a ModelRunner by hand-made step plans: a stand-in for scheduler and cache that hands out
// blocks in any order asked for, and remembers what every sequence was told.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "contract/step.h"
#include "runner/kv_plan.h"
#include "runner/model_runner.h"
#include "support/tiny_models.h"

namespace kvasir::test {

/// One request's single choice, and what came of it.
struct DrivenSequence {
  // The request:
  std::vector<TokenId> tokens;  ///< the prompt, later with the tokens drawn
  int64_t prompt_count = 0;
  int64_t output_count = 0;  ///< to draw in all
  SamplingParams params;
  uint64_t seed = 0;
  int32_t prompt_logprobs = -1;
  // The answer:
  std::vector<TokenLogprobs> prompt_scores;
  std::vector<TokenLogprobs> drawn_scores;
  std::optional<Error> error;
  // State:
  int64_t computed = 0;
  std::vector<std::vector<BlockId>> tables;  ///< one a cache group

  [[nodiscard]] int64_t known() const { return static_cast<int64_t>(tokens.size()); }
  [[nodiscard]] bool done() const {
    return error.has_value() || known() - prompt_count == output_count;
  }
};

/// The answers of two runs of one request are the same, bit for bit.
inline void ExpectSameAnswer(const DrivenSequence& a, const DrivenSequence& b) {
  ASSERT_EQ(a.error.has_value(), b.error.has_value());
  ASSERT_EQ(a.tokens, b.tokens);
  const auto same = [](const std::vector<TokenLogprobs>& x, const std::vector<TokenLogprobs>& y) {
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(x[i].token, y[i].token) << i;
      ASSERT_EQ(x[i].logprob, y[i].logprob) << i;
      ASSERT_EQ(x[i].rank, y[i].rank) << i;
      ASSERT_EQ(x[i].top, y[i].top) << i;
      ASSERT_EQ(x[i].selected, y[i].selected) << i;
    }
  };
  same(a.prompt_scores, b.prompt_scores);
  same(a.drawn_scores, b.drawn_scores);
}

class PlanDriver {
 public:
  /// `blocks_seed` shuffles the order in which blocks are handed out; 0 = ascending.
  PlanDriver(LoadedModel& loaded, DType kv_dtype, int64_t block_tokens, int64_t blocks_count,
             uint64_t blocks_seed)
      : cache_(runner::MakeCacheSpec(loaded.model->spec(), kv_dtype, block_tokens)) {
    cache_.blocks_count = blocks_count;
    runner::RunnerOptions options;
    options.cache = cache_;
    options.kv_dtype = kv_dtype;
    auto made = runner::ModelRunner::Create(*loaded.model, *loaded.pool, options);
    runner_ = std::move(made).value();
    for (int64_t block = blocks_count - 1; block >= 0; --block) {
      free_.push_back(static_cast<BlockId>(block));
    }
    if (blocks_seed == 0) return;
    Rng rng(blocks_seed);
    for (size_t i = free_.size(); i > 1; --i) std::swap(free_[i - 1], free_[rng.Below(i)]);
  }

  [[nodiscard]] runner::ModelRunner& runner() { return *runner_; }
  [[nodiscard]] const CacheSpec& cache() const { return cache_; }

  /// Adds the next `count` known tokens of `sequence` to the step. It must not move until Run.
  void Plan(DrivenSequence& sequence, int64_t count) {
    const int64_t end = sequence.computed + count;
    sequence.tables.resize(cache_.groups.size());
    PlanItem item;
    item.start = sequence.computed;
    item.tokens = std::span<const TokenId>(sequence.tokens)
                      .subspan(static_cast<size_t>(item.start), static_cast<size_t>(count));
    for (size_t group = 0; group < sequence.tables.size(); ++group) {
      std::vector<BlockId>& table = sequence.tables[group];
      while (static_cast<int64_t>(table.size()) * cache_.block_tokens < end) {
        table.push_back(TakeBlock());
      }
      GiveBackBehindWindow(cache_.groups[group], sequence.computed, table);
      item.block_tables.emplace_back(table);
    }
    if (end == sequence.known() && !sequence.done()) {
      item.samples.push_back(
          {&sequence.params, sequence.seed, sequence.tokens, sequence.prompt_count});
    }
    if (sequence.prompt_logprobs >= 0 && item.start < sequence.prompt_count) {
      item.prompt_logprobs = sequence.prompt_logprobs;
      const int64_t last = std::min(end + 1, sequence.prompt_count);
      item.next_tokens = std::span<const TokenId>(sequence.tokens)
                             .subspan(static_cast<size_t>(item.start + 1),
                                      static_cast<size_t>(last - item.start - 1));
    }
    plan_.items.push_back(std::move(item));
    planned_.push_back(&sequence);
  }

  /// Moves one of the sequence's blocks to another place at the beginning of the step.
  void PlanMove(DrivenSequence& sequence, size_t group, size_t entry) {
    BlockId& block = sequence.tables[group][entry];
    if (block == kNoBlock) return;
    const BlockId to = TakeBlock();
    plan_.copies.push_back({block, to});
    block = to;  // the old one stays taken: nothing may be stored over it before the copy
  }

  void Run() {
    StepResult result = runner_->Run(plan_);
    ASSERT_EQ(result.items.size(), planned_.size());
    for (size_t i = 0; i < planned_.size(); ++i) {
      DrivenSequence& sequence = *planned_[i];
      ItemResult& item = result.items[i];
      if (item.error) {
        sequence.error = item.error;
        continue;
      }
      ASSERT_EQ(item.samples.size(), plan_.items[i].samples.size());
      sequence.computed += static_cast<int64_t>(plan_.items[i].tokens.size());
      for (TokenLogprobs& score : item.prompt_logprobs) {
        sequence.prompt_scores.push_back(std::move(score));
      }
      for (SampledToken& sampled : item.samples) {
        sequence.tokens.push_back(sampled.token);
        if (sampled.logprobs) sequence.drawn_scores.push_back(*std::move(sampled.logprobs));
      }
    }
    plan_ = {};
    planned_.clear();
  }

  void Release(DrivenSequence& sequence) {
    for (std::vector<BlockId>& table : sequence.tables) {
      for (const BlockId block : table) {
        if (block != kNoBlock) free_.push_back(block);
      }
      table.clear();
    }
    sequence.computed = 0;
  }

 private:
  BlockId TakeBlock() {
    KVASIR_CHECK(!free_.empty());
    const BlockId block = free_.back();
    free_.pop_back();
    return block;
  }

  void GiveBackBehindWindow(const CacheGroupSpec& group, int64_t computed,
                            std::vector<BlockId>& table) {
    if (group.kind == CacheGroupSpec::Kind::kFull) return;
    const int64_t first_read = computed - group.window_tokens + 1;
    for (size_t entry = 0; entry < table.size(); ++entry) {
      if (static_cast<int64_t>(entry + 1) * cache_.block_tokens > first_read) break;
      if (table[entry] == kNoBlock) continue;
      free_.insert(free_.begin(), table[entry]);
      table[entry] = kNoBlock;
    }
  }

  CacheSpec cache_;
  std::unique_ptr<runner::ModelRunner> runner_;
  std::vector<BlockId> free_;
  StepPlan plan_;
  std::vector<DrivenSequence*> planned_;
};

}  // namespace kvasir::test
