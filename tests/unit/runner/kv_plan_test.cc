#include "runner/kv_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvasir::runner {
namespace {

/// Tensors of given formats and sizes, without bytes.
class FakeWeights final : public files::Weights {
 public:
  void Put(std::string name, DType dtype, int64_t bytes) {
    TensorView view;
    view.dtype = dtype;
    view.bytes = bytes;
    names_.push_back(std::move(name));
    views_.push_back(view);
  }
  [[nodiscard]] const std::vector<std::string>& names() const override { return names_; }
  [[nodiscard]] const TensorView* Find(std::string_view name) const override {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name) return &views_[i];
    }
    return nullptr;
  }
  [[nodiscard]] std::string FileOf(std::string_view) const override { return "none"; }
  void Release(std::span<const std::byte>) const override {}

 private:
  std::vector<std::string> names_;
  std::vector<TensorView> views_;
};

TEST(ChooseKvDTypeTest, AutoFollowsMostBytes) {
  FakeWeights weights;
  EXPECT_EQ(*ChooseKvDType("auto", weights), DType::kF16);
  weights.Put("norm", DType::kF32, 100);
  EXPECT_EQ(*ChooseKvDType("auto", weights), DType::kF32);
  weights.Put("a", DType::kBF16, 80);
  weights.Put("b", DType::kBF16, 80);
  EXPECT_EQ(*ChooseKvDType("auto", weights), DType::kBF16);
  weights.Put("c", DType::kQ4_K, 500);
  EXPECT_EQ(*ChooseKvDType("auto", weights), DType::kF16);
  weights.Put("d", DType::kF16, 900);
  EXPECT_EQ(*ChooseKvDType("auto", weights), DType::kF16);
}

TEST(ChooseKvDTypeTest, NamesAndARefusal) {
  const FakeWeights weights;
  EXPECT_EQ(*ChooseKvDType("f32", weights), DType::kF32);
  EXPECT_EQ(*ChooseKvDType("f16", weights), DType::kF16);
  EXPECT_EQ(*ChooseKvDType("bf16", weights), DType::kBF16);
  const Result<DType> refused = ChooseKvDType("fp8", weights);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "--kv-cache-dtype must be auto, f32, f16 or bf16, got fp8");
}

model::ModelSpec AlternatingSpec() {
  model::ModelSpec spec;
  for (int i = 0; i < 4; ++i) {
    model::LayerSpec layer;
    model::GroupedQueryAttention attention;
    attention.query_heads = 4;
    attention.kv_heads = 2;
    attention.head_dim = 8;
    if (i % 2 == 0) attention.mask = {model::MaskSpec::Kind::kWindow, 32};
    layer.attention = attention;
    spec.layers.push_back(layer);
  }
  model::AssignCacheGroups(spec);
  return spec;
}

TEST(MakeCacheSpecTest, TellsGroupsAndBytes) {
  const CacheSpec cache = MakeCacheSpec(AlternatingSpec(), DType::kF16, 16);
  EXPECT_EQ(cache.block_tokens, 16);
  // Two layers a group, K and V, 2 heads of 8, 2 bytes, 16 tokens.
  EXPECT_EQ(cache.block_bytes, 2 * 2 * 2 * 8 * 2 * 16);
  EXPECT_EQ(cache.blocks_count, 0);
  ASSERT_EQ(cache.groups.size(), 2u);
  EXPECT_EQ(cache.groups[0].kind, CacheGroupSpec::Kind::kSlidingWindow);
  EXPECT_EQ(cache.groups[0].window_tokens, 32);
  EXPECT_EQ(cache.groups[1].kind, CacheGroupSpec::Kind::kFull);
}

KvSizing Sizing() {
  KvSizing sizing;
  sizing.cache = MakeCacheSpec(AlternatingSpec(), DType::kF16, 16);  // 2048 bytes a block
  sizing.blocks_per_request = 10;
  sizing.max_num_seqs = 8;
  sizing.available_bytes = 1'000'000;
  return sizing;
}

TEST(PlanKvTest, FromWhatIsAvailableUpToWhatCanBeUsed) {
  KvSizing sizing = Sizing();
  EXPECT_EQ(PlanKv(sizing)->cache.blocks_count, 80);  // 8 requests of 10 blocks
  sizing.max_num_seqs = 1000;
  EXPECT_EQ(PlanKv(sizing)->cache.blocks_count, 341);  // 0.7 * 1'000'000 / 2048
}

TEST(PlanKvTest, BytesAreRoundedDownToBlocksAndBlocksWin) {
  KvSizing sizing = Sizing();
  sizing.memory_bytes = 2048 * 25 + 2047;
  const KvPlan plan = *PlanKv(sizing);
  EXPECT_EQ(plan.cache.blocks_count, 25);
  EXPECT_EQ(plan.bytes_per_token, 256);
  EXPECT_EQ(plan.tokens_count, 12 * 16);  // each token needs a slot in both groups
  EXPECT_DOUBLE_EQ(plan.requests_count, 2.5);
  EXPECT_EQ(Describe(plan, 77),
            "KV cache: 256 B a token, 25 blocks of 16 tokens (50.0 KiB), 192 tokens, 2.5 requests "
            "of 77 tokens");
  sizing.blocks_count = 7;
  EXPECT_EQ(PlanKv(sizing)->cache.blocks_count, 7);
}

TEST(PlanKvTest, RefusesWhatHoldsNothing) {
  KvSizing sizing = Sizing();
  sizing.memory_bytes = 2048;
  EXPECT_EQ(PlanKv(sizing).error().message,
            "no room for a KV cache: 1 block(s) of 2.0 KiB where the model needs at least 2, one a "
            "group of layers");
  sizing.memory_bytes = 0;
  EXPECT_EQ(PlanKv(sizing).error().param, "kv-cache-memory-bytes");
  sizing.memory_bytes.reset();
  sizing.blocks_count = -3;
  EXPECT_EQ(PlanKv(sizing).error().param, "num-kv-blocks");
  sizing.blocks_count.reset();
  sizing.available_bytes = -5;
  EXPECT_FALSE(PlanKv(sizing).ok());
}

}  // namespace
}  // namespace kvasir::runner
