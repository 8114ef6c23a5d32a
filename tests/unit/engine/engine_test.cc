// The engine with its thread.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collector.h"
#include "support/fake_runner.h"

namespace kvasir::engine {
namespace {

using test::Collector;
using test::FakeRunner;

constexpr int64_t kVocab = 1000;

EngineConfig SmallConfig() {
  EngineConfig config;
  config.cache = CacheSpec{.block_tokens = 4, .block_bytes = 0, .blocks_count = 64, .groups = {{}}};
  config.vocab_size = kVocab;
  config.max_model_len = 128;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 32;
  return config;
}

Request MakeRequest(std::vector<TokenId> prompt, int64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.seed = 7;
  return request;
}

std::vector<TokenId> Expected(std::vector<TokenId> history, int64_t count, uint64_t seed = 7) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(FakeRunner::Token(seed, history, kVocab));
    history.push_back(tokens.back());
  }
  return tokens;
}

/// Holds the engine thread at the start of a step until told to go on.
class Gate {
 public:
  void Wait() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || passes_ > 0; });
    if (!open_) --passes_;
  }
  void WaitForArrival(int64_t count = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }
  void LetOnePass() {
    const std::lock_guard lock(mutex_);
    ++passes_;
    changed_.notify_all();
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int64_t passes_ = 0;
  int64_t arrived_ = 0;
};

std::unique_ptr<FakeRunner> GatedRunner(Gate* gate) {
  auto runner = std::make_unique<FakeRunner>(kVocab);
  runner->set_hook([gate](const StepPlan&) { gate->Wait(); });
  return runner;
}

TEST(Engine, GeneratesWhatTheRunnerDraws) {
  Engine engine(SmallConfig(), std::make_unique<FakeRunner>(kVocab));
  auto listener = std::make_shared<Collector>();
  ASSERT_TRUE(engine.Submit(MakeRequest({1, 2, 3}, 5), listener).ok());
  listener->WaitForEnd();
  EXPECT_EQ(listener->Tokens(), Expected({1, 2, 3}, 5));
  EXPECT_EQ(listener->Last().finish, FinishReason::kLength);
  EXPECT_EQ(listener->events().size(), 5u);
}

TEST(Engine, ManyThreadsSubmitAndEachGetsItsOwn) {
  Engine engine(SmallConfig(), std::make_unique<FakeRunner>(kVocab));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::vector<TokenId> prompt = {t, i, 5, 6, 7, 8, 9};
        auto listener = std::make_shared<Collector>();
        if (!engine.Submit(MakeRequest(prompt, 6), listener).ok()) {
          ++wrong;
          continue;
        }
        listener->WaitForEnd();
        if (listener->Tokens() != Expected(prompt, 6)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Engine, SubmitDoesNotWaitForAStepAndCancelFreesBeforeTheNext) {
  Gate gate;
  Engine engine(SmallConfig(), GatedRunner(&gate));
  auto first = std::make_shared<Collector>();
  const RequestId id = engine.Submit(MakeRequest({1, 2, 3}, 100), first).value();
  gate.WaitForArrival(1);
  // The engine thread is inside a step.
  auto second = std::make_shared<Collector>();
  ASSERT_TRUE(engine.Submit(MakeRequest({4, 5}, 2), second).ok());
  engine.Cancel(id);
  gate.LetOnePass();
  gate.WaitForArrival(2);
  // The step under way gave its token; in this one, only the second request runs.
  EXPECT_EQ(first->events().size(), 1u);
  EXPECT_EQ(engine.metrics().requests_running.value(), 0);
  EXPECT_EQ(engine.metrics().kv_blocks_used.value(), 0);
  gate.Open();
  second->WaitForEnd();
  EXPECT_EQ(first->events().size(), 1u);
  EXPECT_FALSE(first->ended());
  EXPECT_EQ(engine.metrics().finished_abort.value(), 1);
}

TEST(Engine, StopAbortsWhatRunsAndWaits) {
  Gate gate;
  EngineConfig config = SmallConfig();
  config.max_num_seqs = 1;
  Engine engine(config, GatedRunner(&gate));
  auto running = std::make_shared<Collector>();
  auto waiting = std::make_shared<Collector>(2);
  ASSERT_TRUE(engine.Submit(MakeRequest({1, 2, 3}, 100), running).ok());
  Request two = MakeRequest({4}, 3);
  two.n = 2;
  ASSERT_TRUE(engine.Submit(two, waiting).ok());
  gate.WaitForArrival(1);
  std::thread stopper([&] { engine.Stop(); });
  while (engine.Accepting()) std::this_thread::yield();
  gate.Open();
  stopper.join();
  EXPECT_EQ(running->Last().finish, FinishReason::kAbort);
  EXPECT_EQ(waiting->Last(0).finish, FinishReason::kAbort);
  EXPECT_EQ(waiting->Last(1).finish, FinishReason::kAbort);
  EXPECT_TRUE(engine.Idle());
  EXPECT_EQ(engine.metrics().kv_blocks_used.value(), 0);
  EXPECT_FALSE(engine.Submit(MakeRequest({1}, 1), running).ok());
  engine.Stop();
}

TEST(Engine, HeartbeatStandsStillInAStepAndNotWhenIdle) {
  Gate gate;
  Engine engine(SmallConfig(), GatedRunner(&gate));
  auto listener = std::make_shared<Collector>();
  ASSERT_TRUE(engine.Submit(MakeRequest({1}, 1), listener).ok());
  gate.WaitForArrival(1);
  const TimeNs before = engine.SinceHeartbeatNs();
  while (engine.SinceHeartbeatNs() <= before) std::this_thread::yield();
  gate.Open();
  listener->WaitForEnd();
  while (engine.SinceHeartbeatNs() != 0) std::this_thread::yield();
}

TEST(Engine, QueueIsBoundedByCountAndByTokens) {
  Gate gate;
  EngineConfig config = SmallConfig();
  config.max_num_seqs = 1;
  config.max_num_queued_reqs = 3;
  config.max_num_queued_tokens = 20;
  Engine engine(config, GatedRunner(&gate));
  std::vector<std::shared_ptr<Collector>> listeners;
  const auto submit = [&](size_t prompt_tokens) {
    listeners.push_back(std::make_shared<Collector>());
    return engine.Submit(MakeRequest(std::vector<TokenId>(prompt_tokens, 1), 1), listeners.back());
  };
  ASSERT_TRUE(submit(1).ok());
  gate.WaitForArrival(1);  // it has left the queue
  ASSERT_TRUE(submit(10).ok());
  auto by_tokens = submit(11);
  ASSERT_FALSE(by_tokens.ok());
  EXPECT_EQ(by_tokens.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(
      by_tokens.error().message,
      "the queue is full: prompts of 10 tokens wait and this one has 11 (limit 20); try again "
      "later");
  ASSERT_TRUE(submit(5).ok());
  ASSERT_TRUE(submit(5).ok());
  auto by_count = submit(1);
  ASSERT_FALSE(by_count.ok());
  EXPECT_EQ(by_count.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(by_count.error().message,
            "the queue is full: 3 requests wait (limit 3); try again later");
  EXPECT_EQ(engine.metrics().rejected_queue_full.value(), 2);
  gate.Open();
  for (const size_t accepted : {0u, 1u, 3u, 4u}) listeners[accepted]->WaitForEnd();
  ASSERT_TRUE(submit(11).ok());
  listeners.back()->WaitForEnd();
}

}  // namespace
}  // namespace kvasir::engine
