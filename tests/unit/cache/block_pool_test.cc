#include "cache/block_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvasir::cache {
namespace {

TEST(BlockPool, EveryBlockIsUsedCachedOrFree) {
  BlockPool pool(4);
  EXPECT_EQ(pool.free_count(), 4);
  const BlockId a = pool.TakeFree();
  const BlockId b = pool.TakeFree();
  EXPECT_EQ(a, 0);  // low blocks first: memory is touched only as it is used
  EXPECT_EQ(b, 1);
  EXPECT_EQ(pool.used_count(), 2);
  pool.DropReference(a, /*keep=*/true);
  pool.DropReference(b, /*keep=*/false);
  EXPECT_EQ(pool.used_count(), 0);
  EXPECT_EQ(pool.cached_count(), 1);
  EXPECT_EQ(pool.free_count(), 3);
  EXPECT_EQ(pool.available_count(), 4);
  EXPECT_EQ(pool.TakeFree(), b);  // the one given back last
}

TEST(BlockPool, SharedBlocksStayUntilTheLastReference) {
  BlockPool pool(2);
  const BlockId block = pool.TakeFree();
  pool.AddReference(block);
  EXPECT_EQ(pool.references(block), 2);
  pool.DropReference(block, true);
  EXPECT_EQ(pool.used_count(), 1);
  EXPECT_EQ(pool.cached_count(), 0);
  pool.DropReference(block, true);
  EXPECT_EQ(pool.cached_count(), 1);
  pool.AddReference(block);  // found again
  EXPECT_EQ(pool.references(block), 1);
  EXPECT_EQ(pool.cached_count(), 0);
}

TEST(BlockPool, OldestCachedGoesFirst) {
  BlockPool pool(5);
  std::vector<BlockId> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(pool.TakeFree());
  EXPECT_EQ(pool.TakeFree(), kNoBlock);
  EXPECT_EQ(pool.TakeOldestCached(), kNoBlock);
  for (const int i : {2, 0, 4, 1}) pool.DropReference(blocks[static_cast<size_t>(i)], true);
  EXPECT_EQ(pool.CachedBlocks(), (std::vector<BlockId>{2, 0, 4, 1}));
  pool.AddReference(4);  // from the middle of the order
  EXPECT_EQ(pool.CachedBlocks(), (std::vector<BlockId>{2, 0, 1}));
  EXPECT_EQ(pool.TakeOldestCached(), 2);
  pool.DropReference(4, true);
  EXPECT_EQ(pool.CachedBlocks(), (std::vector<BlockId>{0, 1, 4}));
  EXPECT_EQ(pool.TakeOldestCached(), 0);
  EXPECT_EQ(pool.TakeOldestCached(), 1);
  EXPECT_EQ(pool.TakeOldestCached(), 4);
  EXPECT_EQ(pool.TakeOldestCached(), kNoBlock);
  EXPECT_EQ(pool.used_count(), 5);
}

TEST(BlockPoolDeathTest, BrokenPromisesStop) {
  BlockPool pool(2);
  const BlockId block = pool.TakeFree();
  pool.DropReference(block, false);
  EXPECT_DEATH(pool.DropReference(block, false), "no reference to drop");
  EXPECT_DEATH(pool.AddReference(block), "is free and cannot be shared");
}

}  // namespace
}  // namespace kvasir::cache
