// Exact decoding of every stored format.
#include "tensor/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "support/data.h"
#include "tensor/blocks.h"
#include "tensor/float16.h"
#include "tensor/tensor.h"

namespace kvasir {
namespace {

template <typename T>
std::vector<float> Decode(DType dtype, const std::vector<T>& stored) {
  std::vector<float> out(stored.size());
  Dequantize(dtype, reinterpret_cast<const std::byte*>(stored.data()), out);
  return out;
}

// Random blocks with the largest and the smallest scales, decoded by another implementation.
TEST(Dequantize, EqualsGoldenValuesOfEveryBlockFormatToTheBit) {
  for (const char* name :
       {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"}) {
    SCOPED_TRACE(name);
    const std::string blocks =
        test::ReadFile(test::DataPath(std::string("tensor/") + name + ".blocks"));
    const std::string golden =
        test::ReadFile(test::DataPath(std::string("tensor/") + name + ".values"));
    const DType dtype = DTypeFromName(name).value();
    const DTypeInfo& info = Info(dtype);
    ASSERT_EQ(blocks.size() % static_cast<size_t>(info.block_bytes), 0u);
    const size_t count = golden.size() / sizeof(float);
    ASSERT_EQ(static_cast<int64_t>(count),
              static_cast<int64_t>(blocks.size()) / info.block_bytes * info.block_values);
    ASSERT_GE(count, 6u * static_cast<size_t>(info.block_values));
    std::vector<uint32_t> expected(count);
    std::memcpy(expected.data(), golden.data(), golden.size());
    std::vector<float> values(count);
    Dequantize(dtype, reinterpret_cast<const std::byte*>(blocks.data()), values);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), expected[i])
          << "value " << i << ": " << values[i] << ", expected "
          << std::bit_cast<float>(expected[i]);
    }
  }
}

// The sums of a block's minimum and scaled code are rounded once: as a double sum rounded to float.
TEST(Dequantize, RoundsOnce) {
  Rng rng(1);
  for (int round = 0; round < 2000; ++round) {
    BlockQ5_1 block;
    auto* bytes = reinterpret_cast<uint8_t*>(&block);
    for (size_t i = 0; i < sizeof(block); ++i) bytes[i] = static_cast<uint8_t>(rng.Next());
    block.d &= 0xBBFF;  // finite
    block.m &= 0xBBFF;
    float values[32];
    Dequantize(DType::kQ5_1, reinterpret_cast<const std::byte*>(&block), values);
    const double d = HalfToFloat(block.d);
    const double m = HalfToFloat(block.m);
    for (int j = 0; j < 32; ++j) {
      const int low = j < 16 ? block.qs[j] & 15 : block.qs[j - 16] >> 4;
      const int q = low + 16 * (block.qh[j / 8] >> (j % 8) & 1);
      ASSERT_EQ(values[j], static_cast<float>(d * q + m));
    }
  }
}

TEST(Dequantize, ReadsAnyAddress) {
  BlockQ4_0 block = {};
  block.d = FloatToHalf(0.5f);
  block.qs[0] = 0xF1;
  std::byte storage[sizeof(block) + 1];
  std::memcpy(storage + 1, &block, sizeof(block));
  float values[32];
  Dequantize(DType::kQ4_0, storage + 1, values);
  EXPECT_EQ(values[0], -3.5f);
  EXPECT_EQ(values[16], 3.5f);
  EXPECT_EQ(values[1], -4.0f);
}

