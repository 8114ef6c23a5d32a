#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace kvasir::model {
namespace {

constexpr int64_t kDims = 64;

RopeScaling Scaling(RopeScaling::Kind kind, double factor, int64_t original) {
  RopeScaling scaling;
  scaling.kind = kind;
  scaling.factor = factor;
  scaling.original_max_positions = original;
  return scaling;
}

double Base(double theta, size_t i) {
  return std::pow(theta, -2.0 * static_cast<double>(i) / kDims);
}

TEST(RopeTable, UnscaledAndLinear) {
  const RopeTableSpec plain = MakeRopeTable(10000.0, kDims, {}, 4096).value();
  const RopeTableSpec linear =
      MakeRopeTable(10000.0, kDims, Scaling(RopeScaling::Kind::kLinear, 4.0, 0), 4096).value();
  ASSERT_EQ(plain.frequencies.size(), 32u);
  EXPECT_EQ(plain.attention_factor, 1.0);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_DOUBLE_EQ(plain.frequencies[i], Base(10000.0, i));
    EXPECT_DOUBLE_EQ(linear.frequencies[i], Base(10000.0, i) / 4.0);
  }
}

TEST(RopeTable, DynamicIsPlainWithinTheOriginalLengthAndFixedBeyond) {
  const RopeScaling scaling = Scaling(RopeScaling::Kind::kDynamic, 4.0, 64);
  const RopeTableSpec within = MakeRopeTable(10000.0, kDims, scaling, 64).value();
  const RopeTableSpec beyond = MakeRopeTable(10000.0, kDims, scaling, 65).value();
  // Hugging Face's base for a sequence of `length`; at factor * original it is the fixed one.
  const double length = 4.0 * 64.0;
  const double theta = 10000.0 * std::pow(4.0 * length / 64.0 - 3.0, 64.0 / 62.0);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_DOUBLE_EQ(within.frequencies[i], Base(10000.0, i));
    EXPECT_NEAR(beyond.frequencies[i] / Base(theta, i), 1.0, 1e-12);
  }
  EXPECT_EQ(beyond, MakeRopeTable(10000.0, kDims, scaling, 256).value());
}

TEST(RopeTable, Llama3KeepsShortWavesAndStretchesLongOnes) {
  RopeScaling scaling = Scaling(RopeScaling::Kind::kLlama3, 8.0, 8192);
  const RopeTableSpec table = MakeRopeTable(500000.0, kDims, scaling, 131072).value();
  bool blended = false;
  for (size_t i = 0; i < 32; ++i) {
    const double f = Base(500000.0, i);
    const double turns = 8192.0 * f / (2.0 * std::numbers::pi);
    const double expected = turns > 4.0   ? f
                            : turns < 1.0 ? f / 8.0
                                          : ((4.0 - turns) * f / 8.0 + (turns - 1.0) * f) / 3.0;
    blended = blended || (turns >= 1.0 && turns <= 4.0);
    EXPECT_NEAR(table.frequencies[i] / expected, 1.0, 1e-12) << i;
  }
  EXPECT_TRUE(blended);
  EXPECT_EQ(table.attention_factor, 1.0);
}

TEST(RopeTable, YarnRampAndAttentionFactor) {
  RopeScaling scaling = Scaling(RopeScaling::Kind::kYarn, 4.0, 32768);
  const RopeTableSpec table = MakeRopeTable(1e6, kDims, scaling, 131072).value();
  // dim(n) = 64 ln(32768 / (2 pi n)) / (2 ln 1e6): 11.8 for n = 32, 19.8 for n = 1.
  EXPECT_DOUBLE_EQ(table.frequencies[11], Base(1e6, 11));
  EXPECT_NEAR(table.frequencies[20], Base(1e6, 20) / 4.0, 1e-18);
  const double stretched = (14.0 - 11.0) / (20.0 - 11.0);
  EXPECT_NEAR(table.frequencies[14], Base(1e6, 14) * (stretched / 4.0 + 1.0 - stretched), 1e-12);
  EXPECT_DOUBLE_EQ(table.attention_factor, 0.1 * std::log(4.0) + 1.0);

  scaling.mscale = scaling.mscale_all_dim = 0.7;
  EXPECT_DOUBLE_EQ(MakeRopeTable(1e6, kDims, scaling, 1).value().attention_factor, 1.0);
  scaling.attention_factor = 1.25;
  EXPECT_DOUBLE_EQ(MakeRopeTable(1e6, kDims, scaling, 1).value().attention_factor, 1.25);
}

