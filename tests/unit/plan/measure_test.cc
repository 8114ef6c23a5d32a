// What is measured reaches the runner as real steps would, and becomes a calibration.
#include "plan/simulate/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "plan/simulate/measure_load.h"
#include "plan/simulate/no_cache.h"
#include "plan/simulate/step_time.h"
#include "support/fake_runner.h"

namespace kvasir::plan {
namespace {

constexpr int64_t kVocab = 100;
const CacheSpec kCache = {.block_tokens = 4,
                          .block_bytes = 1,
                          .blocks_count = 400,
                          .groups = {{}, {CacheGroupSpec::Kind::kSlidingWindow, 8}}};

// Checks of each step what a real runner trusts: that tables cover the positions with blocks that
// exist, that no position is written by two items, and that what an item reads was written or
// copied there before.
class StrictRunner final : public Runner {
 public:
  StepResult Run(const StepPlan& plan) override {
    for (const BlockCopy& copy : plan.copies) {
      EXPECT_TRUE(written_.contains(copy.from));
      for (const int64_t slot : written_[copy.from]) written_[copy.to].insert(slot);
    }
    std::set<std::pair<BlockId, int64_t>> now;
    for (const PlanItem& item : plan.items) {
      EXPECT_EQ(item.block_tables.size(), kCache.groups.size());
      const int64_t end = item.start + static_cast<int64_t>(item.tokens.size());
      for (const auto& table : item.block_tables) {
        for (int64_t position = 0; position < end; ++position) {
          const BlockId block = table[static_cast<size_t>(position / kCache.block_tokens)];
          EXPECT_TRUE(block >= 0 && block < kCache.blocks_count);
          const int64_t slot = position % kCache.block_tokens;
          if (position >= item.start) {
            EXPECT_TRUE(now.emplace(block, slot).second) << "written twice";
          } else {
            EXPECT_TRUE(written_[block].contains(slot)) << "read before it was written";
          }
        }
      }
      for (const SampleSlot& sample : item.samples) {
        EXPECT_EQ(static_cast<int64_t>(sample.history.size()), end);
      }
    }
    for (const auto& [block, slot] : now) written_[block].insert(slot);
    return runner_.Run(plan);
  }

