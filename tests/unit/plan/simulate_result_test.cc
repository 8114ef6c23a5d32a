#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "plan/simulate/result.h"

namespace kvasir::plan {
namespace {

TEST(Distribution, PercentilesAreWithinABinOfTheExactOnes) {
  Rng rng(7);
  Distribution distribution;
  std::vector<double> values;
  for (int i = 0; i < 10'000; ++i) {
    values.push_back(std::exp(12.0 * rng.Uniform() - 8.0));
    distribution.Add(values.back());
  }
  std::ranges::sort(values);
  for (const double share : {0.01, 0.5, 0.9, 0.99, 0.999}) {
    const double exact = values[static_cast<size_t>(std::ceil(share * 10'000)) - 1];
    EXPECT_NEAR(distribution.Percentile(share), exact, 0.0055 * exact) << share;
  }
  EXPECT_EQ(distribution.Percentile(1.0) <= distribution.max(), true);
  EXPECT_EQ(distribution.max(), values.back());
  EXPECT_EQ(distribution.count(), 10'000);
}

TEST(Distribution, EmptyAndZero) {
  Distribution distribution;
  EXPECT_EQ(distribution.Percentile(0.5), 0);
  EXPECT_EQ(distribution.mean(), 0);
  distribution.Add(0.0, 3);
  distribution.Add(2.0);
  EXPECT_EQ(distribution.Percentile(0.75), 0);
  EXPECT_NEAR(distribution.Percentile(1.0), 2.0, 0.011);
  EXPECT_EQ(distribution.mean(), 0.5);
}

TEST(ServiceLevel, EachPromiseCountsByItself) {
  RequestRecord request{.end = RequestEnd::kFinished,
                        .arrival_s = 1,
                        .first_token_s = 2,
                        .end_s = 4,
                        .output_tokens = 5};
  EXPECT_TRUE(ServiceLevel{}.Met(request));
  EXPECT_TRUE((ServiceLevel{.ttft_s = 1, .itl_s = 0.5, .end_to_end_s = 3}.Met(request)));
  EXPECT_FALSE((ServiceLevel{.ttft_s = 0.9}.Met(request)));
  EXPECT_FALSE((ServiceLevel{.itl_s = 0.4}.Met(request)));
  EXPECT_FALSE((ServiceLevel{.end_to_end_s = 2.9}.Met(request)));
  request.end = RequestEnd::kQueueFull;
  EXPECT_FALSE(ServiceLevel{}.Met(request));
}

}  // namespace
}  // namespace kvasir::plan