TEST(RopeTable, LongropeChoosesItsFactorsByTheLongestSequence) {
  RopeScaling scaling = Scaling(RopeScaling::Kind::kLongrope, 1.0, 4096);
  scaling.max_positions = 131072;
  scaling.short_factors.assign(32, 1.5);
  scaling.long_factors.assign(32, 6.0);
  const RopeTableSpec at_original = MakeRopeTable(10000.0, kDims, scaling, 4096).value();
  const RopeTableSpec beyond = MakeRopeTable(10000.0, kDims, scaling, 4097).value();
  EXPECT_DOUBLE_EQ(at_original.frequencies[3], Base(10000.0, 3) / 1.5);
  EXPECT_DOUBLE_EQ(beyond.frequencies[3], Base(10000.0, 3) / 6.0);
  const double factor = std::sqrt(1.0 + std::log(32.0) / std::log(4096.0));
  EXPECT_DOUBLE_EQ(at_original.attention_factor, factor);
  EXPECT_DOUBLE_EQ(beyond.attention_factor, factor);
}

TEST(RopeTable, RefusesNumbersThatMeanNothing) {
  const auto message = [](const Result<RopeTableSpec>& table) {
    return table.ok() ? std::string("accepted") : table.error().message;
  };
  EXPECT_EQ(message(MakeRopeTable(0.5, kDims, {}, 1)),
            "rope: base (rope_theta) is 0.5, expected more than 1");
  EXPECT_EQ(message(MakeRopeTable(1e4, 7, {}, 1)),
            "rope: 7 rotated dims (head_dim), expected an even number >= 2");
  EXPECT_EQ(message(MakeRopeTable(1e4, kDims, Scaling(RopeScaling::Kind::kLinear, 0.0, 0), 1)),
            "rope: scaling factor is 0, expected a positive number");
  EXPECT_EQ(message(MakeRopeTable(1e4, kDims, Scaling(RopeScaling::Kind::kYarn, 2.0, 0), 1)),
            "rope: original_max_position_embeddings is 0, expected at least 1");
  RopeScaling scaling = Scaling(RopeScaling::Kind::kLongrope, 1.0, 16);
  scaling.short_factors = {1.0, 2.0};
  EXPECT_EQ(message(MakeRopeTable(1e4, kDims, scaling, 1)),
            "rope: expected 32 factors (half the rotated dims), got 2");
  scaling.short_factors.assign(32, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(message(MakeRopeTable(1e4, kDims, scaling, 1)),
            "rope: factor 0 is nan, expected a positive number");
}

TEST(RopeTable, GrowsWithoutChangingWhatWasThere) {
  RopeTableSpec spec = MakeRopeTable(10000.0, 8, {}, 1).value();
  spec.attention_factor = 2.0;
  RopeTable step_by_step(spec);
  RopeTable at_once(spec);
  at_once.Grow(300);
  for (const int64_t count : {1, 2, 17, 300}) step_by_step.Grow(count);
  for (size_t i = 0; i < 300 * 4; ++i) {
    ASSERT_EQ(step_by_step.cos()[i], at_once.cos()[i]);
    ASSERT_EQ(step_by_step.sin()[i], at_once.sin()[i]);
  }
  EXPECT_EQ(at_once.cos()[0], 2.0f);
  EXPECT_FLOAT_EQ(at_once.sin()[299 * 4], static_cast<float>(2.0 * std::sin(299.0)));
  EXPECT_EQ(at_once.rotated_dims(), 8);
}

}  // namespace
}  // namespace kvasir::model