 private:
  test::FakeRunner runner_{kVocab};
  std::map<BlockId, std::set<int64_t>> written_;
};

TEST(MeasureSteps, RunsShapesOfAllKinds) {
  StrictRunner runner;
  std::vector<double> shares;
  const auto points = MeasureSteps(runner, kCache, kVocab,
                                   {.step_tokens_max = 24,
                                    .sequences_max = 6,
                                    .context_max = 70,
                                    .sequences_tokens_max = 280,
                                    .seconds_per_point = 0,
                                    .progress = [&](double share) { shares.push_back(share); }});
  ASSERT_TRUE(points.ok()) << points.error().message;
  std::set<int64_t> prefills;
  std::set<std::pair<int64_t, int64_t>> decodes;
  for (const CalibrationPoint& point : *points) {
    EXPECT_GT(point.seconds_min, 0);
    EXPECT_GE(point.seconds, point.seconds_min);
    if (point.decode_sequences == 0) prefills.insert(point.prefill_tokens);
    if (point.prefill_tokens == 0) decodes.emplace(point.decode_sequences, point.decode_context);
    EXPECT_LE(point.prefill_tokens + point.decode_sequences, 24);
  }
  EXPECT_EQ(prefills, (std::set<int64_t>{2, 4, 8, 16, 24}));
  // Of 70 tokens four fit into 280; of 17 all six do.
  EXPECT_EQ(decodes, (std::set<std::pair<int64_t, int64_t>>{
                         {1, 70}, {2, 70}, {4, 70}, {1, 17}, {2, 17}, {4, 17}, {6, 17}}));
  EXPECT_TRUE(std::ranges::is_sorted(shares));
  EXPECT_EQ(shares.front(), 0);
  EXPECT_EQ(shares.back(), 1);

  Calibration calibration;
  calibration.window_tokens = {0, 8};
  calibration.points = *points;
  EXPECT_TRUE(FittedStepTime::Fit(calibration).ok());
}

TEST(MeasureSteps, RefusesACacheThatIsTooSmall) {
  StrictRunner runner;
  CacheSpec cache = kCache;
  cache.blocks_count = 10;
  const auto points =
      MeasureSteps(runner, cache, kVocab, {.step_tokens_max = 24, .context_max = 70});
  ASSERT_FALSE(points.ok());
  EXPECT_EQ(points.error().message,
            "a prompt of 94 tokens needs 48 KV blocks, and the cache has 10");
}

TEST(MeasureSteps, TellsWhatTheRunnerSays) {
  test::FakeRunner runner(kVocab);
  runner.set_hook([](const StepPlan& plan) {
    if (!plan.items.empty() && plan.items.size() > 2) throw std::runtime_error("out of memory");
  });
  const auto points =
      MeasureSteps(runner, kCache, kVocab,
                   {.step_tokens_max = 24, .context_max = 32, .sequences_tokens_max = 200});
  ASSERT_FALSE(points.ok());
  EXPECT_NE(points.error().message.find("failed: out of memory"), std::string::npos)
      << points.error().message;
}

engine::EngineConfig Config() {
  engine::EngineConfig config;
  config.cache = kCache;
  config.vocab_size = kVocab;
  config.max_model_len = 160;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 32;
  return config;
}

TEST(MeasureLoad, CountsStepsAndPredictsThem) {
  test::FakeRunner runner(kVocab);
  int64_t steps_count = 0;
  runner.set_hook([&](const StepPlan&) { ++steps_count; });
  Calibration calibration;
  calibration.window_tokens = {0, 8};
  for (const int64_t tokens : {2, 8, 32}) {
    calibration.points.push_back({.prefill_tokens = tokens, .seconds = 0.25});
    calibration.points.push_back(
        {.decode_sequences = tokens / 2, .decode_context = 16, .seconds = 0.25});
  }
  calibration.host_seconds_per_step = 0.5;
  const auto time = FittedStepTime::Fit(calibration);
  ASSERT_TRUE(time.ok()) << time.error().message;
  const auto load = RunLoad(runner, Config(), MixedLoad(Config()), &*time);
  ASSERT_TRUE(load.ok()) << load.error().message;
  EXPECT_EQ(load->steps, steps_count);
  EXPECT_GT(load->sequences, load->steps);
  EXPECT_GE(load->seconds, load->runner_seconds);
  // Every step of this machine takes a quarter of a second, and the engine half a one.
  EXPECT_NEAR(load->predicted_seconds, 0.75 * static_cast<double>(load->steps),
              0.01 * load->predicted_seconds);
  const auto host = MeasureHost(runner, Config());
  ASSERT_TRUE(host.ok());
  EXPECT_GT(host->per_step + host->per_sequence, 0);

  const auto too_long = RunLoad(runner, Config(), {{.prompt_tokens = 1000}}, nullptr);
  ASSERT_FALSE(too_long.ok());
  EXPECT_NE(too_long.error().message.find("the model's context is 160 tokens"), std::string::npos);
}

TEST(NoCache, ComputesTheWholeSequenceForEachToken) {
  StrictRunner strict;
  struct Watch final : Runner {
    StepResult Run(const StepPlan& plan) override {
      for (const PlanItem& item : plan.items) {
        if (!item.samples.empty()) drawn.emplace(item.start, item.tokens.size());
      }
      return inner->Run(plan);
    }
    Runner* inner = nullptr;
    std::set<std::pair<int64_t, size_t>> drawn;
  } watch;
  watch.inner = &strict;
  const auto rows = CompareNoCache(watch, kCache, kVocab, {8, 50}, 0, [](double) {});
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[1].length, 50);
  EXPECT_EQ(watch.drawn, (std::set<std::pair<int64_t, size_t>>{{7, 1}, {0, 8}, {49, 1}, {0, 50}}));
}

}  // namespace
}  // namespace kvasir::plan
