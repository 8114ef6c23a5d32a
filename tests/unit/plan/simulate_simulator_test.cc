// The real engine core through simulated time. Steps cost what the test says, so that every moment
// can be worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/simulate/simulator.h"

namespace kvasir::plan {
namespace {

/// A tenth of a second a step, and a thousandth for each token.
class TestCost final : public StepCostModel {
 public:
  [[nodiscard]] double Seconds(const StepPlan& plan) const override {
    return 0.1 + 0.001 * static_cast<double>(plan.TokensCount());
  }
};

engine::EngineConfig Config(int64_t blocks_count = 1000) {
  engine::EngineConfig config;
  config.cache.block_tokens = 16;
  config.cache.block_bytes = 16 * 100;
  config.cache.blocks_count = blocks_count;
  config.cache.groups = {CacheGroupSpec{}};
  config.vocab_size = 50'000;
  config.max_model_len = 1024;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 100;
  return config;
}

WorkloadSpec ClosedLoop(int64_t users, int64_t requests, const char* prompt, const char* output) {
  WorkloadSpec spec;
  spec.arrivals = {.kind = ArrivalSpec::Kind::kClosed, .users = users};
  spec.traffic.requests_count = requests;
  spec.traffic.prompt = *ParseLength(prompt);
  spec.traffic.output = *ParseLength(output);
  return spec;
}

SimulationResult Drive(const engine::EngineConfig& config, const WorkloadSpec& spec,
                       const SimulationOptions& options = {}) {
  const auto workload = MakeWorkload(spec);
  return Simulate(config, TestCost(), *workload, options);
}

TEST(Simulator, OneStreamTakesExactlyTheTimeOfItsSteps) {
  const SimulationResult result = Drive(Config(), ClosedLoop(1, 2, "250", "11"));
  ASSERT_EQ(result.requests.size(), 2u);
  // 100 + 100 + 50 tokens of prompt, then ten steps of one token.
  const double prompt_s = 0.2 + 0.2 + 0.15;
  const double decode_s = 10 * 0.101;
  EXPECT_NEAR(result.requests[0].TtftSeconds(), prompt_s, 1e-9);
  EXPECT_NEAR(result.requests[0].EndToEndSeconds(), prompt_s + decode_s, 1e-9);
  EXPECT_NEAR(result.requests[0].ItlMeanSeconds(), 0.101, 1e-9);
  EXPECT_NEAR(result.requests[0].itl_max_s, 0.101, 1e-9);
  EXPECT_NEAR(result.requests[1].arrival_s, prompt_s + decode_s, 1e-9);
  EXPECT_NEAR(result.end_s, 2 * (prompt_s + decode_s), 1e-9);
  EXPECT_NEAR(result.busy_s, result.end_s, 1e-9);
  EXPECT_EQ(result.steps_count, 2 * 13);
  EXPECT_EQ(result.prompt_tokens, 500);
  EXPECT_EQ(result.output_tokens, 22);
  EXPECT_EQ(result.computed_tokens, 2 * 260);  // the last token drawn is never computed
  EXPECT_EQ(result.cached_tokens, 0);
  EXPECT_EQ(result.itl_s.count(), 20);
}

TEST(Simulator, ARequestTakesItsTimeToTheQueue) {
  SimulationOptions options;
  options.request_overhead_s = 0.005;
  const SimulationResult result = Drive(Config(), ClosedLoop(1, 2, "250", "11"), options);
  ASSERT_EQ(result.requests.size(), 2u);
  for (const RequestRecord& request : result.requests) {
    EXPECT_NEAR(request.TtftSeconds(), 0.005 + 0.55, 1e-9);
    EXPECT_NEAR(request.queued_s, request.arrival_s + 0.005, 1e-9);
    EXPECT_NEAR(request.scheduled_s, request.queued_s, 1e-9);  // nobody else is there
  }
  EXPECT_NEAR(result.requests[1].arrival_s, result.requests[0].end_s, 1e-9);
  EXPECT_NEAR(result.end_s, 2 * (0.005 + 0.55 + 1.01), 1e-9);
  EXPECT_NEAR(result.busy_s, 2 * (0.55 + 1.01), 1e-9);
}

TEST(Simulator, SameSeedSameResult) {
  WorkloadSpec spec = ClosedLoop(6, 60, "20..300", "lognormal:40,1,200");
  const SimulationResult a = Drive(Config(60), spec);
  const SimulationResult b = Drive(Config(60), spec);
  ASSERT_EQ(a.requests.size(), b.requests.size());
  for (size_t i = 0; i < a.requests.size(); ++i) {
    EXPECT_EQ(a.requests[i].end_s, b.requests[i].end_s);
    EXPECT_EQ(a.requests[i].preemptions, b.requests[i].preemptions);
  }
  EXPECT_EQ(a.steps_count, b.steps_count);
  spec.seed = 1;
  EXPECT_NE(Drive(Config(60), spec).end_s, a.end_s);
}

TEST(Simulator, ATinyCachePreemptsAndEverybodyFinishes) {
  const SimulationResult result = Drive(Config(64), ClosedLoop(8, 40, "100", "200"));
  EXPECT_GT(result.preemptions, 0);
  int64_t preemptions = 0;
  for (const RequestRecord& request : result.requests) {
    EXPECT_EQ(request.end, RequestEnd::kFinished);
    EXPECT_EQ(request.output_tokens, 200);
    preemptions += request.preemptions;
  }
  EXPECT_EQ(preemptions, result.preemptions);
  EXPECT_EQ(result.output_tokens, 40 * 200);
  // Nothing is shared here, so whatever was computed beyond one pass was lost before.
  EXPECT_GT(result.recomputed_tokens, 0);
  EXPECT_EQ(result.computed_tokens, 40 * 299 + result.recomputed_tokens);
  EXPECT_LE(result.blocks_used_max, 64);
}

TEST(Simulator, CommonPrefixesAreFoundByTheRealIndex) {
  WorkloadSpec spec = ClosedLoop(1, 10, "30", "5");
  spec.traffic.prefix_tokens = 200;
  const SimulationResult result = Drive(Config(), spec);
  EXPECT_EQ(result.requests[0].cached_tokens, 0);
  for (size_t i = 1; i < 10; ++i) EXPECT_EQ(result.requests[i].cached_tokens, 192);  // whole blocks
  EXPECT_EQ(result.cached_tokens, 9 * 192);
  engine::EngineConfig without = Config();
  without.enable_prefix_caching = false;
  EXPECT_EQ(Drive(without, spec).cached_tokens, 0);
  EXPECT_GT(Drive(without, spec).end_s, result.end_s);
}

TEST(Simulator, ANextTurnFindsPromptAndAnswer) {
  WorkloadSpec spec = ClosedLoop(1, 1, "100", "60");
  spec.traffic.turns = *ParseLength("3");
  spec.traffic.turn = *ParseLength("40");
  const SimulationResult result = Drive(Config(), spec);
  ASSERT_EQ(result.requests.size(), 3u);
  // The last token of an answer is drawn but not computed: 159 of 160 are there.
  EXPECT_EQ(result.requests[1].prompt_tokens, 200);
  EXPECT_EQ(result.requests[1].cached_tokens, 159 / 16 * 16);
  EXPECT_EQ(result.requests[2].prompt_tokens, 300);
  EXPECT_EQ(result.requests[2].cached_tokens, 259 / 16 * 16);
  EXPECT_EQ(result.requests[2].session, 0);
  EXPECT_EQ(result.requests[2].turn, 2);
}

TEST(Simulator, ReservedAllocationSeatsAsManyAsFitWhole) {
  engine::EngineConfig config = Config(3 * 1024 / 16 + 5);
  const WorkloadSpec spec = ClosedLoop(8, 32, "50", "30");
  const SimulationResult paged = Drive(config, spec);
  config.kv_allocation = engine::KvAllocation::kReserved;
  const SimulationResult reserved = Drive(config, spec);
  EXPECT_EQ(paged.running_max, 8);
  EXPECT_EQ(reserved.running_max, 3);
  EXPECT_GT(reserved.end_s, paged.end_s);
  // Three sequences of 64 blocks, of which one holds at most 79 tokens.
  EXPECT_EQ(reserved.blocks_used_max, 192);
  EXPECT_GE(reserved.slots_wasted_seconds, reserved.running_seconds * (1024 - 80));
  EXPECT_LT(paged.slots_wasted_seconds, paged.running_seconds * 16);
}

TEST(Simulator, FilledAndWastedSlotsMakeUpTheBlocksHeld) {
  engine::EngineConfig config = Config(200);
  config.cache.groups.push_back({CacheGroupSpec::Kind::kSlidingWindow, 50});
  for (const auto allocation : {engine::KvAllocation::kPaged, engine::KvAllocation::kReserved}) {
    config.kv_allocation = allocation;
    config.enable_prefix_caching = false;
    const SimulationResult result = Drive(config, ClosedLoop(4, 20, "10..200", "30..90"));
    for (const StepSample& step : result.steps) {
      EXPECT_EQ(step.slots_filled + step.slots_wasted, step.blocks_used * 16);
      EXPECT_EQ(step.blocks_used + step.blocks_cached + step.blocks_free, 200);
      EXPECT_GE(step.slots_wasted, 0);
      if (allocation == engine::KvAllocation::kPaged) {
        // Not a whole block in either group, nor before the window.
        EXPECT_LE(step.slots_wasted, step.running * (15 + 15 + 15));
      }
    }
  }
}

TEST(Simulator, StaticBatchingWaitsForTheLongest) {
  WorkloadSpec spec;
  spec.arrivals = {.kind = ArrivalSpec::Kind::kBurst, .burst_size = 16, .burst_every_s = 1000};
  spec.traffic.requests_count = 16;
  spec.traffic.prompt = *ParseLength("10");
  spec.traffic.output = *ParseLength("5..200");
  engine::EngineConfig config = Config();
  const SimulationResult continuous = Drive(config, spec);
  config.batching = engine::Batching::kStatic;
  const SimulationResult fixed = Drive(config, spec);
  EXPECT_GT(fixed.end_s, continuous.end_s);
  double first_batch_end = 0;
  for (size_t i = 0; i < 8; ++i) {
    first_batch_end = std::max(first_batch_end, fixed.requests[i].end_s);
  }
  for (size_t i = 8; i < 16; ++i) EXPECT_GE(fixed.requests[i].scheduled_s, first_batch_end - 1e-9);
}

TEST(Simulator, RefusalsAreCountedByTheirReason) {
  engine::EngineConfig config = Config();
  config.max_num_queued_reqs = 5;
  WorkloadSpec spec;
  spec.arrivals = {.kind = ArrivalSpec::Kind::kBurst, .burst_size = 20, .burst_every_s = 1000};
  spec.traffic.requests_count = 20;
  spec.traffic.prompt = *ParseLength("100");
  spec.traffic.output = *ParseLength("10");
  const auto count = [](const SimulationResult& result, RequestEnd end) {
    return std::ranges::count(result.requests, end, &RequestRecord::end);
  };
  EXPECT_EQ(count(Drive(config, spec), RequestEnd::kQueueFull), 15);
  spec.traffic.output = *ParseLength("1000");
  const SimulationResult result = Drive(config, spec);
  EXPECT_EQ(count(result, RequestEnd::kNeverFits), 20);
  EXPECT_EQ(result.steps_count, 0);
  config = Config();
  config.max_queue_wait_ns = kNsPerSecond;
  spec.traffic.output = *ParseLength("100");
  EXPECT_EQ(count(Drive(config, spec), RequestEnd::kWaitedOut), 12);
}

TEST(Simulator, DetailsAndSnapshotsAgreeWithTheSamples) {
  SimulationOptions options;
  options.details_max = 1000;
  options.snapshots_max = 16;
  options.samples_max = 64;
  WorkloadSpec spec = ClosedLoop(12, 60, "20..200", "10..80");
  spec.traffic.prefix_tokens = 64;
  const SimulationResult result = Drive(Config(90), spec, options);
  EXPECT_GT(result.preemptions, 0);
  ASSERT_EQ(result.details.size(), std::min<size_t>(1000, static_cast<size_t>(result.steps_count)));
  for (const StepDetail& detail : result.details) {
    int64_t tokens = 0;
    for (const StepSeat& seat : detail.seats) tokens += seat.tokens;
    EXPECT_EQ(tokens, detail.sample.tokens);
    EXPECT_EQ(static_cast<int64_t>(detail.seats.size()),
              detail.sample.decodes + detail.sample.prompts);
    EXPECT_EQ(static_cast<int64_t>(detail.seats.size() + detail.sat_out.size()),
              detail.sample.running);
    EXPECT_EQ(static_cast<int64_t>(detail.waiting.size()), detail.sample.waiting);
  }
  EXPECT_LE(result.steps.size(), 64u);
  EXPECT_GE(result.steps.size(), 31u);
  EXPECT_TRUE(std::ranges::is_sorted(result.steps, {}, &StepSample::begin_s));
  EXPECT_LE(result.snapshots.size(), 16u);
  EXPECT_GE(result.snapshots.size(), 7u);
  for (const CacheSnapshot& snapshot : result.snapshots) {
    ASSERT_EQ(snapshot.blocks.size(), 90u);
    const auto sample = std::ranges::find(result.steps, snapshot.at_s,
                                          [](const StepSample& s) { return s.begin_s; });
    for (const BlockView& block : snapshot.blocks) {
      EXPECT_EQ(block.state == BlockView::State::kUsed, block.references > 0);
      EXPECT_EQ(block.request >= 0, block.references > 0);
    }
    if (sample == result.steps.end()) continue;
    EXPECT_EQ(std::ranges::count(snapshot.blocks, BlockView::State::kUsed, &BlockView::state),
              sample->blocks_used);
    EXPECT_EQ(std::ranges::count(snapshot.blocks, BlockView::State::kCached, &BlockView::state),
              sample->blocks_cached);
  }
}

// A pool of more blocks than a map shows: those that it does show lie at equal distances.
TEST(Simulator, AMapOfALargePoolIsASampleOfIt) {
  SimulationOptions options;
  options.snapshots_max = 16;
  const SimulationResult result =
      Drive(Config(20'000), ClosedLoop(12, 60, "200..400", "10..80"), options);
  int64_t used_count = 0;
  for (const CacheSnapshot& snapshot : result.snapshots) {
    ASSERT_EQ(snapshot.blocks.size(), 8192U);
    for (const BlockView& block : snapshot.blocks) {
      EXPECT_EQ(block.state == BlockView::State::kUsed, block.references > 0);
      EXPECT_EQ(block.request >= 0, block.references > 0);
      used_count += block.references > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(used_count, 0);
}

TEST(Simulator, EndsWhenToldTo) {
  SimulationOptions options;
  options.seconds_max = 5;
  const SimulationResult late = Drive(Config(), ClosedLoop(4, 1000, "50", "50"), options);
  EXPECT_NEAR(late.end_s, 5, 0.3);
  EXPECT_EQ(late.requests.back().end, RequestEnd::kUnfinished);
  options.seconds_max = 0;
  int64_t calls = 0;
  options.progress = [&](const SimulationProgress& progress) {
    EXPECT_EQ(progress.requests_count, 1000);
    return ++calls < 3;
  };
  const SimulationResult stopped = Drive(Config(), ClosedLoop(4, 1000, "50", "50"), options);
  EXPECT_EQ(calls, 3);
  EXPECT_LT(stopped.requests.size(), 1000u);
}

}  // namespace
}  // namespace kvasir::plan
