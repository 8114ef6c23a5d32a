// The catalogue beside what the models' makers publish, and beside the families' KV bytes.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "plan/hardware.h"
#include "plan/memory.h"
#include "plan/model_shape.h"

namespace kvasir::plan {
namespace {

ModelShape Shape(std::string_view name) {
  auto shape = FindModelShape(name);
  EXPECT_TRUE(shape.ok()) << shape.error().message;
  return shape.ok() ? *std::move(shape) : ModelShape{};
}

struct Published {
  const char* name;
  double billions;
  double tolerance;  // as far as the figure is rounded
};

// Exact counts are those of the published safetensors; rounded ones the makers' own words. Gemma 3
// from 4B and Llama 4 without their vision parts.
constexpr Published kPublished[] = {
    {"llama-2-7b", 6.738, 0.001},
    {"llama-2-13b", 13.016, 0.001},
    {"llama-2-70b", 68.977, 0.001},
    {"llama-3.1-8b", 8.030, 0.001},
    {"llama-3.1-70b", 70.554, 0.001},
    {"llama-3.1-405b", 405.853, 0.001},
    {"llama-3.2-1b", 1.236, 0.001},
    {"llama-3.2-3b", 3.213, 0.001},
    {"llama-3.3-70b", 70.554, 0.001},
    {"llama-4-scout", 109, 0.015},
    {"llama-4-maverick", 400, 0.01},
    {"qwen2.5-0.5b", 0.494, 0.001},
    {"qwen2.5-1.5b", 1.544, 0.001},
    {"qwen2.5-3b", 3.086, 0.001},
    {"qwen2.5-7b", 7.616, 0.001},
    {"qwen2.5-14b", 14.770, 0.001},
    {"qwen2.5-32b", 32.764, 0.001},
    {"qwen2.5-72b", 72.706, 0.001},
    {"qwen3-0.6b", 0.596, 0.001},
    {"qwen3-1.7b", 1.721, 0.001},
    {"qwen3-4b", 4.022, 0.001},
    {"qwen3-8b", 8.191, 0.001},
    {"qwen3-14b", 14.768, 0.001},
    {"qwen3-32b", 32.762, 0.001},
    {"qwen3-30b-a3b", 30.532, 0.001},
    {"qwen3-235b-a22b", 235.094, 0.001},
    {"qwen3-next-80b", 80, 0.01},
    {"gpt-oss-20b", 20.915, 0.001},
    {"gpt-oss-120b", 116.829, 0.001},
    {"glm-4-9b", 9.400, 0.001},
    {"glm-4-32b", 32.566, 0.001},
    {"glm-4.5", 355, 0.01},
    {"glm-4.5-air", 106, 0.015},
    {"deepseek-v2-lite", 15.706, 0.001},
    {"deepseek-v3", 671.026, 0.001},
    {"deepseek-r1", 671.026, 0.001},
    {"kimi-k2", 1026, 0.005},
    {"mistral-7b", 7.248, 0.001},
    {"mistral-7b-v0.1", 7.242, 0.001},
    {"mistral-nemo-12b", 12.248, 0.001},
    {"mistral-small-24b", 23.572, 0.001},
    {"mixtral-8x7b", 46.703, 0.001},
    {"mixtral-8x22b", 140.63, 0.001},
    {"gemma-2-2b", 2.614, 0.001},
    {"gemma-2-9b", 9.242, 0.001},
    {"gemma-2-27b", 27.227, 0.001},
    {"gemma-3-270m", 0.268, 0.001},
    {"gemma-3-1b", 1.000, 0.001},
    {"gemma-3-4b", 3.880, 0.001},
    {"gemma-3-12b", 11.766, 0.001},
    {"gemma-3-27b", 27.009, 0.001},
    {"phi-3-mini", 3.821, 0.001},
    {"phi-3-medium", 13.960, 0.001},
    {"phi-4", 14.660, 0.001},
    {"phi-4-mini", 3.836, 0.001},
    {"smollm2-135m", 0.134515, 0.0001},
    {"smollm2-360m", 0.361821, 0.0001},
    {"smollm2-1.7b", 1.711, 0.001},
    {"smollm3-3b", 3.075, 0.001},
};

// Used by a token, as the makers say (rounded, some with the embedding table).
constexpr Published kActive[] = {
    {"gpt-oss-120b", 5.13, 0.01},  {"gpt-oss-20b", 3.6, 0.02},   {"deepseek-v3", 37, 0.02},
    {"kimi-k2", 32, 0.02},         {"qwen3-30b-a3b", 3.3, 0.1},  {"qwen3-235b-a22b", 22, 0.03},
    {"glm-4.5", 32, 0.03},         {"glm-4.5-air", 12, 0.07},    {"llama-4-scout", 17, 0.06},
    {"llama-4-maverick", 17, 0.2}, {"mixtral-8x7b", 12.9, 0.02}, {"qwen3-next-80b", 3, 0.3},
};

// 2 bytes a value. Whole, and growing with context (the rest is capped or constant).
struct KvFigure {
  const char* name;
  int64_t bytes;
  int64_t growing;
};
constexpr int64_t kKiB = 1024;
constexpr KvFigure kKv[] = {
    {"llama-2-7b", 512 * kKiB, 512 * kKiB},
    {"llama-3.1-8b", 128 * kKiB, 128 * kKiB},
    {"llama-3.2-1b", 32 * kKiB, 32 * kKiB},
    {"llama-3.2-3b", 112 * kKiB, 112 * kKiB},
    {"llama-3.3-70b", 327'680, 327'680},
    {"llama-2-70b", 327'680, 327'680},
    {"qwen2.5-72b", 327'680, 327'680},
    {"llama-3.1-405b", 504 * kKiB, 504 * kKiB},
    {"llama-4-scout", 192 * kKiB, 48 * kKiB},
    {"llama-4-maverick", 192 * kKiB, 48 * kKiB},
    {"smollm2-135m", 23'040, 23'040},
    {"mistral-7b", 128 * kKiB, 128 * kKiB},
    {"mistral-7b-v0.1", 128 * kKiB, 0},
    {"mistral-nemo-12b", 160 * kKiB, 160 * kKiB},
    {"mistral-small-24b", 160 * kKiB, 160 * kKiB},
    {"qwen2.5-0.5b", 12 * kKiB, 12 * kKiB},
    {"qwen2.5-7b", 56 * kKiB, 56 * kKiB},
    {"qwen3-0.6b", 112 * kKiB, 112 * kKiB},
    {"qwen3-8b", 144 * kKiB, 144 * kKiB},
    {"qwen3-32b", 256 * kKiB, 256 * kKiB},
    {"qwen3-30b-a3b", 96 * kKiB, 96 * kKiB},
    {"qwen3-235b-a22b", 188 * kKiB, 188 * kKiB},
    {"qwen3-next-80b", 24 * kKiB, 24 * kKiB},
    {"phi-4-mini", 128 * kKiB, 128 * kKiB},
    {"gpt-oss-120b", 73'728, 36'864},
    {"gpt-oss-20b", 48 * kKiB, 24 * kKiB},
    {"glm-4-9b", 40 * kKiB, 40 * kKiB},
    {"glm-4-32b", 61 * kKiB, 61 * kKiB},
    {"glm-4.5", 368 * kKiB, 368 * kKiB},
    {"glm-4.5-air", 184 * kKiB, 184 * kKiB},
    {"gemma-3-270m", 18 * kKiB, 3 * kKiB},
    {"deepseek-v2-lite", 31'104, 31'104},
    {"deepseek-v3", 70'272, 70'272},
    {"deepseek-r1", 70'272, 70'272},
    {"kimi-k2", 70'272, 70'272},
    {"deepseek-v3.2", 70'272 + 15'616, 70'272 + 15'616},
};

TEST(PlanCatalogueTest, ModelsEqualWhatIsPublished) {
  for (const Published& published : kPublished) {
    const ModelShape shape = Shape(published.name);
    const double billions = static_cast<double>(shape.ParametersCount()) / 1e9;
    EXPECT_NEAR(billions, published.billions, published.tolerance * published.billions)
        << published.name;
  }
  for (const Published& published : kActive) {
    const double billions =
        static_cast<double>(Shape(published.name).ActiveParametersCount()) / 1e9;
    EXPECT_NEAR(billions, published.billions, published.tolerance * published.billions)
        << published.name << ", used by a token";
  }
  // The published checkpoint counts 684.531 B: with multi-token prediction, and with a scale each
  // 128 x 128 values, 0.041 B.
  const ModelShape v3 = Shape("deepseek-v3");
  EXPECT_NEAR(static_cast<double>(v3.ParametersCount() + v3.skipped_values) / 1e9, 684.490, 0.001);
}

TEST(PlanCatalogueTest, KvBytesATokenByFamily) {
  const NumberFormat bf16 = ParseKvFormat("bf16").value();
  for (const KvFigure& figure : kKv) {
    const ModelShape shape = Shape(figure.name);
    EXPECT_EQ(KvBytesPerToken(shape, bf16), figure.bytes) << figure.name;
    EXPECT_EQ(KvBytesPerTokenGrowing(shape, bf16), figure.growing) << figure.name;
  }
  // 36 states of 32 heads x 128 x 128 floats and 3 inputs of 8,192 convolution channels.
  EXPECT_EQ(KvKinds(Shape("qwen3-next-80b"), bf16).front().bytes_per_sequence,
            36 * (2 * kKiB * kKiB + 48 * kKiB));
}

TEST(PlanCatalogueTest, EveryEntryIsWholeAndSaysWhereItsNumbersAreFrom) {
  std::set<std::string> tested;
  for (const Published& published : kPublished) tested.insert(published.name);
  for (const ModelListing& listing : ModelCatalogue()) {
    EXPECT_FALSE(listing.title.empty() || listing.source.empty()) << listing.name;
    const ModelShape shape = Shape(listing.name);
    EXPECT_GT(shape.max_positions, 0) << listing.name;
    // The same model with an index over the past.
    if (listing.name == "deepseek-v3.2") continue;
    EXPECT_TRUE(tested.contains(listing.name)) << listing.name << " has no published count here";
  }
  for (const char* name : {"a100-40gb", "a100-80gb", "h100-80gb", "h100-pcie-80gb", "h100-nvl-94gb",
                           "h200", "b200", "gh200", "l4", "l40s", "rtx-3090", "rtx-4090",
                           "rtx-5090", "rtx-pro-6000", "mi300x", "epyc-milan-2s"}) {
    const auto machine = FindHardware(name);
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    EXPECT_GT(machine->PeakFlops(Math::kBF16), 1e11) << name;
    EXPECT_FALSE(machine->source.empty());
  }
  // 2 sockets x 8 channels x 3200 MT/s x 8 B; 128 cores x 2.6 GHz x 32.
  const Hardware milan = FindHardware("epyc-milan-2s").value();
  EXPECT_DOUBLE_EQ(milan.bandwidth, 409.6e9);
  EXPECT_DOUBLE_EQ(milan.PeakFlops(Math::kF32), 128 * 2.6e9 * 32);
  EXPECT_EQ(milan.kernels, "avx2");
}

}  // namespace
}  // namespace kvasir::plan
