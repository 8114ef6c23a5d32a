// The engine without its thread, step by step.
#include "engine/engine_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "collector.h"
#include "support/fake_runner.h"

namespace kvasir::engine {
namespace {

using test::Collector;
using test::FakeRunner;

constexpr int64_t kVocab = 1000;
using Tokens = std::vector<TokenId>;

EngineConfig SmallConfig() {
  EngineConfig config;
  config.cache = CacheSpec{.block_tokens = 4, .block_bytes = 0, .blocks_count = 64, .groups = {{}}};
  config.vocab_size = kVocab;
  config.max_model_len = 128;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 32;
  return config;
}

Request MakeRequest(Tokens prompt, int64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.seed = 7;
  return request;
}

Tokens Expected(Tokens history, int64_t count, uint64_t seed = 7) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(FakeRunner::Token(seed, history, kVocab));
    history.push_back(tokens.back());
  }
  return tokens;
}

class Core {
 public:
  explicit Core(const EngineConfig& config = SmallConfig()) {
    SetLogLevel(LogLevel::kOff);
    auto runner = std::make_unique<Wrapper>(this);
    core_ = std::make_unique<EngineCore>(config, std::move(runner), &clock_, HashOptions{});
  }

  std::shared_ptr<Collector> Submit(Request request) {
    auto listener = std::make_shared<Collector>(request.n);
    const Status valid = core_->Check(request);
    EXPECT_TRUE(valid.ok()) << (valid.ok() ? "" : valid.error().message);
    EXPECT_TRUE(core_->EnterQueue(static_cast<int64_t>(request.prompt.size())).ok());
    core_->Enqueue(++last_id, std::move(request), listener, clock_.Now());
    return listener;
  }
  void Step() { core_->Step(); }
  void Run() {
    while (core_->has_work()) core_->Step();
  }
  EngineCore* operator->() { return core_.get(); }
  const EngineMetrics& metrics() const { return core_->metrics(); }
  ManualClock& clock() { return clock_; }

  RequestId last_id = 0;
  FakeRunner fake{kVocab};
  /// Changes what the fake runner has returned.
  std::function<void(const StepPlan&, StepResult&)> after_run;

 private:
  class Wrapper final : public Runner {
   public:
    explicit Wrapper(Core* core) : core_(core) {}
    StepResult Run(const StepPlan& plan) override {
      core_->clock_.Advance(10 * kNsPerMs);  // what a step takes
      StepResult result = core_->fake.Run(plan);
      if (core_->after_run) core_->after_run(plan, result);
      return result;
    }

   private:
    Core* core_;
  };

  ManualClock clock_;
  std::unique_ptr<EngineCore> core_;
};

std::string CheckMessage(Core& core, const Request& request) {
  const Status status = core->Check(request);
  if (status.ok()) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  return status.error().message;
}

TEST(EngineCore, RefusesAtTheDoorWithTheNumbers) {
  EngineConfig config = SmallConfig();
  config.cache.blocks_count = 10;
  Core core(config);
  EXPECT_EQ(CheckMessage(core, MakeRequest({}, 1)), "the prompt must have at least one token");
  EXPECT_EQ(CheckMessage(core, MakeRequest({1, 1000}, 1)),
            "token id 1000 is outside of the vocabulary (0 to 999)");
  EXPECT_EQ(CheckMessage(core, MakeRequest({1, -1}, 1)),
            "token id -1 is outside of the vocabulary (0 to 999)");
  EXPECT_EQ(
      CheckMessage(core, MakeRequest(Tokens(100, 1), 29)),
      "the model's context is 128 tokens, but the request asks for 100 in the prompt and 29 to "
      "generate");
  EXPECT_NE(CheckMessage(core, MakeRequest({1}, std::numeric_limits<int64_t>::max())), "");
  EXPECT_EQ(CheckMessage(core, MakeRequest({1}, -1)), "max_tokens must be at least 0, got -1");
  // 10 blocks of 4 hold 40 tokens; the last one drawn needs no room.
  EXPECT_EQ(CheckMessage(core, MakeRequest(Tokens(30, 1), 11)), "");
  EXPECT_EQ(CheckMessage(core, MakeRequest(Tokens(30, 1), 12)),
            "the request can never fit: 42 tokens (30 in the prompt and 12 to generate) need 11 KV "
            "blocks of 4 tokens, and the cache has 10");
  EXPECT_EQ(CheckMessage(core, MakeRequest(Tokens(40, 1), 0)), "");
  Request request = MakeRequest({1}, 1);
  request.n = 0;
  EXPECT_EQ(CheckMessage(core, request), "n must be between 1 and 4096, got 0");
  request.n = 5'000'000;
  EXPECT_EQ(CheckMessage(core, request), "n must be between 1 and 4096, got 5000000");
}

