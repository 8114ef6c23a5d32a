// A runner that writes what a test wants written, when the test lets it.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "contract/runner.h"

namespace kvasir::server::test {

/// What the test and the runner share: the runner belongs to the engine.
class Script {
 public:
  /// Tokens that every choice gets, one after the other; the last one repeats.
  void SetTokens(std::vector<TokenId> tokens) {
    const std::lock_guard lock(mutex_);
    tokens_ = std::move(tokens);
  }
  /// The token at a position also depends on the choice: position i gives tokens[(i + seed) %
  /// size].
  void SetBySeed(bool by_seed) {
    const std::lock_guard lock(mutex_);
    by_seed_ = by_seed;
  }
  /// Steps that may run; more than ever needed unless a test closes the gate.
  void SetAllowed(int64_t steps) {
    const std::lock_guard lock(mutex_);
    allowed_ = steps;
    changed_.notify_all();
  }
  void Allow(int64_t more) {
    const std::lock_guard lock(mutex_);
    allowed_ += more;
    changed_.notify_all();
  }
  /// A step that draws output position `position` throws; -1: none does.
  void FailAt(int64_t position) {
    const std::lock_guard lock(mutex_);
    fail_at_ = position;
  }
  /// Steps that have begun; one more than steps() while the gate holds one.
  [[nodiscard]] int64_t entered() {
    const std::lock_guard lock(mutex_);
    return entered_;
  }
  [[nodiscard]] int64_t steps() {
    const std::lock_guard lock(mutex_);
    return steps_;
  }

 private:
  friend class ScriptRunner;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> tokens_ = {40};
  bool by_seed_ = false;
  int64_t allowed_ = int64_t{1} << 60;
  int64_t steps_ = 0;
  int64_t entered_ = 0;
  int64_t fail_at_ = -1;
};

class ScriptRunner final : public Runner {
 public:
  ScriptRunner(Script& script, int64_t vocab_size) : script_(script), vocab_size_(vocab_size) {}

  /// The log-probability that the runner reports for a token: distinct, and no round number.
  static float LogprobOf(TokenId token) { return -0.1f - 0.013f * static_cast<float>(token); }

  StepResult Run(const StepPlan& plan) override {
    std::unique_lock lock(script_.mutex_);
    ++script_.entered_;
    script_.changed_.wait(lock, [&] { return script_.steps_ < script_.allowed_; });
    ++script_.steps_;
    StepResult result;
    for (const PlanItem& item : plan.items) {
      ItemResult& out = result.items.emplace_back();
      for (const SampleSlot& slot : item.samples) {
        const int64_t position =
            static_cast<int64_t>(slot.history.size()) - slot.prompt_tokens_count;
        if (position == script_.fail_at_) throw std::runtime_error("a step that fails");
        SampledToken& sampled = out.samples.emplace_back();
        sampled.token = TokenAt(position, slot.seed);
        if (slot.params->logprobs >= 0) {
          sampled.logprobs = Logprobs(sampled.token, slot.params->logprobs);
        }
      }
      if (item.prompt_logprobs < 0) continue;
      for (const TokenId token : item.next_tokens) {
        out.prompt_logprobs.push_back(Logprobs(token, item.prompt_logprobs));
      }
    }
    return result;
  }

 private:
  TokenId TokenAt(int64_t position, uint64_t seed) const {
    const auto size = static_cast<int64_t>(script_.tokens_.size());
    if (script_.by_seed_) {
      return script_
          .tokens_[static_cast<size_t>((position + static_cast<int64_t>(seed % 1000)) % size)];
    }
    return script_.tokens_[static_cast<size_t>(std::min(position, size - 1))];
  }

  // The k most probable: a prefix of the vocabulary, as LogprobOf falls with the id.
  TokenLogprobs Logprobs(TokenId token, int32_t top_count) const {
    TokenLogprobs logprobs;
    logprobs.token = token;
    logprobs.logprob = LogprobOf(token);
    logprobs.rank = token + 1;
    for (TokenId id = 0; id < std::min<int64_t>(top_count, vocab_size_); ++id) {
      logprobs.top.emplace_back(id, LogprobOf(id));
    }
    return logprobs;
  }

  Script& script_;
  int64_t vocab_size_;
};

}  // namespace kvasir::server::test
