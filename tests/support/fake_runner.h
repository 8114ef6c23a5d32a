// A runner without a model, for tests of what lies above it: the next token is a pure function of
// the choice's seed and its history, so that any test can work out what it will be.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "contract/runner.h"

namespace kvasir::test {

/// Draws FakeRunner::Token(seed, history). Answers logprobs and prompt_logprobs where asked, with
/// values that are as pure. Keeps no KV: what it draws does not depend on the cache.
class FakeRunner final : public Runner {
 public:
  /// Draws a token other than by the hash; returns an id below the vocabulary's size.
  using Draw = std::function<TokenId(uint64_t seed, std::span<const TokenId> history)>;
  /// Called at the start of each step, on the engine thread: may wait, throw, or look at the plan.
  using Hook = std::function<void(const StepPlan&)>;

  explicit FakeRunner(int64_t vocab_size) : vocab_size_(vocab_size) {}

  void set_draw(Draw draw) { draw_ = std::move(draw); }
  void set_hook(Hook hook) { hook_ = std::move(hook); }

  /// The token drawn after `history` by default.
  static TokenId Token(uint64_t seed, std::span<const TokenId> history, int64_t vocab_size) {
    uint64_t hash = seed;
    for (const TokenId token : history) hash = CombineSeeds(hash, static_cast<uint64_t>(token));
    return static_cast<TokenId>(Mix64(hash) % static_cast<uint64_t>(vocab_size));
  }

  StepResult Run(const StepPlan& plan) override {
    if (hook_) hook_(plan);
    StepResult result;
    for (const PlanItem& item : plan.items) {
      ItemResult& out = result.items.emplace_back();
      for (const SampleSlot& slot : item.samples) {
        const TokenId token =
            draw_ ? draw_(slot.seed, slot.history) : Token(slot.seed, slot.history, vocab_size_);
        SampledToken& sampled = out.samples.emplace_back();
        sampled.token = token;
        if (slot.params->logprobs >= 0) sampled.logprobs = Logprobs(token, slot.params->logprobs);
      }
      if (item.prompt_logprobs < 0) continue;
      for (const TokenId token : item.next_tokens) {
        out.prompt_logprobs.push_back(Logprobs(token, item.prompt_logprobs));
      }
    }
    return result;
  }

 private:
  TokenLogprobs Logprobs(TokenId token, int32_t top_count) const {
    TokenLogprobs logprobs;
    logprobs.token = token;
    logprobs.logprob = -0.5f;
    logprobs.rank = 1;
    for (int32_t k = 0; k < top_count; ++k) {
      logprobs.top.emplace_back(static_cast<TokenId>((token + k) % vocab_size_),
                                -0.5f - static_cast<float>(k));
    }
    return logprobs;
  }

  int64_t vocab_size_;
  Draw draw_;
  Hook hook_;
};

}  // namespace kvasir::test
