// Random users in front of the real scheduler and cache, with a modelled runner behind them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/engine_core.h"
#include "shadow_runner.h"

namespace kvasir::simulation {

struct SimulationConfig {
  engine::EngineConfig engine;
  engine::HashOptions hashing;
  ShadowFaults faults;
  uint64_t seed = 0;
  int64_t prompt_tokens_max = 40;
  int64_t output_tokens_max = 16;
  int32_t choices_max = 4;
  double submit_chance = 0.3;   ///< before each step
  double cancel_chance = 0.03;  ///< before each step, of one request
  double prompt_logprobs_chance = 0.05;
  int64_t priorities_count = 3;
  /// No request may take more steps than this.
  int64_t steps_max = 4000;
};

/// What one request was told, and what it must be told.
class Client final : public RequestListener {
 public:
  explicit Client(Request request) : request_(std::move(request)) {
    heard_.resize(static_cast<size_t>(request_.n));
  }

  void OnEvent(TokenEvent event) override {
    Heard& heard = heard_[static_cast<size_t>(event.index)];
    EXPECT_FALSE(cancelled) << "an event after the cancel";
    EXPECT_EQ(heard.finish, FinishReason::kNone) << "an event after the last one";
    if (event.token.has_value()) heard.tokens.push_back(*event.token);
    heard.finish = event.finish;
    heard.stop_token = event.stop_token;
    heard.error = event.error.message;
    EXPECT_GE(event.queue_ns, 0);
    EXPECT_GE(event.prefill_ns, 0);
    EXPECT_GE(event.decode_ns, 0);
    prompt_heard_ =
        prompt_heard_ || event.token.has_value() || event.finish == FinishReason::kLength;
    if (first_event_) {
      cached_tokens = event.cached_tokens;
      prompt_logprobs_ = std::move(event.prompt_logprobs);
    } else {
      EXPECT_EQ(event.cached_tokens, 0);
      EXPECT_TRUE(event.prompt_logprobs.empty());
    }
    first_event_ = false;
    EXPECT_EQ(event.finish == FinishReason::kError, !event.error.message.empty());
    if (event.finish != FinishReason::kNone) ++ended_count_;
  }

  [[nodiscard]] bool ended() const { return ended_count_ == request_.n || cancelled; }
  [[nodiscard]] const Request& request() const { return request_; }
  [[nodiscard]] bool finished(int32_t choice) const {
    return heard_[static_cast<size_t>(choice)].finish != FinishReason::kNone;
  }
  /// How a choice ended, kNone where it has not, kAbort where it was cancelled.
  [[nodiscard]] FinishReason finish(int32_t choice) const {
    return cancelled ? FinishReason::kAbort : heard_[static_cast<size_t>(choice)].finish;
  }
  [[nodiscard]] const std::string& error(int32_t choice) const {
    return heard_[static_cast<size_t>(choice)].error;
  }
  void NoteChoiceCancelled(int32_t choice) {
    heard_[static_cast<size_t>(choice)].finish = FinishReason::kAbort;
    ++ended_count_;
  }

  /// Prompt and answer, as the next turn of a conversation begins.
  [[nodiscard]] std::vector<TokenId> History() const {
    std::vector<TokenId> history = request_.prompt;
    history.insert(history.end(), heard_[0].tokens.begin(), heard_[0].tokens.end());
    return history;
  }

  /// Compares with what the request draws when it is alone in the world.
  void CheckAgainstAlone(int64_t vocab_size, int64_t block_tokens) const {
    for (int32_t i = 0; i < request_.n; ++i) CheckChoice(i, vocab_size);
    EXPECT_LT(cached_tokens, static_cast<int64_t>(request_.prompt.size()));
    EXPECT_EQ(cached_tokens % block_tokens, 0);
    if (request_.prompt_logprobs < 0 || !prompt_heard_) {
      EXPECT_TRUE(prompt_logprobs_.empty());
      return;
    }
    EXPECT_EQ(cached_tokens, 0);
    ASSERT_EQ(prompt_logprobs_.size(), request_.prompt.size() - 1);
    uint64_t history = kEmptyHistory;
    for (size_t i = 0; i + 1 < request_.prompt.size(); ++i) {
      history = ExtendHistory(history, request_.prompt[i]);
      EXPECT_EQ(prompt_logprobs_[i].token, request_.prompt[i + 1]);
      EXPECT_EQ(prompt_logprobs_[i].logprob, PromptLogprob(history, request_.prompt[i + 1]));
    }
  }

  bool cancelled = false;
  int64_t cached_tokens = 0;
  int64_t submitted_step = 0;

 private:
  struct Heard {
    std::vector<TokenId> tokens;
    FinishReason finish = FinishReason::kNone;
    std::optional<TokenId> stop_token;
    std::string error;
  };

