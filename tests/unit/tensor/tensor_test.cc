// Formats, shapes and the 16-bit floats.
#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/rng.h"
#include "tensor/dtype.h"
#include "tensor/float16.h"

namespace kvasir {
namespace {

TEST(DType, NamesAreFoundAgain) {
  for (int i = 0; i <= static_cast<int>(DType::kIQ4_NL); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromName(Info(dtype).name), dtype);
    EXPECT_GT(Info(dtype).block_bytes, 0);
  }
  EXPECT_EQ(DTypeFromName("Q9_X"), std::nullopt);
  EXPECT_EQ(Info(DType::kBF16).name, "BF16");
  EXPECT_EQ(Info(DType::kQ6_K).name, "Q6_K");
}

TEST(DType, RowBytes) {
  EXPECT_EQ(RowBytes(DType::kF16, 10), 20);
  EXPECT_EQ(RowBytes(DType::kQ4_1, 576), 18 * 20);
  EXPECT_EQ(RowBytes(DType::kQ6_K, 512), 420);
  EXPECT_EQ(RowBytes(DType::kF32, 0), 0);
  EXPECT_DEATH((void)RowBytes(DType::kQ4_K, 128), "128 Q4_K");
}

TEST(Tensor, RowsAndCols) {
  TensorView view;
  EXPECT_EQ(view.rows(), 1);
  EXPECT_EQ(view.cols(), 1);
  view.shape = {7};
  EXPECT_EQ(view.rows(), 1);
  EXPECT_EQ(view.cols(), 7);
  view.shape = {2, 3, 5};
  EXPECT_EQ(view.rows(), 6);
  EXPECT_EQ(view.cols(), 5);
  EXPECT_EQ(ElementCount(view.shape), 30);
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(ElementCount({4, 0}), 0);
  EXPECT_EQ(ToString(view.shape), "[2, 3, 5]");
  EXPECT_EQ(ToString({}), "[]");
}

TEST(Float16, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      ASSERT_EQ(FloatToHalf(value), half) << bits;
    }
  }
}

#ifndef __clang__  // clang 14 has no _Float16 here
// Against the compiler's own conversion.
TEST(Float16, FloatToHalfRoundsToNearestEven) {
  Rng rng(7);
  for (int i = 0; i < 300'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(rng.Next()));
    if (std::isnan(value)) continue;
    const auto expected = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
    ASSERT_EQ(FloatToHalf(value), expected) << value;
    // Most random floats are out of a half's range: try one inside too.
    const auto near = static_cast<float>((rng.Uniform() - 0.5) *
                                         std::ldexp(1.0, static_cast<int>(rng.Below(40)) - 24));
    ASSERT_EQ(FloatToHalf(near), std::bit_cast<uint16_t>(static_cast<_Float16>(near))) << near;
  }
}
#endif

TEST(Float16, FloatToBf16RoundsToNearestEven) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3F80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F808000u)), 0x3F80);  // a tie, to even
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F808001u)), 0x3F81);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::infinity()), 0x7F80);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::bit_cast<float>(0x7F800001u)))));
}

}  // namespace
}  // namespace kvasir
