// A modelled runner that remembers what a real KV cache would hold, and verifies every read.
//
// The "KV" of a position is the token, the position and a hash of the whole history up to it. A
// token is drawn as a hash of the KV found at the last position, so an output is right only if
// paging, prefix reuse, copy-on-write, windows and preemption were all exact; and what one request
// must draw follows from its own tokens alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "contract/cache_spec.h"
#include "contract/runner.h"

namespace kvasir::simulation {

inline constexpr uint64_t kEmptyHistory = 0x5eed;

[[nodiscard]] inline uint64_t ExtendHistory(uint64_t history, TokenId token) {
  return CombineSeeds(history, static_cast<uint64_t>(token));
}

/// The token that follows a history. As a real sampler does, it masks stop tokens until min_tokens.
[[nodiscard]] inline TokenId DrawAfter(uint64_t history, uint64_t seed,
                                       const SamplingParams& params, int64_t output_count,
                                       int64_t vocab_size) {
  auto token =
      static_cast<TokenId>(CombineSeeds(history, seed) % static_cast<uint64_t>(vocab_size));
  if (output_count >= params.min_tokens) return token;
  while (std::ranges::find(params.stop_token_ids, token) != params.stop_token_ids.end()) {
    token = static_cast<TokenId>((token + 1) % vocab_size);
  }
  return token;
}

[[nodiscard]] inline float PromptLogprob(uint64_t history, TokenId next) {
  return -static_cast<float>(ExtendHistory(history, next) % 1000);
}

struct ShadowFaults {
  double throw_chance = 0;  ///< of each step: everything it should write is garbage, then a throw
  double item_error_chance = 0;  ///< of each item: its writes are garbage, and it says so
};

/// What is to go wrong in one step.
struct StepFault {
  std::function<void()> raise;  ///< throws, when everything that the step should write is garbage
  int64_t failed_item = -1;     ///< its writes are garbage, and it says so
};

class ShadowRunner final : public Runner {
 public:
  ShadowRunner(const CacheSpec& spec, int64_t vocab_size, const ShadowFaults& faults, uint64_t seed)
      : spec_(spec),
        vocab_size_(vocab_size),
        faults_(faults),
        rng_(seed),
        cells_(static_cast<size_t>(spec.blocks_count * spec.block_tokens)),
        writers_(static_cast<size_t>(spec.blocks_count), -1) {}

  /// Asked at the beginning of each step, beside the faults by chance.
  void set_script(std::function<StepFault(const StepPlan&)> script) { script_ = std::move(script); }

  StepResult Run(const StepPlan& plan) override {
    const StepFault fault = script_ ? script_(plan) : StepFault{};
    CheckCopies(plan);
    for (const BlockCopy& copy : plan.copies) {
      std::copy_n(BlockCells(copy.from), spec_.block_tokens, BlockCells(copy.to));
    }
    const bool by_chance = rng_.Chance(faults_.throw_chance);
    if (by_chance || fault.raise) {
      for (const BlockCopy& copy : plan.copies) Poison(copy.to);
      for (const PlanItem& item : plan.items) Scribble(item);
      if (fault.raise) fault.raise();
      throw std::runtime_error("modelled failure");
    }
    std::ranges::fill(writers_, -1);
    for (size_t i = 0; i < plan.items.size(); ++i) Write(plan.items[i], static_cast<int64_t>(i));
    StepResult result;
    for (const PlanItem& item : plan.items) {
      Verify(item);
      result.items.push_back(Draw(item));
    }
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const bool scripted = fault.failed_item == static_cast<int64_t>(i);
      if (!rng_.Chance(faults_.item_error_chance) && !scripted) continue;
      Scribble(plan.items[i]);
      result.items[i].error = MakeError(ErrorCode::kInternal, "modelled failure of an item");
    }
    return result;
  }

  /// Makes whatever the block holds unusable.
  void Poison(BlockId block) {
    std::fill_n(BlockCells(block), spec_.block_tokens, Cell{-1, -1, rng_.Next()});
  }

 private:
  struct Cell {
    TokenId token = -1;
    int32_t position = -1;
    uint64_t history = 0;  ///< of everything up to and with this position
  };

  Cell* BlockCells(BlockId block) {
    KVASIR_CHECK(block >= 0 && block < spec_.blocks_count, "block {} in a table", block);
    return cells_.data() + int64_t{block} * spec_.block_tokens;
  }
  Cell& CellAt(const PlanItem& item, size_t group, int64_t position) {
    const std::span<const BlockId> table = item.block_tables[group];
    const auto entry = static_cast<size_t>(position / spec_.block_tokens);
    KVASIR_CHECK(entry < table.size(), "position {} has no entry in a table of {}", position,
                 table.size());
    return BlockCells(table[entry])[position % spec_.block_tokens];
  }