  void CheckChoice(int32_t index, int64_t vocab_size) const {
    const Heard& heard = heard_[static_cast<size_t>(index)];
    const uint64_t seed = index == 0
                              ? request_.sampling.seed
                              : CombineSeeds(request_.sampling.seed, static_cast<uint64_t>(index));
    uint64_t history = kEmptyHistory;
    for (const TokenId token : request_.prompt) history = ExtendHistory(history, token);
    std::vector<TokenId> alone;
    FinishReason finish = FinishReason::kLength;
    while (static_cast<int64_t>(alone.size()) < request_.max_tokens) {
      const TokenId token = DrawAfter(history, seed, request_.sampling,
                                      static_cast<int64_t>(alone.size()), vocab_size);
      alone.push_back(token);
      history = ExtendHistory(history, token);
      if (std::ranges::find(request_.sampling.stop_token_ids, token) !=
          request_.sampling.stop_token_ids.end()) {
        finish = FinishReason::kStop;
        break;
      }
    }
    if (heard.finish == FinishReason::kStop || heard.finish == FinishReason::kLength) {
      EXPECT_EQ(heard.finish, finish);
      EXPECT_EQ(heard.tokens, alone);
      EXPECT_EQ(heard.stop_token.has_value(), finish == FinishReason::kStop);
    } else {
      // Ended early: what was heard so far is right.
      ASSERT_LE(heard.tokens.size(), alone.size());
      EXPECT_TRUE(std::equal(heard.tokens.begin(), heard.tokens.end(), alone.begin()));
    }
  }

  Request request_;
  std::vector<Heard> heard_;
  std::vector<TokenLogprobs> prompt_logprobs_;
  bool first_event_ = true;
  bool prompt_heard_ = false;
  int64_t ended_count_ = 0;
};

class Simulation {
 public:
  explicit Simulation(const SimulationConfig& config)
      : config_(config), rng_(config.seed), sentences_(MakeSentences(config, rng_)) {
    SetLogLevel(LogLevel::kOff);  // thousands of steps fail on purpose
    auto runner = std::make_unique<ShadowRunner>(config.engine.cache, config.engine.vocab_size,
                                                 config.faults, config.seed + 1);
    runner_ = runner.get();
    core_ = std::make_unique<engine::EngineCore>(config.engine, std::move(runner), &clock_,
                                                 config.hashing);
  }

  /// Random users for `steps`, then the rest to its end. Stops at the first failure.
  void Run(int64_t steps) {
    const int64_t last = step_ + steps;
    while (step_ < last && !testing::Test::HasFailure()) {
      if (rng_.Chance(config_.submit_chance)) Submit();
      if (rng_.Chance(config_.cancel_chance)) CancelSomething();
      Step();
    }
    for (int64_t i = 0; core_->has_work() && !testing::Test::HasFailure(); ++i) {
      ASSERT_LT(i, config_.steps_max) << "the rest does not end";
      Step();
    }
    if (!testing::Test::HasFailure()) CheckEnd();
  }

  [[nodiscard]] const engine::EngineCore& core() const { return *core_; }
  /// The most steps that any request has taken.
  [[nodiscard]] int64_t longest_request_steps() const { return longest_request_steps_; }

 private:
  static constexpr int64_t kSentences = 4;

  static std::vector<std::vector<TokenId>> MakeSentences(const SimulationConfig& config, Rng& rng) {
    std::vector<std::vector<TokenId>> sentences(kSentences);
    for (std::vector<TokenId>& sentence : sentences) {
      for (int64_t i = 0; i < config.prompt_tokens_max; ++i) {
        sentence.push_back(RandomToken(config, rng));
      }
    }
    // Two begin alike and part in the middle.
    std::copy_n(sentences[0].begin(), config.prompt_tokens_max / 2, sentences[1].begin());
    return sentences;
  }

  static TokenId RandomToken(const SimulationConfig& config, Rng& rng) {
    return static_cast<TokenId>(rng.Below(static_cast<uint64_t>(config.engine.vocab_size)));
  }

  Request RandomRequest() {
    Request request;
    const int64_t length = rng_.Between(1, config_.prompt_tokens_max);
    const std::vector<TokenId>& sentence = sentences_[rng_.Below(sentences_.size())];
    const auto longest = std::min(length, static_cast<int64_t>(sentence.size()));
    const int64_t common = rng_.Chance(0.7) ? rng_.Between(0, longest) : 0;
    request.prompt.assign(sentence.begin(), sentence.begin() + common);
    while (static_cast<int64_t>(request.prompt.size()) < length) {
      request.prompt.push_back(RandomToken(config_, rng_));
    }
    request.max_tokens = rng_.Chance(0.05) ? 0 : rng_.Between(1, config_.output_tokens_max);
    request.n = rng_.Chance(0.3) ? static_cast<int32_t>(rng_.Between(1, config_.choices_max)) : 1;
    request.priority = rng_.Between(0, config_.priorities_count - 1);
    if (rng_.Chance(0.3)) request.cache_salt = rng_.Chance(0.5) ? "salt" : "other";
    if (rng_.Chance(config_.prompt_logprobs_chance)) request.prompt_logprobs = 1;
    request.sampling.seed = rng_.Below(4);
    if (rng_.Chance(0.7)) request.sampling.stop_token_ids = {1, 0};
    if (rng_.Chance(0.3)) request.sampling.min_tokens = rng_.Between(0, request.max_tokens);
    return request;
  }

