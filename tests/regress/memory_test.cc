// Memory that must not grow with requests or tokens. README.md lists all rows; a test's name holds
// its row.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_core.h"
#include "support/fake_runner.h"

namespace kvasir::engine {
namespace {

constexpr int64_t kVocab = 1000;

class CountingListener final : public RequestListener {
 public:
  void OnEvent(TokenEvent event) override {
    tokens_count += event.token ? 1 : 0;
    finished_count += event.finish != FinishReason::kNone ? 1 : 0;
  }
  int64_t tokens_count = 0;
  int64_t finished_count = 0;
};

/// Bytes that malloc has given out and not got back, in all arenas. 0 under a sanitizer, whose
/// malloc is another; the test then says nothing of memory.
int64_t HeapBytes() { return static_cast<int64_t>(mallinfo2().uordblks); }

EngineConfig Config() {
  EngineConfig config;
  config.cache =
      CacheSpec{.block_tokens = 4, .block_bytes = 0, .blocks_count = 256, .groups = {{}}};
  config.vocab_size = kVocab;
  config.max_model_len = 20'100;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 64;
  return config;
}

class Driver {
 public:
  explicit Driver(const EngineConfig& config)
      : core_(config, std::make_unique<test::FakeRunner>(kVocab), &clock_, HashOptions{}) {
    SetLogLevel(LogLevel::kOff);
  }
  void Submit(std::vector<TokenId> prompt, int64_t max_tokens) {
    Request request;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    ASSERT_TRUE(core_.Check(request).ok());
    ASSERT_TRUE(core_.EnterQueue(static_cast<int64_t>(request.prompt.size())).ok());
    core_.Enqueue(++last_id_, std::move(request), listener, clock_.Now());
  }
  void Run() {
    while (core_.has_work()) core_.Step();
  }
  bool Step() { return core_.Step(); }
  RequestId last_id() const { return last_id_; }
  EngineCore& core() { return core_; }

  std::shared_ptr<CountingListener> listener = std::make_shared<CountingListener>();

 private:
  ManualClock clock_;
  EngineCore core_;
  RequestId last_id_ = 0;
};

TEST(RegressMemory, Rows066And067RequestsLeaveNothingBehind) {
  Driver driver(Config());
  const auto send = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      // Unique prompts of varied length; every fifth is cancelled half way.
      const auto number = static_cast<int64_t>(driver.last_id());
      std::vector<TokenId> prompt;
      for (int64_t j = 0; j < 4 + number % 40; ++j) {
        prompt.push_back(
            static_cast<TokenId>((number * 31 + j * 7 + (number >> (j % 8))) % kVocab));
      }
      driver.Submit(std::move(prompt), 1 + number % 3);
      if (i % 5 == 0) {
        driver.Step();
        driver.core().Cancel(driver.last_id());
      }
      if (i % 4 == 0) driver.Run();
    }
    driver.Run();
  };
  send(3'000);
  const int64_t before = HeapBytes();
  send(20'000);
  EXPECT_LT(HeapBytes() - before, 64 * 1024);
  EXPECT_EQ(driver.core().metrics().kv_blocks_used.value(), 0);
}

TEST(RegressMemory, Row068TokensLeaveNothingBehindButTheirIds) {
  EngineConfig config = Config();
  config.cache.blocks_count = 6'000;
  Driver driver(config);
  driver.Submit({1, 2, 3}, 20'000);
  while (driver.listener->tokens_count < 2'000) driver.Step();
  const int64_t before = HeapBytes();
  while (driver.listener->tokens_count < 20'000) driver.Step();
  // 18,000 ids, a list of 4,500 blocks and what the prefix index says of each block.
  EXPECT_LT(HeapBytes() - before, 18'000 * 64);
  driver.Run();
  EXPECT_EQ(driver.listener->finished_count, 1);
}

}  // namespace
}  // namespace kvasir::engine