  /// Copies are independent of each other, and each goes to a block that an item continues.
  void CheckCopies(const StepPlan& plan) const {
    for (size_t i = 0; i < plan.copies.size(); ++i) {
      for (size_t j = 0; j < plan.copies.size(); ++j) {
        KVASIR_CHECK(plan.copies[i].from != plan.copies[j].to, "the order of copies matters");
        KVASIR_CHECK(i == j || plan.copies[i].to != plan.copies[j].to, "two copies to one block");
      }
      const bool continued = std::ranges::any_of(plan.items, [&](const PlanItem& item) {
        if (item.start % spec_.block_tokens == 0) return false;
        const auto entry = static_cast<size_t>(item.start / spec_.block_tokens);
        return std::ranges::any_of(item.block_tables, [&](std::span<const BlockId> table) {
          return table[entry] == plan.copies[i].to;
        });
      });
      KVASIR_CHECK(continued, "block {} is copied to and nobody continues it", plan.copies[i].to);
    }
  }

  void Write(const PlanItem& item, int64_t index) {
    KVASIR_CHECK(!item.tokens.empty() && item.block_tables.size() == spec_.groups.size());
    for (size_t g = 0; g < spec_.groups.size(); ++g) {
      uint64_t history = item.start == 0 ? kEmptyHistory : CellAt(item, g, item.start - 1).history;
      for (size_t i = 0; i < item.tokens.size(); ++i) {
        const int64_t position = item.start + static_cast<int64_t>(i);
        const BlockId block =
            item.block_tables[g][static_cast<size_t>(position / spec_.block_tokens)];
        history = ExtendHistory(history, item.tokens[i]);
        CellAt(item, g, position) = Cell{item.tokens[i], static_cast<int32_t>(position), history};
        int64_t& writer = writers_[static_cast<size_t>(block)];
        KVASIR_CHECK(writer < 0 || writer == (index << 8 | static_cast<int64_t>(g)),
                     "block {} is written by two", block);
        writer = index << 8 | static_cast<int64_t>(g);
      }
    }
  }

  /// Everything that the item's tokens may read is this very history's.
  void Verify(const PlanItem& item) {
    const int64_t end = item.start + static_cast<int64_t>(item.tokens.size());
    const std::span<const TokenId> known =
        item.samples.empty() ? std::span<const TokenId>() : item.samples[0].history;
    KVASIR_CHECK(known.empty() || static_cast<int64_t>(known.size()) == end);
    for (size_t g = 0; g < spec_.groups.size(); ++g) {
      const CacheGroupSpec& group = spec_.groups[g];
      const int64_t first = group.kind == CacheGroupSpec::Kind::kFull
                                ? 0
                                : std::max<int64_t>(0, item.start - group.window_tokens + 1);
      for (int64_t position = first; position < end; ++position) {
        const Cell& cell = CellAt(item, g, position);
        KVASIR_CHECK(cell.position == position, "position {} holds the KV of position {}", position,
                     cell.position);
        if (!known.empty()) KVASIR_CHECK(cell.token == known[static_cast<size_t>(position)]);
        if (position > first || position == 0) {
          const uint64_t before =
              position == 0 ? kEmptyHistory : CellAt(item, g, position - 1).history;
          KVASIR_CHECK(cell.history == ExtendHistory(before, cell.token),
                       "position {} belongs to another history", position);
        }
      }
      KVASIR_CHECK(CellAt(item, g, end - 1).history == CellAt(item, 0, end - 1).history,
                   "group {} has seen another history", g);
    }
    if (known.empty()) return;
    uint64_t history = kEmptyHistory;
    for (const TokenId token : known) history = ExtendHistory(history, token);
    KVASIR_CHECK(CellAt(item, 0, end - 1).history == history, "the history is not this request's");
  }

  ItemResult Draw(const PlanItem& item) {
    ItemResult result;
    const int64_t end = item.start + static_cast<int64_t>(item.tokens.size());
    for (const SampleSlot& slot : item.samples) {
      const int64_t output_count =
          static_cast<int64_t>(slot.history.size()) - slot.prompt_tokens_count;
      SampledToken& sampled = result.samples.emplace_back();
      sampled.token = DrawAfter(CellAt(item, 0, end - 1).history, slot.seed, *slot.params,
                                output_count, vocab_size_);
    }
    if (item.prompt_logprobs < 0) return result;
    for (size_t i = 0; i < item.next_tokens.size(); ++i) {
      const int64_t position = item.start + static_cast<int64_t>(i);
      TokenLogprobs& logprobs = result.prompt_logprobs.emplace_back();
      logprobs.token = item.next_tokens[i];
      logprobs.logprob = PromptLogprob(CellAt(item, 0, position).history, logprobs.token);
    }
    return result;
  }

  void Scribble(const PlanItem& item) {
    for (size_t g = 0; g < spec_.groups.size(); ++g) {
      for (size_t i = 0; i < item.tokens.size(); ++i) {
        CellAt(item, g, item.start + static_cast<int64_t>(i)) = Cell{-1, -1, rng_.Next()};
      }
    }
  }

  CacheSpec spec_;
  int64_t vocab_size_;
  ShadowFaults faults_;
  std::function<StepFault(const StepPlan&)> script_;
  Rng rng_;
  std::vector<Cell> cells_;
  std::vector<int64_t> writers_;  ///< item << 8 | group that wrote a block in this step, or -1
};

}  // namespace kvasir::simulation
