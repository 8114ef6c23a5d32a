// 10^6 random steps of the real scheduler and cache, under all switches and several kinds of cache.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cache/capacity.h"
#include "simulation.h"

namespace kvasir::simulation {
namespace {

using engine::Batching;
using engine::KvAllocation;

constexpr CacheGroupSpec kFull{};
constexpr CacheGroupSpec Window(int64_t tokens) {
  return {CacheGroupSpec::Kind::kSlidingWindow, tokens};
}

struct CacheKind {
  const char* name;
  int64_t block_tokens;
  std::vector<CacheGroupSpec> groups;
};

const CacheKind kCacheKinds[] = {
    {"full", 4, {kFull}},
    {"full_window", 4, {kFull, Window(10)}},
    {"window", 2, {Window(7)}},
    {"full_two_windows", 3, {kFull, Window(2), Window(12)}},
    {"full_blocks_of_one", 1, {kFull, Window(5)}},
};

/// Four bits of a hash: nearly everything collides.
uint64_t HashToFourBits(uint64_t parent, std::span<const TokenId> tokens) {
  return cache::HashBlock(parent, tokens) & 15;
}

/// All switches as bits.
class RandomLoad : public testing::TestWithParam<int> {};

// 16 settings of switches x 5 caches x 12 500 steps = 10^6; a tenth where a sanitizer slows it
// down.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kStepsOfOneRun = 1'250;
#else
constexpr int64_t kStepsOfOneRun = 12'500;
#endif

TEST_P(RandomLoad, EverythingIsExactAndEverybodyEnds) {
  const int switches = GetParam();
  int64_t preemptions_count = 0;
  int64_t errors_count = 0;
  for (size_t kind = 0; kind < std::size(kCacheKinds); ++kind) {
    const CacheKind& cache_kind = kCacheKinds[kind];
    SCOPED_TRACE(cache_kind.name);
    Rng rng(static_cast<uint64_t>(switches) * 100 + kind);
    SimulationConfig config;
    config.seed = rng.Next();
    engine::EngineConfig& engine = config.engine;
    engine.kv_allocation = (switches & 1) != 0 ? KvAllocation::kReserved : KvAllocation::kPaged;
    engine.batching = (switches & 2) != 0 ? Batching::kStatic : Batching::kContinuous;
    engine.enable_prefix_caching = (switches & 4) == 0;
    engine.enable_chunked_prefill = (switches & 8) == 0;
    engine.vocab_size = 20;
    engine.max_model_len = 56;
    engine.max_num_seqs = rng.Between(1, 8);
    engine.max_num_batched_tokens = rng.Between(engine.max_num_seqs, 40);
    engine.max_num_queued_reqs = 20;
    engine.max_num_queued_tokens = 300;
    engine.priority_aging_ns = rng.Chance(0.2) ? kNsPerMs : 200 * kNsPerMs;
    engine.max_queue_wait_ns = rng.Chance(0.3) ? 500 * kNsPerMs : 0;
    engine.cache.block_tokens = cache_kind.block_tokens;
    engine.cache.groups = cache_kind.groups;
    // From where the longest request just fits to where four do.
    const int64_t whole = cache::BlocksFor(engine.max_model_len, cache_kind.block_tokens) *
                          static_cast<int64_t>(cache_kind.groups.size());
    const int64_t least = engine.kv_allocation == KvAllocation::kReserved
                              ? whole
                              : cache::PeakBlocks(engine.cache, engine.max_model_len - 1, 1);
    engine.cache.blocks_count = rng.Between(least, 4 * whole);
    if (kind == 0) engine.cache.blocks_count = least;
    config.hashing.seed = rng.Next();
    if (rng.Chance(0.5)) config.hashing.hash = &HashToFourBits;
    config.faults = {.throw_chance = 0.002, .item_error_chance = 0.002};
    Simulation simulation(config);
    simulation.Run(kStepsOfOneRun);
    if (HasFailure()) return;
    const engine::EngineMetrics& metrics = simulation.core().metrics();
    EXPECT_EQ(metrics.prefix_cache_hits.value() > 0, engine.enable_prefix_caching);
    preemptions_count += metrics.preemptions.value();
    errors_count += metrics.finished_error.value();
  }
  // The load was hard enough to mean something.
  EXPECT_GT(errors_count, kStepsOfOneRun / 250);
  if ((switches & 3) != 3) {
    EXPECT_GT(preemptions_count, kStepsOfOneRun / 250);
  }
}

std::string SwitchesName(const testing::TestParamInfo<int>& info) {
  std::string name = (info.param & 1) != 0 ? "Reserved" : "Paged";
  name += (info.param & 2) != 0 ? "Static" : "Continuous";
  if ((info.param & 4) != 0) name += "NoPrefix";
  if ((info.param & 8) != 0) name += "NoChunks";
  return name;
}

INSTANTIATE_TEST_SUITE_P(Switches, RandomLoad, testing::Range(0, 16), SwitchesName);

}  // namespace
}  // namespace kvasir::simulation
