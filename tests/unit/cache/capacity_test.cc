#include "cache/capacity.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "cache/kv_cache.h"

namespace kvasir::cache {
namespace {

constexpr CacheGroupSpec Window(int64_t tokens) {
  return {CacheGroupSpec::Kind::kSlidingWindow, tokens};
}

TEST(Capacity, FullAttentionNeedsEveryBlock) {
  EXPECT_EQ(PeakBlocks(CacheGroupSpec{}, 16, 1, 1), 1);
  EXPECT_EQ(PeakBlocks(CacheGroupSpec{}, 16, 16, 1), 1);
  EXPECT_EQ(PeakBlocks(CacheGroupSpec{}, 16, 17, 256), 2);
}

TEST(Capacity, AWindowNeedsWhatItCovers) {
  // A window of 16 at B = 16: 16 positions, across one border at worst.
  EXPECT_EQ(PeakBlocks(Window(16), 16, 1000, 1), 2);
  EXPECT_EQ(PeakBlocks(Window(17), 16, 1000, 1), 2);
  EXPECT_EQ(PeakBlocks(Window(18), 16, 1000, 1), 3);
  EXPECT_EQ(PeakBlocks(Window(1), 16, 1000, 1), 1);
  // A whole prompt in one step needs all of its blocks.
  EXPECT_EQ(PeakBlocks(Window(16), 16, 1000, 1000), 63);
  const CacheSpec spec{
      .block_tokens = 4, .block_bytes = 0, .blocks_count = 9, .groups = {{}, Window(5)}};
  EXPECT_EQ(PeakBlocks(spec, 40, 1), 10 + 2);
}

// The promise behind "can never fit": a sequence that advances in any way, at most `chunk` a step,
// never holds more blocks than PeakBlocks, and with chunk 1 there is a way that holds as many.
TEST(Capacity, PeakIsWhatTheCacheHoldsAtWorst) {
  Rng rng(1);
  for (const int64_t block_tokens : {1, 2, 3, 4, 16}) {
    for (const int64_t window : {1, 2, 3, 4, 5, 8, 9, 16, 17}) {
      for (const int64_t chunk : {1, 2, 5, 16}) {
        const int64_t positions = 70;
        const CacheSpec spec{.block_tokens = block_tokens,
                             .block_bytes = 0,
                             .blocks_count = 200,
                             .groups = {{}, Window(window)}};
        const int64_t allowed = PeakBlocks(spec, positions, chunk);
        int64_t peak = 0;
        for (int round = 0; round < 4; ++round) {
          KvCache cache(spec, CacheOptions{.prefix_caching = false});
          const std::vector<TokenId> tokens(static_cast<size_t>(positions), 1);
          SequenceBlocks sequence;
          cache.Open(sequence, "");
          while (sequence.computed < positions) {
            const int64_t count =
                std::min(round == 0 ? chunk : rng.Between(1, chunk), positions - sequence.computed);
            const int64_t wanted = cache.BlocksWanted(sequence, positions, chunk);
            ASSERT_LE(cache.pool().used_count() + wanted, allowed);
            ASSERT_TRUE(cache.Reserve(sequence, sequence.computed + count, nullptr));
            peak = std::max(peak, cache.pool().used_count());
            cache.Commit(sequence, tokens, count);
          }
          cache.Release(sequence);
          EXPECT_EQ(cache.pool().free_count(), 200);
        }
        EXPECT_LE(peak, allowed) << block_tokens << " " << window << " " << chunk;
        if (chunk == 1) {
          EXPECT_EQ(peak, allowed) << block_tokens << " " << window;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvasir::cache