TEST(EngineCore, WhatJustFitsRuns) {
  EngineConfig config = SmallConfig();
  config.cache.blocks_count = 10;
  Core core(config);
  auto a = core.Submit(MakeRequest(Tokens(30, 1), 11));
  Request request = MakeRequest(Tokens(30, 2), 11);
  request.n = 3;  // each choice alone fits, so they take turns
  auto b = core.Submit(request);
  core.Run();
  EXPECT_EQ(a->Tokens(), Expected(Tokens(30, 1), 11));
  EXPECT_EQ(b->Tokens(0), Expected(Tokens(30, 2), 11));
  EXPECT_EQ(b->Tokens(2), Expected(Tokens(30, 2), 11, CombineSeeds(7, 2)));
}

TEST(EngineCore, RefusedByWindowsOnlyWhereAWindowIsTooLarge) {
  EngineConfig config = SmallConfig();
  config.cache.groups = {{CacheGroupSpec::Kind::kSlidingWindow, 9}};
  config.cache.blocks_count = 3;
  Core core(config);
  auto listener = core.Submit(MakeRequest(Tokens(60, 1), 60));
  core.Run();
  EXPECT_EQ(listener->Tokens().size(), 60u);
  config.cache.blocks_count = 2;
  Core too_small(config);
  EXPECT_NE(CheckMessage(too_small, MakeRequest(Tokens(60, 1), 60)), "");
}

TEST(EngineCore, ConfigsThatDoNotFitAreNamed) {
  EngineConfig config = SmallConfig();
  EXPECT_TRUE(ValidateEngineConfig(config).ok());
  config.max_num_batched_tokens = 7;
  EXPECT_EQ(ValidateEngineConfig(config).error().message,
            "max_num_batched_tokens (7) must be at least max_num_seqs (8)");
  config = SmallConfig();
  config.max_num_seqs = 0;
  EXPECT_EQ(ValidateEngineConfig(config).error().message, "max_num_seqs must be at least 1, got 0");
  config = SmallConfig();
  config.cache.groups = {{CacheGroupSpec::Kind::kSlidingWindow, 0}};
  EXPECT_FALSE(ValidateEngineConfig(config).ok());
  config.cache.groups.clear();
  EXPECT_FALSE(ValidateEngineConfig(config).ok());
}

TEST(EngineCore, StopsAtAStopToken) {
  Core core;
  const Tokens expected = Expected({1, 2}, 9);
  Request request = MakeRequest({1, 2}, 9);
  request.sampling.stop_token_ids = {999, expected[4], 3};
  auto listener = core.Submit(request);
  core.Run();
  EXPECT_EQ(listener->Tokens(), Tokens(expected.begin(), expected.begin() + 5));
  EXPECT_EQ(listener->Last().finish, FinishReason::kStop);
  EXPECT_EQ(listener->Last().stop_token, expected[4]);
  EXPECT_EQ(core.metrics().finished_stop.value(), 1);
}

