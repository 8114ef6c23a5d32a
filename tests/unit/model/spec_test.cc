#include "model/spec.h"

#include <gtest/gtest.h>

#include <string>

namespace kvasir::model {
namespace {

/// One letter a layer: F full, w a window of 32, x a window of 64.
ModelSpec SpecOf(const std::string& masks) {
  ModelSpec spec;
  for (const char mask : masks) {
    GroupedQueryAttention attention;
    attention.query_heads = 4;
    attention.kv_heads = 2;
    attention.head_dim = 8;
    if (mask != 'F') attention.mask = {MaskSpec::Kind::kWindow, mask == 'w' ? 32 : 64};
    LayerSpec layer;
    layer.attention = attention;
    spec.layers.push_back(layer);
  }
  AssignCacheGroups(spec);
  return spec;
}

TEST(CacheGroups, OneKindIsOneGroup) {
  const ModelSpec spec = SpecOf("FFFFF");
  ASSERT_EQ(spec.cache_groups.size(), 1u);
  EXPECT_EQ(spec.layers_per_group, 5);
  EXPECT_EQ(spec.cache_groups[0].layers, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(CacheGroups, AlternatingLayersAreCutIntoEqualGroups) {
  const ModelSpec spec = SpecOf("wwwwwFwwwwwFwwwwwF");  // Gemma 3 270M
  ASSERT_EQ(spec.layers_per_group, 3);
  ASSERT_EQ(spec.cache_groups.size(), 6u);
  int full = 0;
  for (const CacheGroup& group : spec.cache_groups) {
    EXPECT_EQ(group.layers.size(), 3u);
    if (group.mask.kind == MaskSpec::Kind::kFull) {
      ++full;
      EXPECT_EQ(group.layers, (std::vector<int>{5, 11, 17}));
    } else {
      EXPECT_EQ(group.mask.window_tokens, 32);
    }
  }
  EXPECT_EQ(full, 1);
}

TEST(CacheGroups, DifferentWindowsDoNotShareATable) {
  const ModelSpec spec = SpecOf("wxwx");
  ASSERT_EQ(spec.cache_groups.size(), 2u);
  EXPECT_EQ(spec.cache_groups[0].layers, (std::vector<int>{0, 2}));
  EXPECT_EQ(spec.cache_groups[1].layers, (std::vector<int>{1, 3}));
}

TEST(CacheGroups, AFewUnusedSlotsAreBetterThanManyGroups) {
  // 4 full and 22 windowed: groups of 4 leave 2 of 28 slots unused; the common divisor is 2.
  const ModelSpec spec = SpecOf("wwwwwFwwwwwFwwwwwFwwwwwFww");
  EXPECT_EQ(spec.layers_per_group, 4);
  EXPECT_EQ(spec.cache_groups.size(), 7u);
  EXPECT_EQ(spec.cache_groups.front().layers.size() + spec.cache_groups.back().layers.size(), 8u);
  // 2 and 3: groups of 2 would leave 1 of 6 unused, more than an eighth.
  EXPECT_EQ(SpecOf("wwFFF").layers_per_group, 1);
}

TEST(CacheGroups, EveryLayerIsInOneGroup) {
  const ModelSpec spec = SpecOf("wFwFxFxFwwwwFFFFxxw");
  std::vector<int> seen(spec.layers.size());
  for (const CacheGroup& group : spec.cache_groups) {
    EXPECT_LE(static_cast<int64_t>(group.layers.size()), spec.layers_per_group);
    for (const int layer : group.layers) {
      ++seen[static_cast<size_t>(layer)];
      EXPECT_EQ(spec.layers[static_cast<size_t>(layer)].gqa().mask, group.mask);
    }
  }
  EXPECT_EQ(seen, std::vector<int>(spec.layers.size(), 1));
}

TEST(CacheGroups, Bytes) {
  const ModelSpec spec = SpecOf("wFwF");
  EXPECT_EQ(spec.KvValuesPerTokenLayer(), 2 * 2 * 8);
  EXPECT_EQ(spec.KvBlockBytes(16, DType::kF16), 16 * 2 * 32 * 2);
  EXPECT_EQ(spec.KvBytesPerToken(DType::kF32), 4 * 32 * 4);
}

}  // namespace
}  // namespace kvasir::model