  void Submit() {
    auto client = std::make_shared<Client>(RandomRequest());
    if (!core_->Check(client->request()).ok()) {
      ++refused_count_;
      return;
    }
    if (!core_->EnterQueue(static_cast<int64_t>(client->request().prompt.size())).ok()) return;
    client->submitted_step = step_;
    const RequestId id = ++last_id_;
    core_->Enqueue(id, client->request(), client, clock_.Now());
    clients_.emplace(id, client);
    ++submitted_count_;
    submitted_choices_ += client->request().n;
  }

  void CancelSomething() {
    if (clients_.empty()) return;
    auto it = clients_.begin();
    std::advance(it, static_cast<int64_t>(rng_.Below(clients_.size())));
    const auto& [id, client] = *it;
    if (rng_.Chance(0.5)) {
      client->cancelled = true;
      core_->Cancel(id);
    } else {
      const auto choice =
          static_cast<int32_t>(rng_.Below(static_cast<uint64_t>(client->request().n)));
      if (!client->finished(choice)) {
        client->NoteChoiceCancelled(choice);
        core_->CancelChoice(id, choice);
      }
    }
    Settle(id);
    CheckInvariants();
  }

  void Step() {
    clock_.Advance(rng_.Between(0, 2) * kNsPerMs);
    core_->Step();
    ++step_;
    CheckInvariants();
    std::vector<RequestId> ended;
    for (const auto& [id, client] : clients_) {
      const int64_t steps = step_ - client->submitted_step;
      longest_request_steps_ = std::max(longest_request_steps_, steps);
      ASSERT_LT(steps, config_.steps_max) << "request " << id << " starves";
      if (client->ended()) ended.push_back(id);
    }
    for (const RequestId id : ended) Settle(id);
  }

  /// Verifies and forgets a client that has ended.
  void Settle(RequestId id) {
    const std::shared_ptr<Client> client = clients_.at(id);
    if (!client->ended()) return;
    client->CheckAgainstAlone(config_.engine.vocab_size, config_.engine.cache.block_tokens);
    if (rng_.Chance(0.3)) sentences_[rng_.Below(sentences_.size())] = client->History();
    clients_.erase(id);
  }

  void CheckInvariants() {
    const cache::KvCache& cache = core_->cache();
    open_.clear();
    owners_.assign(static_cast<size_t>(cache.pool().blocks_count()), nullptr);
    for (const schedule::Sequence* sequence : core_->scheduler().running()) {
      open_.push_back(&sequence->kv);
      for (const std::vector<BlockId>& table : sequence->kv.tables) {
        for (const BlockId block : table) {
          if (block == kNoBlock) continue;
          const std::string*& owner = owners_[static_cast<size_t>(block)];
          ASSERT_TRUE(owner == nullptr || *owner == sequence->salt) << "shared across salts";
          owner = &sequence->salt;
        }
      }
    }
    ASSERT_LE(static_cast<int64_t>(open_.size()), config_.engine.max_num_seqs);
    ASSERT_EQ(cache::FindBrokenInvariant(cache, open_), "") << "after step " << step_;
    // Whatever reads a free block from now on will be found out.
    for (const BlockId block : cache.pool().free_blocks()) runner_->Poison(block);
  }

  void CheckEnd() {
    EXPECT_TRUE(clients_.empty());
    const cache::BlockPool& pool = core_->cache().pool();
    EXPECT_EQ(pool.used_count(), 0);
    EXPECT_EQ(pool.free_count() + pool.cached_count(), pool.blocks_count());
    EXPECT_EQ(core_->requests_count(), 0);
    const engine::EngineMetrics& metrics = core_->metrics();
    EXPECT_EQ(metrics.requests_running.value(), 0);
    EXPECT_EQ(metrics.requests_waiting.value(), 0);
    EXPECT_EQ(metrics.requests_waiting_tokens.value(), 0);
    EXPECT_EQ(metrics.finished_stop.value() + metrics.finished_length.value() +
                  metrics.finished_abort.value() + metrics.finished_error.value(),
              submitted_choices_);
    EXPECT_GT(submitted_count_, 0);
  }

  SimulationConfig config_;
  Rng rng_;
  ManualClock clock_;
  std::vector<std::vector<TokenId>> sentences_;
  ShadowRunner* runner_ = nullptr;
  std::unique_ptr<engine::EngineCore> core_;
  std::map<RequestId, std::shared_ptr<Client>> clients_;
  RequestId last_id_ = 0;
  int64_t step_ = 0;
  int64_t submitted_count_ = 0;
  int64_t submitted_choices_ = 0;
  int64_t refused_count_ = 0;
  int64_t longest_request_steps_ = 0;
  std::vector<const cache::SequenceBlocks*> open_;
  std::vector<const std::string*> owners_;
};

}  // namespace kvasir::simulation