TEST(EngineCore, MinTokensOutweighStopTokens) {
  Core core;
  const Tokens expected = Expected({1, 2}, 9);
  Request request = MakeRequest({1, 2}, 9);
  request.sampling.stop_token_ids = {expected[2], expected[3]};
  request.sampling.min_tokens = 3;  // the third may not be a stop token, the fourth may
  auto listener = core.Submit(request);
  core.Run();
  EXPECT_EQ(listener->Tokens().size(), 4u);
  EXPECT_EQ(listener->Last().finish, FinishReason::kStop);
}

TEST(EngineCore, TheContextEndsGeneration) {
  Core core;
  auto listener = core.Submit(MakeRequest(Tokens(100, 1), 28));
  core.Run();
  EXPECT_EQ(listener->Tokens().size(), 28u);
  EXPECT_EQ(listener->Last().finish, FinishReason::kLength);
  EXPECT_FALSE(listener->Last().stop_token.has_value());
}

TEST(EngineCore, WithoutTokensToDrawThePromptAloneIsComputed) {
  Core core;
  Request request = MakeRequest({5, 6, 7}, 0);
  request.prompt_logprobs = 2;
  auto listener = core.Submit(request);
  core.Run();
  ASSERT_EQ(listener->events().size(), 1u);
  const TokenEvent event = listener->Last();
  EXPECT_FALSE(event.token.has_value());
  EXPECT_EQ(event.finish, FinishReason::kLength);
  ASSERT_EQ(event.prompt_logprobs.size(), 2u);
  EXPECT_EQ(event.prompt_logprobs[0].token, 6);
  EXPECT_EQ(event.prompt_logprobs[1].token, 7);
  EXPECT_EQ(event.prompt_logprobs[1].top.size(), 2u);
}

TEST(EngineCore, PromptLogprobsCoverAChunkedPromptAndSkipTheCache) {
  Core core;
  Tokens prompt;
  for (TokenId i = 0; i < 90; ++i) prompt.push_back(i);
  for (int round = 0; round < 2; ++round) {
    Request request = MakeRequest(prompt, 3);
    request.prompt_logprobs = 0;
    request.sampling.logprobs = 1;
    auto listener = core.Submit(request);
    core.Run();
    const auto events = listener->events();
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[0].cached_tokens, 0);
    ASSERT_EQ(events[0].prompt_logprobs.size(), 89u);
    for (size_t i = 0; i < 89; ++i) EXPECT_EQ(events[0].prompt_logprobs[i].token, prompt[i + 1]);
    EXPECT_TRUE(events[1].prompt_logprobs.empty());
    ASSERT_TRUE(events[2].logprobs.has_value());
    EXPECT_EQ(events[2].logprobs->token, *events[2].token);
  }
  // It has published all the same.
  auto listener = core.Submit(MakeRequest(prompt, 1));
  core.Run();
  EXPECT_EQ(listener->events()[0].cached_tokens, 88);
}

TEST(EngineCore, OncePromptLogprobsAreThereAPreemptedRequestMayUseTheCache) {
  EngineConfig config = SmallConfig();
  config.max_num_seqs = 1;
  Core core(config);
  Request request = MakeRequest(Tokens(30, 1), 10);
  request.prompt_logprobs = 0;
  auto listener = core.Submit(request);
  for (int i = 0; i < 3; ++i) core.Step();
  Request urgent = MakeRequest({2}, 1);
  urgent.priority = -1;
  core.Submit(urgent);
  core.Step();
  EXPECT_EQ(core.metrics().preemptions.value(), 1);
  int64_t computed = 0;
  core.fake.set_hook([&](const StepPlan& plan) {
    computed = plan.TokensCount();
    for (const PlanItem& item : plan.items) EXPECT_EQ(item.prompt_logprobs, -1);
  });
  core.Step();
  EXPECT_EQ(computed, 33 - 32);
  core.Run();
  EXPECT_EQ(listener->Tokens(), Expected(Tokens(30, 1), 10));
}