TEST(Dequantize, PlainFormats) {
  const std::vector<float> floats = {0.0f, -1.5f, 3e38f};
  EXPECT_EQ(Decode(DType::kF32, floats), floats);
  EXPECT_EQ(Decode<uint16_t>(DType::kF16, {0x3C00, 0xC000, 0x0001, 0x7BFF}),
            (std::vector<float>{1.0f, -2.0f, 0x1p-24f, 65504.0f}));
  EXPECT_EQ(Decode<uint16_t>(DType::kBF16, {0x3F80, 0xC000, 0x0001}),
            (std::vector<float>{1.0f, -2.0f, 0x1p-133f}));
  EXPECT_EQ(Decode<double>(DType::kF64, {0.1, -2.0}), (std::vector<float>{0.1f, -2.0f}));
  EXPECT_EQ(Decode<int8_t>(DType::kI8, {-128, 127}), (std::vector<float>{-128, 127}));
  EXPECT_EQ(Decode<int16_t>(DType::kI16, {-32768, 5}), (std::vector<float>{-32768, 5}));
  EXPECT_EQ(Decode<int32_t>(DType::kI32, {16777217, -3}), (std::vector<float>{16777216.0f, -3}));
  EXPECT_EQ(Decode<int64_t>(DType::kI64, {int64_t{1} << 40, -1}),
            (std::vector<float>{0x1p40f, -1}));
  EXPECT_EQ(Decode<uint8_t>(DType::kU8, {0, 255}), (std::vector<float>{0, 255}));
  EXPECT_EQ(Decode<uint8_t>(DType::kBool, {0, 1}), (std::vector<float>{0, 1}));
}

TEST(Dequantize, F8E4M3HasItsTableValues) {
  EXPECT_EQ(F8E4M3ToFloat(0x38), 1.0f);
  EXPECT_EQ(F8E4M3ToFloat(0xB8), -1.0f);
  EXPECT_EQ(F8E4M3ToFloat(0x7E), 448.0f);
  EXPECT_EQ(F8E4M3ToFloat(0x08), 0x1p-6f);
  EXPECT_EQ(F8E4M3ToFloat(0x01), 0x1p-9f);
  EXPECT_TRUE(std::signbit(F8E4M3ToFloat(0x80)));
  EXPECT_TRUE(std::isnan(F8E4M3ToFloat(0x7F)));
  EXPECT_TRUE(std::isnan(F8E4M3ToFloat(0xFF)));
  // Positive codes ascend, each step the one its exponent gives.
  for (int code = 1; code < 0x7F; ++code) {
    const float step = std::ldexp(1.0f, std::max(1, (code - 1) >> 3) - 10);
    EXPECT_EQ(F8E4M3ToFloat(static_cast<uint8_t>(code)),
              F8E4M3ToFloat(static_cast<uint8_t>(code - 1)) + step);
  }
}

TEST(Dequantize, F8E5M2IsAHalfCutShort) {
  EXPECT_EQ(F8E5M2ToFloat(0x3C), 1.0f);
  EXPECT_EQ(F8E5M2ToFloat(0x7B), 57344.0f);
  EXPECT_EQ(F8E5M2ToFloat(0x01), 0x1p-16f);
  EXPECT_EQ(F8E5M2ToFloat(0xFC), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(F8E5M2ToFloat(0x7D)));
}

TEST(DequantizeRow, FindsItsRow) {
  std::vector<BlockQ8_0> blocks(6);  // [3, 64]
  for (size_t b = 0; b < blocks.size(); ++b) {
    blocks[b].d = FloatToHalf(1.0f);
    for (int8_t& q : blocks[b].qs) q = static_cast<int8_t>(b);
  }
  const TensorView view{
      DType::kQ8_0, {3, 64}, reinterpret_cast<const std::byte*>(blocks.data()), 6 * 34};
  std::vector<float> row(64);
  DequantizeRow(view, 2, row);
  EXPECT_EQ(row[0], 4.0f);
  EXPECT_EQ(row[31], 4.0f);
  EXPECT_EQ(row[32], 5.0f);
  const std::vector<float> all = ToFloat(view);
  EXPECT_EQ(std::vector<float>(all.begin() + 128, all.end()), row);
  EXPECT_DEATH(DequantizeRow(view, 3, row), "row 3 of 3");
  EXPECT_DEATH(DequantizeRow(view, 0, std::span(row).first(32)), "32 values for a row of 64");
}

}  // namespace
}  // namespace kvasir
