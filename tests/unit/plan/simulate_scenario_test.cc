#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "plan/memory.h"
#include "plan/simulate/cost_models.h"
#include "plan/simulate/scenario.h"
#include "plan/simulate/simulator.h"
#include "plan/simulate/step_time.h"
#include "plan/simulate/summary.h"

namespace kvasir::plan {
namespace {

using testing::HasSubstr;

ScenarioSpec Spec(const char* model, const char* hardware) {
  ScenarioSpec spec;
  spec.shape = FindModelShape(model).value();
  spec.hardware = FindHardware(hardware).value();
  spec.kv = spec.shape.kv_format;
  return spec;
}

/// A step of `sequences` items of `tokens` tokens each, after `start` computed ones.
class Step {
 public:
  Step(int64_t sequences, int64_t tokens, int64_t start, size_t groups_count)
      : tokens_(static_cast<size_t>(tokens)) {
    plan_.items.resize(static_cast<size_t>(sequences));
    for (PlanItem& item : plan_.items) {
      item.tokens = tokens_;
      item.start = start;
      item.samples.emplace_back();
      item.block_tables.resize(groups_count);
    }
  }
  [[nodiscard]] const StepPlan& plan() const { return plan_; }

 private:
  std::vector<TokenId> tokens_;
  StepPlan plan_;
};

double DecodeSeconds(const Scenario& scenario, int64_t sequences, int64_t context) {
  return scenario.cost->Seconds(
      Step(sequences, 1, context, scenario.engine.cache.groups.size()).plan());
}

Scenario Make(const ScenarioSpec& spec) {
  auto scenario = MakeScenario(spec);
  EXPECT_TRUE(scenario.ok()) << scenario.error().message;
  return *std::move(scenario);
}

std::string ErrorOf(const ScenarioSpec& spec) {
  const auto scenario = MakeScenario(spec);
  return scenario.ok() ? "" : scenario.error().message;
}

TEST(Scenario, ErrorsNameTheFlagThatWasGiven) {
  ScenarioSpec spec = Spec("llama-3.1-8b", "l4");
  spec.weights = "foo";
  EXPECT_THAT(ErrorOf(spec), HasSubstr("--weights: expected as-shipped or one of bf16"));
  spec = Spec("llama-3.1-8b", "h200");
  spec.kv_memory_bytes = 1;
  EXPECT_THAT(ErrorOf(spec), HasSubstr("--kv-cache-memory-bytes: expected at least 2097152 bytes"));
  spec = Spec("llama-3.1-8b", "h200");
  spec.max_num_batched_tokens = int64_t{1} << 40;
  EXPECT_THAT(ErrorOf(spec), HasSubstr("--max-num-batched-tokens: expected at most"));
  for (const auto& [compare, said] : {
           std::pair{"block-size=99999999999",
                     "--compare block-size: expected whole numbers from "
                     "1 to 1024, got '99999999999'"},
           std::pair{"max-num-seqs=65537", "from 1 to 65536"},
           std::pair{"max-num-batched-tokens=99999999999", "from 1 to 100000000"},
           std::pair{"weights=foo", "--compare weights: expected as-shipped or one of"},
           std::pair{"hardware=h9", "--compare hardware: expected a machine"},
       }) {
    const auto variants = MakeVariants(spec, compare);
    ASSERT_FALSE(variants.ok()) << compare;
    EXPECT_THAT(variants.error().message, HasSubstr(said));
  }
  EXPECT_TRUE(MakeVariants(spec, "weights=as-shipped,fp8").value()[0].weights.empty());
}

TEST(Scenario, TheCacheIsWhatThePlanLeavesForIt) {
  ScenarioSpec spec = Spec("gpt-oss-120b", "h100-80gb");
  spec.engine.max_num_seqs = 1024;
  const Scenario scenario = Make(spec);
  MemoryOptions options;
  options.weights = spec.shape.shipped;
  options.kv = spec.kv;
  options.step_tokens = scenario.engine.max_num_batched_tokens;
  const MemoryPlan plan = PlanMemory(*spec.hardware, spec.shape, options);
  EXPECT_EQ(scenario.engine.cache.blocks_count, plan.cache.blocks_count);
  EXPECT_EQ(scenario.engine.cache.block_bytes, plan.cache.block_bytes);
  EXPECT_EQ(scenario.engine.cache.groups.size(), 2u);
  EXPECT_EQ(scenario.engine.max_model_len, 131'072);
  // No larger than what all seats can use.
  spec.engine.max_num_seqs = 1;
  EXPECT_LT(Make(spec).engine.cache.blocks_count, plan.cache.blocks_count);
}

TEST(Scenario, SizesThatAreGivenWin) {
  ScenarioSpec spec = Spec("llama-3.1-8b", "h100-80gb");
  spec.num_kv_blocks = 100;
  spec.max_num_batched_tokens = 77;
  Scenario scenario = Make(spec);
  EXPECT_EQ(scenario.engine.cache.blocks_count, 100);
  EXPECT_EQ(scenario.engine.max_model_len, 1600);
  ASSERT_EQ(scenario.notes.size(), 1u);
  EXPECT_THAT(scenario.notes[0], HasSubstr("1600"));
  EXPECT_EQ(scenario.engine.max_num_batched_tokens, 77);
  spec.num_kv_blocks = 0;
  spec.kv_memory_bytes = 10 * scenario.engine.cache.block_bytes + 1;
  EXPECT_EQ(Make(spec).engine.cache.blocks_count, 10);
}

TEST(Scenario, SaysWhereTheMachineHasLessThanWasAskedFor) {
  ScenarioSpec spec = Spec("llama-3.1-8b", "h100-80gb");
  spec.num_kv_blocks = 99'999'999'999'999;
  EXPECT_EQ(ErrorOf(spec), "--num-kv-blocks: expected at most 16777216 blocks, got 99999999999999");
  EXPECT_THAT(MakeVariants(spec, "block-size=8").error().message, HasSubstr("--num-kv-blocks"));
  spec.num_kv_blocks = 0;
  spec.kv_memory_bytes = int64_t{99} << 40;
  EXPECT_THAT(ErrorOf(spec),
              HasSubstr("--kv-cache-memory-bytes: expected at most 16777216 blocks"));
  spec.kv_memory_bytes = int64_t{9} << 40;
  Scenario scenario = Make(spec);
  ASSERT_EQ(scenario.notes.size(), 1u);
  EXPECT_THAT(scenario.notes[0], HasSubstr("--kv-cache-memory-bytes: a KV cache of 9895.6 GB is "
                                           "more than the 6"));
  EXPECT_EQ(scenario.engine.cache.blocks_count * scenario.engine.cache.block_bytes,
            spec.kv_memory_bytes);
  spec.kv_memory_bytes = 0;
  spec.num_kv_blocks = 100'000;
  EXPECT_THAT(Make(spec).notes, testing::ElementsAre(HasSubstr("--num-kv-blocks: a KV cache of")));
  spec.num_kv_blocks = 10'000;
  EXPECT_TRUE(Make(spec).notes.empty());
}

TEST(Scenario, SaysThatLinearStatesAreNotResumedFromBlocks) {
  ScenarioSpec spec = Spec("qwen3-next-80b", "h200");
  spec.max_model_len = 8192;
  spec.weights = "fp8";
  EXPECT_THAT(Make(spec).notes, testing::ElementsAre(HasSubstr("linear states")));
  spec.engine.enable_prefix_caching = false;
  EXPECT_TRUE(Make(spec).notes.empty());
}

TEST(Scenario, SaysWhatDoesNotFit) {
  EXPECT_THAT(ErrorOf(Spec("llama-3.1-405b", "l4")),
              testing::AllOf(HasSubstr("l4"), HasSubstr("does not fit")));
  ScenarioSpec spec = Spec("llama-3.1-8b", "h100-80gb");
  spec.max_model_len = 1'000'000;
  EXPECT_THAT(ErrorOf(spec), HasSubstr("--max-model-len"));
  spec.max_model_len = 10'000;
  spec.num_kv_blocks = 5;
  EXPECT_THAT(ErrorOf(spec), HasSubstr("a request of 10000 tokens takes 625"));
  spec = Spec("llama-3.1-8b", "h100-80gb");
  spec.hardware.reset();
  EXPECT_THAT(ErrorOf(spec), HasSubstr("--hardware"));
  spec = Spec("llama-3.1-8b", "h100-80gb");
  spec.weights = "int3";
  EXPECT_THAT(ErrorOf(spec), HasSubstr("int3"));
}

TEST(Scenario, ARooflineReadsTheWeightsOnceAStep) {
  ScenarioSpec spec = Spec("llama-3.1-8b", "h100-80gb");
  spec.bandwidth_share = spec.compute_share = 1;
  const Scenario scenario = Make(spec);
  // 8.03e9 - 0.53e9 (of the embedding table one row is read) values of 2 bytes at 3.35 TB/s.
  const double read_s = 7.5e9 * 2 / 3.35e12;
  const double one_s = DecodeSeconds(scenario, 1, 100);
  EXPECT_GT(one_s, read_s);
  EXPECT_LT(one_s, 1.2 * read_s);
  EXPECT_LT(DecodeSeconds(scenario, 32, 100), 1.1 * one_s);
  EXPECT_GT(DecodeSeconds(scenario, 32, 8000), 2 * one_s);
  const ScenarioSpec slower = [&] {
    ScenarioSpec half = spec;
    half.bandwidth_share = 0.5;
    return half;
  }();
  EXPECT_GT(DecodeSeconds(Make(slower), 1, 100), 1.5 * one_s);
}

TEST(Scenario, AStepHoldsWhatIsComputedInItsTime) {
  const Scenario scenario = Make(Spec("llama-3.1-8b", "l4"));
  const int64_t tokens = scenario.engine.max_num_batched_tokens;
  const size_t groups = scenario.engine.cache.groups.size();
  EXPECT_EQ(tokens % 32, 0);
  EXPECT_LE(scenario.cost->Seconds(Step(1, tokens, 0, groups).plan()), 0.15);
  EXPECT_GT(scenario.cost->Seconds(Step(1, tokens + 32, 0, groups).plan()), 0.15);
}

TEST(Variants, SwitchesComeInPairsWithTheNaiveWayFirst) {
  const ScenarioSpec base = Spec("llama-3.1-8b", "h100-80gb");
  const auto names = [&](const char* compare) {
    std::vector<std::string> out;
    const auto variants = MakeVariants(base, compare);
    EXPECT_TRUE(variants.ok()) << variants.error().message;
    for (const ScenarioSpec& spec : *variants) out.push_back(Make(spec).variant);
    return out;
  };
  EXPECT_THAT(names("kv-allocation"), testing::ElementsAre("reserved", "paged"));
  EXPECT_THAT(names("batching"), testing::ElementsAre("static", "continuous"));
  EXPECT_THAT(names("prefix-caching"), testing::ElementsAre("no prefix caching", "prefix caching"));
  EXPECT_THAT(names("chunked-prefill"), testing::ElementsAre("whole prompts", "chunked prefill"));
  EXPECT_THAT(names("weights=shipped,fp8"), testing::ElementsAre("shipped", "fp8"));
  EXPECT_THAT(names("block-size=8,64"), testing::ElementsAre("block-size 8", "block-size 64"));
  EXPECT_THAT(names("hardware=l4,h200"), testing::ElementsAre("l4", "h200"));
}

TEST(Variants, BlocksOfAnySizeHoldTheSameBytes) {
  ScenarioSpec base = Spec("llama-3.1-8b", "h100-80gb");
  for (const int64_t num_kv_blocks : {0, 1000}) {
    base.num_kv_blocks = num_kv_blocks;
    const auto variants = MakeVariants(base, "block-size=8,16,32,64");
    ASSERT_TRUE(variants.ok());
    const CacheSpec first = Make(variants->front()).engine.cache;
    for (const ScenarioSpec& spec : *variants) {
      const CacheSpec cache = Make(spec).engine.cache;
      EXPECT_NEAR(static_cast<double>(cache.blocks_count * cache.block_bytes),
                  static_cast<double>(first.blocks_count * first.block_bytes),
                  static_cast<double>(cache.block_bytes));
    }
  }
}

TEST(Variants, SmallerWeightsLeaveMoreRoomAndTakeLessTime) {
  ScenarioSpec base = Spec("llama-3.1-8b", "l4");
  base.engine.max_num_seqs = 1024;
  const auto variants = MakeVariants(base, "weights=bf16,fp8,int4");
  ASSERT_TRUE(variants.ok());
  std::vector<Scenario> scenarios;
  for (const ScenarioSpec& spec : *variants) scenarios.push_back(Make(spec));
  for (size_t i = 1; i < scenarios.size(); ++i) {
    EXPECT_GT(scenarios[i].engine.cache.blocks_count, scenarios[i - 1].engine.cache.blocks_count);
    EXPECT_LT(DecodeSeconds(scenarios[i], 1, 100), DecodeSeconds(scenarios[i - 1], 1, 100));
  }
}

std::vector<Scenario> MakeAll(const ScenarioSpec& base, const std::string& compare) {
  auto variants = MakeVariants(base, compare);
  EXPECT_TRUE(variants.ok()) << variants.error().message;
  auto scenarios = MakeScenarios(*std::move(variants), compare.substr(0, compare.find('=')));
  EXPECT_TRUE(scenarios.ok()) << scenarios.error().message;
  return *std::move(scenarios);
}

TEST(Variants, HaveCachesOfOneSizeWhereMemoryIsNotCompared) {
  ScenarioSpec base = Spec("llama-3.1-8b", "l4");
  base.max_model_len = 20'000;
  base.engine.max_num_seqs = 1024;
  const auto own = MakeVariants(base, "chunked-prefill").value();
  const int64_t whole = Make(own[0]).engine.cache.blocks_count;
  EXPECT_LT(whole, Make(own[1]).engine.cache.blocks_count);
  for (const Scenario& scenario : MakeAll(base, "chunked-prefill")) {
    EXPECT_EQ(scenario.engine.cache.blocks_count, whole);
    EXPECT_TRUE(scenario.notes.empty());
  }
  // Windows: all seats can use more where each is reserved whole.
  base = Spec("gpt-oss-20b", "h200");
  base.engine.max_num_seqs = 4;
  const auto pair = MakeVariants(base, "kv-allocation").value();
  const int64_t reserved = Make(pair[0]).engine.cache.blocks_count;
  EXPECT_GT(reserved, Make(pair[1]).engine.cache.blocks_count);
  for (const Scenario& scenario : MakeAll(base, "kv-allocation")) {
    EXPECT_EQ(scenario.engine.cache.blocks_count, reserved);
  }
  // What was asked for wins.
  base.num_kv_blocks = 20'000;
  for (const Scenario& scenario : MakeAll(base, "kv-allocation")) {
    EXPECT_EQ(scenario.engine.cache.blocks_count, 20'000);
  }
}

TEST(Variants, SayWhereTheirCachesDiffer) {
  ScenarioSpec base = Spec("llama-3.1-8b", "l4");
  base.max_model_len = 2000;
  const std::vector<Scenario> scenarios = MakeAll(base, "max-num-seqs=2,4");
  ASSERT_EQ(scenarios[0].notes.size(), 1u);
  EXPECT_THAT(scenarios[0].notes[0], HasSubstr("the KV cache takes 0.5 GB, another variant's 1.0"));
  EXPECT_TRUE(scenarios[1].notes.empty());
  for (const Scenario& scenario : MakeAll(base, "block-size=8,16")) {
    EXPECT_TRUE(scenario.notes.empty());
  }
}

TEST(Variants, TellWhichOfThemDoesNotFitAndWhy) {
  ScenarioSpec base = Spec("llama-3.1-8b", "l4");
  const auto scenarios =
      MakeScenarios(MakeVariants(base, "chunked-prefill").value(), "chunked-prefill");
  ASSERT_FALSE(scenarios.ok());
  EXPECT_THAT(scenarios.error().message,
              testing::AllOf(HasSubstr("whole prompts: llama-3.1-8b does not fit 1 x l4: weights "
                                       "take 16.1 GB and the rows of a step of 131072 tokens "),
                             HasSubstr(" GB of 22.9 GB"), HasSubstr("a smaller --max-model-len")));
  base.engine.enable_chunked_prefill = false;
  EXPECT_THAT(ErrorOf(base), HasSubstr("a smaller --max-model-len"));
  base.engine.enable_chunked_prefill = true;
  base.max_num_batched_tokens = 131'072;
  EXPECT_THAT(ErrorOf(base), HasSubstr("; a smaller --max-num-batched-tokens"));
  EXPECT_THAT(ErrorOf(Spec("llama-3.1-405b", "l4")), testing::Not(HasSubstr("rows")));
}

TEST(Variants, SayWhatTheyExpect) {
  const ScenarioSpec base = Spec("llama-3.1-8b", "h100-80gb");
  for (const char* compare : {"", "batch", "block-size", "kv-allocation=paged", "colour=red"}) {
    const auto variants = MakeVariants(base, compare);
    ASSERT_FALSE(variants.ok()) << compare;
    EXPECT_THAT(variants.error().message, HasSubstr(fmt::format("got '{}'", compare)));
  }
  for (const char* compare :
       {"block-size=8,16,8", "max-num-seqs=8,08", "weights=fp8,fp8", "weights=fp8,FP8",
        "weights=int4,int4-g128", "weights=shipped,as-shipped", "hardware=l4,h200,l4"}) {
    const auto variants = MakeVariants(base, compare);
    ASSERT_FALSE(variants.ok()) << compare;
    EXPECT_THAT(variants.error().message, HasSubstr("expected each value once, got '"));
  }
  EXPECT_THAT(MakeVariants(base, "block-size=8,x").error().message, HasSubstr("got 'x'"));
  EXPECT_THAT(MakeVariants(base, "block-size=0").error().message, HasSubstr("got '0'"));
  EXPECT_THAT(MakeVariants(base, "weights=bf16,int3").error().message, HasSubstr("int3"));
  EXPECT_THAT(MakeVariants(base, "hardware=h900").error().message, HasSubstr("h900"));
}

/// 5 ms a step and 0.1 ms a token, whatever the context.
Calibration Linear() {
  Calibration calibration;
  calibration.model = "m";
  calibration.cpu = "cpu";
  calibration.kernels = "avx2";
  calibration.kv_dtype = "F16";
  calibration.threads = 2;
  calibration.block_tokens = 16;
  calibration.window_tokens = {0};
  const auto add = [&](CalibrationPoint point) {
    const int64_t tokens = point.prefill_tokens + point.decode_sequences;
    point.seconds = point.seconds_min = 0.005 + 0.0001 * static_cast<double>(tokens);
    calibration.points.push_back(point);
  };
  for (const int64_t tokens : {1, 8, 32, 128}) {
    for (const int64_t start : {0, 500, 2000}) {
      add({.prefill_tokens = tokens, .prefill_start = start});
      add({.prefill_tokens = tokens, .prefill_start = start, .prefill_draws = true});
    }
    for (const int64_t context : {10, 500, 2000}) {
      add({.decode_sequences = tokens, .decode_context = context});
    }
  }
  return calibration;
}

TEST(Scenario, ACalibrationGivesTheTimeThatWasMeasured) {
  ScenarioSpec spec = Spec("smollm2-135m", "h100-80gb");
  spec.hardware.reset();
  spec.calibration = Linear();
  const Scenario scenario = Make(spec);
  for (const int64_t sequences : {1, 8, 100}) {
    const double seconds = 0.005 + 0.0001 * static_cast<double>(sequences);
    EXPECT_NEAR(DecodeSeconds(scenario, sequences, 300), seconds, 0.02 * seconds);
  }
  EXPECT_NEAR(static_cast<double>(scenario.engine.max_num_batched_tokens), 1440, 32);
  // As much as all seats can use, where no machine says how much there is.
  EXPECT_EQ(scenario.engine.cache.blocks_count, 64 * scenario.engine.max_model_len / 16);
  spec.weights = "bf16";
  EXPECT_THAT(ErrorOf(spec), HasSubstr("calibration"));
  spec.weights.clear();
  spec.calibration->points.clear();
  EXPECT_NE(ErrorOf(spec), "");
}

TEST(Scenario, PagedServesManyWhereReservationServesFew) {
  // The claim of the README's first line on planning: gpt-oss-120b on one card of 80 GB, 8k each.
  ScenarioSpec base = Spec("gpt-oss-120b", "h100-80gb");
  base.engine.max_num_seqs = 256;
  const auto variants = MakeVariants(base, "kv-allocation");
  ASSERT_TRUE(variants.ok());
  WorkloadSpec workload;
  workload.arrivals = {.kind = ArrivalSpec::Kind::kBurst, .burst_size = 100, .burst_every_s = 1};
  workload.traffic.requests_count = 100;
  workload.traffic.prompt = *ParseLength("7800");
  workload.traffic.output = *ParseLength("390");
  std::vector<int64_t> running;
  for (const ScenarioSpec& spec : *variants) {
    const Scenario scenario = Make(spec);
    const auto traffic = MakeWorkload(workload);
    running.push_back(Simulate(scenario.engine, *scenario.cost, *traffic, {}).running_max);
  }
  EXPECT_LE(running[0], 3);
  EXPECT_GE(running[1], 50);
  EXPECT_LE(running[1], 60);
}

}  // namespace
}  // namespace kvasir::plan