TEST(EngineCore, CachedTokensAreReportedAndSaltsSeparate) {
  Core core;
  const Tokens prompt(50, 3);
  auto first = core.Submit(MakeRequest(prompt, 2));
  core.Run();
  auto second = core.Submit(MakeRequest(prompt, 2));
  core.Run();
  Request salted = MakeRequest(prompt, 2);
  salted.cache_salt = "tenant";
  auto third = core.Submit(salted);
  core.Run();
  EXPECT_EQ(first->events()[0].cached_tokens, 0);
  EXPECT_EQ(second->events()[0].cached_tokens, 48);
  EXPECT_EQ(second->events()[1].cached_tokens, 0);
  EXPECT_EQ(third->events()[0].cached_tokens, 0);
  EXPECT_EQ(first->Tokens(), second->Tokens());
  EXPECT_EQ(core.metrics().prompt_tokens.value(), 150);
  EXPECT_EQ(core.metrics().prompt_tokens_cached.value(), 48);
  EXPECT_EQ(core.metrics().prefix_cache_hits.value(), 48);
  EXPECT_EQ(core.metrics().prefix_cache_queries.value(), 150);
}

TEST(EngineCore, ChoicesShareThePromptAndTheFirstIsThatOfNOne) {
  Core core;
  int64_t computed = 0;
  core.fake.set_hook([&](const StepPlan& plan) { computed += plan.TokensCount(); });
  Request request = MakeRequest({1, 2, 3, 4, 5, 6}, 8);
  request.n = 4;
  auto listener = core.Submit(request);
  core.Run();
  EXPECT_EQ(computed, 6 + 4 * 7);
  EXPECT_EQ(listener->Tokens(0), Expected(request.prompt, 8));
  for (int32_t i = 1; i < 4; ++i) {
    EXPECT_EQ(listener->Tokens(i),
              Expected(request.prompt, 8, CombineSeeds(7, static_cast<uint64_t>(i))));
    EXPECT_EQ(listener->Last(i).finish, FinishReason::kLength);
  }
  EXPECT_EQ(core.metrics().finished_length.value(), 4);
}

TEST(EngineCore, AChoiceThatEndsAtOnceLeavesTheOthers) {
  Core core;
  Request request = MakeRequest({1, 2, 3}, 5);
  request.n = 3;
  // The first choice's first token, and the third's.
  request.sampling.stop_token_ids = {Expected({1, 2, 3}, 1)[0],
                                     Expected({1, 2, 3}, 1, CombineSeeds(7, 2))[0]};
  auto listener = core.Submit(request);
  core.Run();
  EXPECT_EQ(listener->Tokens(0).size(), 1u);
  EXPECT_EQ(listener->Last(0).finish, FinishReason::kStop);
  EXPECT_EQ(listener->Tokens(1), Expected({1, 2, 3}, 5, CombineSeeds(7, 1)));
  EXPECT_EQ(listener->Tokens(2).size(), 1u);
  EXPECT_EQ(core->cache().pool().used_count(), 0);
}

