#include "sample/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/rng.h"

namespace kvasir::sample {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomRow(Rng& rng, size_t count, bool coarse) {
  std::vector<float> row(count);
  for (float& logit : row) {
    const double value = (rng.Uniform() + rng.Uniform() - 1.0) * 20.0;
    logit = static_cast<float>(coarse ? std::round(value) : value);
  }
  return row;
}

TEST(RowLogprobsTest, AreTheLogSoftmaxRankedAndSorted) {
  Rng rng(5);
  for (const size_t count :
       {size_t{1}, size_t{3}, size_t{64}, size_t{65}, size_t{1000}, size_t{5003}}) {
    for (const bool coarse : {false, true}) {
      const std::vector<float> row = RandomRow(rng, count, coarse);
      const RowLogprobs logprobs = std::move(RowLogprobs::Make(row)).value();
      double sum = 0.0;
      for (const float logit : row) sum += std::exp(static_cast<double>(logit));
      std::vector<TokenId> order(count);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
        return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
      });
      for (const int64_t top_count :
           {int64_t{0}, int64_t{1}, int64_t{20}, int64_t{300}, int64_t{6000}}) {
        const auto top = logprobs.Top(top_count);
        ASSERT_EQ(top.size(), std::min<size_t>(count, static_cast<size_t>(top_count)));
        for (size_t i = 0; i < top.size(); ++i) {
          ASSERT_EQ(top[i].first, order[i]);
          ASSERT_EQ(top[i].second, logprobs.Of(order[i]));
        }
      }
      for (size_t i = 0; i < count; i += 7) {
        const auto logit = static_cast<double>(row[static_cast<size_t>(order[i])]);
        ASSERT_NEAR(logprobs.Of(order[i]), logit - std::log(sum), 3e-6);
        ASSERT_EQ(logprobs.Rank(order[i]), static_cast<int32_t>(i + 1));
      }
    }
  }
}

TEST(RowLogprobsTest, LargeLogitsDoNotOverflowAndMaskedOnesAreMinusInfinity) {
  const std::vector<float> row = {1000.0f, 1000.0f, -kInfinity, 990.0f};
  const RowLogprobs logprobs = std::move(RowLogprobs::Make(row)).value();
  EXPECT_NEAR(logprobs.Of(0), -std::log(2.0 + std::exp(-10.0)), 1e-6);
  EXPECT_EQ(logprobs.Of(2), -kInfinity);
  EXPECT_EQ(logprobs.Rank(2), 4);
  EXPECT_EQ(logprobs.Rank(1), 2);
}

TEST(RowLogprobsTest, ForGathersAll) {
  const std::vector<float> row = {0.0f, 3.0f, 1.0f, 2.0f};
  const RowLogprobs logprobs = std::move(RowLogprobs::Make(row)).value();
  const std::vector<TokenId> selected = {2, 9, -1, 0};
  const TokenLogprobs all = logprobs.For(0, 2, selected);
  EXPECT_EQ(all.token, 0);
  EXPECT_EQ(all.rank, 4);
  EXPECT_EQ(all.logprob, logprobs.Of(0));
  EXPECT_EQ(all.top,
            (std::vector<std::pair<TokenId, float>>{{1, logprobs.Of(1)}, {3, logprobs.Of(3)}}));
  EXPECT_EQ(all.selected,
            (std::vector<std::pair<TokenId, float>>{{2, logprobs.Of(2)}, {0, logprobs.Of(0)}}));
}

TEST(RowLogprobsTest, RefusesWhatIsNoDistribution) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& row : std::vector<std::vector<float>>{
           {kNan, 1.0f}, {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, kNan}, {kInfinity, 0.0f}, {-kInfinity}}) {
    const Result<RowLogprobs> logprobs = RowLogprobs::Make(row);
    ASSERT_FALSE(logprobs.ok());
    EXPECT_EQ(logprobs.error().code, ErrorCode::kInternal);
  }
}

TEST(ExpWeightsTest, AreWithinTwoUnitsOfTheExponential) {
  std::vector<float> row;
  for (double x = 0.0; x > -86.9; x -= 0.00137) row.push_back(static_cast<float>(x));
  std::vector<float> weights(row.size());
  std::vector<double> block_sums;
  const double total = ExpWeights(row, 0.0f, 1.0f, 0.0f, weights, block_sums);
  double sum = 0.0;
  for (size_t i = 0; i < row.size(); ++i) {
    const double exact = std::exp(static_cast<double>(row[i]));
    ASSERT_NEAR(static_cast<double>(weights[i]) / exact, 1.0, 2.4e-7) << row[i];
    sum += exact;
  }
  EXPECT_NEAR(total / sum, 1.0, 1e-7);
  EXPECT_NEAR(std::accumulate(block_sums.begin(), block_sums.end(), 0.0), total, 1e-9 * total);
  EXPECT_NEAR(ExpSum(row, 0.0f), total, 1e-9 * total);
}

}  // namespace
}  // namespace kvasir::sample
