// One step: the plan that the scheduler makes, and the result that the runner returns. There are no
// prefill and decode phases; a sequence has tokens known and tokens computed, and an item closes
// (part of) the gap.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "contract/request.h"

namespace kvasir {

/// One token to draw from the logits after the item's last token.
struct SampleSlot {
  const SamplingParams* params = nullptr;
  uint64_t seed = 0;  ///< of this choice's stream; the draw's position is history.size()
  std::span<const TokenId> history;  ///< prompt and output so far, the item's last token last
  int64_t prompt_tokens_count = 0;   ///< how many of history are the prompt
};

/// A run of consecutive tokens of one sequence. Spans point into the engine's state and live as
/// long as the step.
struct PlanItem {
  std::span<const TokenId> tokens;  ///< ids at positions start, start + 1, ...
  int64_t start = 0;                ///< tokens of the sequence computed before this step
  /// One table a cache group: entry p / block_tokens holds position p's KV. kNoBlock behind a
  /// window.
  std::vector<std::span<const BlockId>> block_tables;
  /// Empty unless the item ends with the last known token. Several where n > 1 choices start here.
  std::vector<SampleSlot> samples;
  /// -1, or: for each token of the item, the logprobs of `next_tokens[i]` with the top k.
  int32_t prompt_logprobs = -1;
  /// The prompt's tokens after each of `tokens`; one shorter where the item ends the prompt.
  std::span<const TokenId> next_tokens;
};

/// Copy-on-write: the whole block `from` to `to`, done before anything of the step is computed.
struct BlockCopy {
  BlockId from = kNoBlock;
  BlockId to = kNoBlock;
};

struct StepPlan {
  std::vector<BlockCopy> copies;
  std::vector<PlanItem> items;

  [[nodiscard]] int64_t TokensCount() const {
    int64_t count = 0;
    for (const PlanItem& item : items) count += static_cast<int64_t>(item.tokens.size());
    return count;
  }
};

struct SampledToken {
  TokenId token = 0;
  std::optional<TokenLogprobs> logprobs;
};

struct ItemResult {
  std::vector<SampledToken> samples;           ///< as many as the item's slots
  std::vector<TokenLogprobs> prompt_logprobs;  ///< as many as the item's next_tokens, where asked
  std::optional<Error> error;                  ///< this item alone failed; the others are whole
};

struct StepResult {
  std::vector<ItemResult> items;  ///< as many as the plan's, in its order
};

}  // namespace kvasir