TEST(EngineCore, ChoicesCanBeCancelledOneByOneAtAnyTime) {
  EngineConfig config = SmallConfig();
  config.max_num_batched_tokens = 8;
  Core core(config);
  Request request = MakeRequest({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 6);
  request.n = 4;
  auto listener = core.Submit(request);
  const RequestId id = core.last_id;
  core->CancelChoice(id, 2);  // in the queue
  core.Step();                // 8 of 12 prompt tokens
  core->CancelChoice(id, 0);  // the one that computes the prompt for all
  core.Step();
  core.Step();
  core->CancelChoice(id, 3);  // in decode
  core->CancelChoice(id, 3);
  core->CancelChoice(id, 9);  // there is no such choice
  core.Run();
  EXPECT_TRUE(listener->Tokens(0).empty());
  EXPECT_EQ(listener->Tokens(1), Expected(request.prompt, 6, CombineSeeds(7, 1)));
  EXPECT_TRUE(listener->Tokens(2).empty());
  EXPECT_EQ(listener->Tokens(3).size(), 2u);
  EXPECT_EQ(listener->Last(3).finish, FinishReason::kNone);
  EXPECT_EQ(core.metrics().finished_stop.value(), 3);
  EXPECT_EQ(core->requests_count(), 0);
}

TEST(EngineCore, CancelFreesAtOnceInTheQueueInAPromptAndInDecode) {
  EngineConfig config = SmallConfig();
  config.max_num_seqs = 2;
  config.enable_prefix_caching = false;
  Core core(config);
  core.Submit(MakeRequest({1, 2}, 50));
  const RequestId decoding = core.last_id;
  core.Step();
  core.Submit(MakeRequest(Tokens(100, 1), 10));
  const RequestId prompt = core.last_id;
  core.Step();
  auto queued = core.Submit(MakeRequest({9}, 1));
  const RequestId waiting = core.last_id;
  core->Cancel(waiting);
  EXPECT_EQ(core->requests_count(), 2);
  const int64_t used = core->cache().pool().used_count();
  core->Cancel(prompt);
  EXPECT_LT(core->cache().pool().used_count(), used);
  core->Cancel(decoding);
  EXPECT_EQ(core->cache().pool().used_count(), 0);
  EXPECT_FALSE(core->has_work());
  core->Cancel(decoding);
  core->Cancel(12345);
  EXPECT_TRUE(queued->events().empty());
  EXPECT_EQ(core.metrics().finished_abort.value(), 3);
  EXPECT_EQ(core->requests_count(), 0);
}

TEST(EngineCore, AnExceptionEndsTheRequestsOfItsStepAlone) {
  EngineConfig config = SmallConfig();
  config.max_num_seqs = 2;
  Core core(config);
  auto a = core.Submit(MakeRequest(Tokens(20, 1), 9));
  auto b = core.Submit(MakeRequest(Tokens(20, 2), 9));
  auto c = core.Submit(MakeRequest(Tokens(20, 1), 9));
  core.Step();
  core.Step();
  int throws_left = 1;
  core.after_run = [&](const StepPlan&, StepResult&) {
    if (throws_left-- > 0) throw std::runtime_error("the kernel is unwell");
  };
  core.Step();
  for (const auto& listener : {a, b}) {
    EXPECT_EQ(listener->Last().finish, FinishReason::kError);
    EXPECT_EQ(listener->Last().error.code, ErrorCode::kInternal);
    EXPECT_EQ(listener->Last().error.message,
              "the step that computed this request failed: the kernel is unwell");
  }
  EXPECT_EQ(core->cache().pool().used_count(), 0);
  core.Run();
  EXPECT_EQ(c->Tokens(), Expected(Tokens(20, 1), 9));
  EXPECT_EQ(core.metrics().finished_error.value(), 2);
}

TEST(EngineCore, KvOfAFailedStepIsNotShared) {
  Core core;
  auto a = core.Submit(MakeRequest(Tokens(20, 1), 9));
  core.after_run = [](const StepPlan&, StepResult&) { throw 42; };
  core.Step();
  EXPECT_EQ(a->Last().finish, FinishReason::kError);
  EXPECT_EQ(core->cache().pool().cached_count(), 0);
  core.after_run = [](const StepPlan&, StepResult& result) {
    result.items[0].error = MakeError(ErrorCode::kInternal, "a row of NaN");
  };
  auto b = core.Submit(MakeRequest(Tokens(20, 1), 9));
  core.Step();
  EXPECT_EQ(b->Last().error.message, "a row of NaN");
  EXPECT_EQ(core->cache().pool().cached_count(), 0);
}

TEST(EngineCore, AFailedItemEndsItsRequestAlone) {
  Core core;
  auto a = core.Submit(MakeRequest(Tokens(4, 1), 5));
  Request two = MakeRequest(Tokens(4, 2), 5);
  two.n = 2;
  auto b = core.Submit(two);
  auto c = core.Submit(MakeRequest(Tokens(4, 3), 5));
  core.Step();
  core.after_run = [](const StepPlan& plan, StepResult& result) {
    for (size_t i = 0; i < plan.items.size(); ++i) {
      if (plan.items[i].samples[0].history[0] == 2 && plan.items[i].samples[0].seed == 7) {
        result.items[i].error = MakeError(ErrorCode::kInternal, "a row of NaN");
      }
    }
  };
  core.Run();
  EXPECT_EQ(a->Tokens().size(), 5u);
  EXPECT_EQ(c->Tokens().size(), 5u);
  EXPECT_EQ(b->Last(0).finish, FinishReason::kError);
  EXPECT_EQ(b->Last(1).finish, FinishReason::kError);
  EXPECT_EQ(core->cache().pool().used_count(), 0);
}

TEST(EngineCore, TokensOutsideOfTheVocabularyGoNoFurther) {
  Core core;
  core.fake.set_draw([](uint64_t, std::span<const TokenId> history) {
    return history[0] == 1 ? TokenId{1000} : TokenId{5};
  });
  auto bad = core.Submit(MakeRequest({1}, 5));
  auto good = core.Submit(MakeRequest({2}, 5));
  core.Run();
  EXPECT_EQ(bad->Last().finish, FinishReason::kError);
  EXPECT_TRUE(bad->Tokens().empty());
  EXPECT_EQ(good->Tokens(), Tokens(5, 5));
}

TEST(EngineCore, WaitingTooLongEndsWithAnError) {
  EngineConfig config = SmallConfig();
  config.max_num_seqs = 1;
  config.max_queue_wait_ns = 2 * kNsPerSecond;
  Core core(config);
  auto running = core.Submit(MakeRequest({1}, 100));
  auto waiting = core.Submit(MakeRequest({2}, 1));
  core.Step();
  core.clock().Advance(kNsPerSecond);
  core.Step();
  EXPECT_TRUE(waiting->events().empty());
  EXPECT_GT(core.metrics().queue_age_seconds_max.value(), 1.0);
  core.clock().Advance(3 * kNsPerSecond / 2);
  core.Step();
  ASSERT_TRUE(waiting->ended());
  EXPECT_EQ(waiting->Last().finish, FinishReason::kError);
  EXPECT_EQ(waiting->Last().error.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(waiting->Last().error.message,
            "waited 2.5 s in the queue (limit 2.0 s); try again later");
  // Who runs, or ran before it was preempted, has no such limit.
  core.clock().Advance(100 * kNsPerSecond);
  core.Run();
  EXPECT_EQ(running->Tokens().size(), 100u);
  EXPECT_EQ(core.metrics().queue_age_seconds_max.value(), 0);
}

TEST(EngineCore, TimesAreThoseOfTheSteps) {
  EngineConfig config = SmallConfig();
  config.max_num_seqs = 1;
  Core core(config);
  core.Submit(MakeRequest({1}, 3));                            // three steps of 10 ms
  auto listener = core.Submit(MakeRequest(Tokens(64, 1), 5));  // two for its prompt, four more
  core.Run();
  const TokenEvent last = listener->Last();
  EXPECT_EQ(last.queue_ns, 30 * kNsPerMs);
  EXPECT_EQ(last.prefill_ns, 20 * kNsPerMs);
  EXPECT_EQ(last.decode_ns, 40 * kNsPerMs);
  const TokenEvent first = listener->events().front();
  EXPECT_EQ(first.queue_ns, 30 * kNsPerMs);
  EXPECT_EQ(first.prefill_ns, 20 * kNsPerMs);
  const EngineMetrics& metrics = core.metrics();
  EXPECT_NEAR(metrics.request_queue_time_seconds.sum(), 0.03, 1e-9);
  EXPECT_NEAR(metrics.request_decode_time_seconds.sum(), 0.02 + 0.04, 1e-9);
  EXPECT_NEAR(metrics.time_to_first_token_seconds.sum(), 0.01 + 0.05, 1e-9);
  EXPECT_NEAR(metrics.inter_token_latency_seconds.sum(), 0.02 + 0.04, 1e-9);
  EXPECT_NEAR(metrics.request_time_per_output_token_seconds.sum(), 0.01 + 0.01, 1e-9);
  EXPECT_NEAR(metrics.e2e_request_latency_seconds.sum(), 0.03 + 0.09, 1e-9);
  EXPECT_EQ(metrics.steps.value(), 9);
  EXPECT_NEAR(metrics.step_seconds_prefill.sum(), 0.03, 1e-9);
  EXPECT_NEAR(metrics.step_seconds_decode.sum(), 0.06, 1e-9);
  EXPECT_EQ(metrics.step_seconds_mixed.sum(), 0);
  EXPECT_EQ(metrics.generation_tokens.value(), 8);
  EXPECT_EQ(metrics.iteration_tokens.sum(), 1 + 2 + 64 + 4);
}

TEST(EngineCore, CountersAddUp) {
  EngineConfig config = SmallConfig();
  config.max_num_seqs = 4;
  config.cache.blocks_count = 20;
  Core core(config);
  Rng rng(5);
  std::vector<std::pair<RequestId, std::shared_ptr<Collector>>> all;
  for (int i = 0; i < 100; ++i) {
    Tokens prompt(static_cast<size_t>(rng.Between(1, 20)), static_cast<TokenId>(i));
    auto listener = core.Submit(MakeRequest(prompt, rng.Between(1, 50)));
    all.emplace_back(core.last_id, listener);
    core.Step();
    if (i % 3 == 0) core->Cancel(all[rng.Below(all.size())].first);
  }
  core.Run();
  const EngineMetrics& metrics = core.metrics();
  EXPECT_GT(metrics.preemptions.value(), 0);
  EXPECT_GT(metrics.finished_abort.value(), 0);
  EXPECT_EQ(metrics.finished_length.value() + metrics.finished_abort.value(), 100);
  int64_t first_tokens = 0;
  for (size_t i = 0; i <= metrics.time_to_first_token_seconds.bounds().size(); ++i) {
    first_tokens += metrics.time_to_first_token_seconds.count(i);
  }
  EXPECT_LE(first_tokens, 100);
  EXPECT_GE(first_tokens, metrics.finished_length.value());
  EXPECT_EQ(metrics.requests_waiting_tokens.value(), 0);
  EXPECT_EQ(metrics.kv_blocks_used.value(), 0);
  EXPECT_EQ(metrics.kv_blocks_free.value() + metrics.kv_blocks_cached.value(), 20);
}

TEST(EngineCore, UrgentRequestsFinishFirstAndVictimsFinishRight) {
  EngineConfig config = SmallConfig();
  config.max_num_seqs = 2;
  Core core(config);
  std::vector<std::shared_ptr<Collector>> calm;
  for (TokenId i = 0; i < 6; ++i) calm.push_back(core.Submit(MakeRequest({i, 1}, 60)));
  for (int i = 0; i < 20; ++i) core.Step();
  std::vector<std::shared_ptr<Collector>> urgent;
  for (TokenId i = 10; i < 12; ++i) {
    Request request = MakeRequest({i, 1}, 60);
    request.priority = -100;
    urgent.push_back(core.Submit(request));
  }
  while (!urgent[0]->ended() || !urgent[1]->ended()) core.Step();
  for (const auto& listener : calm) EXPECT_FALSE(listener->ended());
  core.Run();
  for (TokenId i = 0; i < 6; ++i) {
    EXPECT_EQ(calm[static_cast<size_t>(i)]->Tokens(), Expected({i, 1}, 60));
  }
  for (TokenId i = 0; i < 2; ++i) {
    EXPECT_EQ(urgent[static_cast<size_t>(i)]->Tokens(), Expected({i + 10, 1}, 60));
  }
}

TEST(EngineCore, BucketBoundsReachTheModelsLength) {
  const EngineMetrics metrics(1000);
  EXPECT_EQ(metrics.request_prompt_tokens.bounds(),
            (std::vector<double>{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}));
  const EngineMetrics largest(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(largest.request_prompt_tokens.bounds().back(), 5e18);
}

}  // namespace
}  // namespace kvasir::engine
