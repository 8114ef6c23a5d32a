#include <gtest/gtest.h>

#include <algorithm>

#include "plan/simulate/load_search.h"

namespace kvasir::plan {
namespace {

LoadSearch Find(double limit, const LoadSearchOptions& options) {
  return FindLoad(options, [&](double load) {
    Summary summary;
    summary.slo_share = load <= limit ? 1.0 : 0.5;
    return summary;
  });
}

TEST(LoadSearch, FindsTheLastUserThatFits) {
  for (const double limit : {1.0, 2.0, 3.0, 7.0, 40.0, 49.0}) {
    const LoadSearch search = Find(limit, {});
    EXPECT_EQ(search.most, limit);
    EXPECT_TRUE(search.bounded);
    EXPECT_LE(search.points.size(), 14u);
    EXPECT_TRUE(std::ranges::is_sorted(search.points, {}, &LoadPoint::load));
  }
  EXPECT_NEAR(Find(10'007, {}).most, 10'007, 200);
  EXPECT_EQ(Find(23, {.first = 16}).most, 23);
  EXPECT_EQ(Find(5, {.first = 16}).most, 5);
}

TEST(LoadSearch, FindsARateWithinItsPrecision) {
  const LoadSearchOptions options{.whole = false, .least = 0.001};
  for (const double limit : {0.004, 0.3, 1.0, 17.3, 900.0}) {
    EXPECT_LE(Find(limit, options).most, limit);
    EXPECT_GE(Find(limit, options).most, 0.98 * limit);
  }
}

TEST(LoadSearch, SaysWhereThereIsNoLimitOrNothingFits) {
  EXPECT_EQ(Find(0, {}).most, 0);
  EXPECT_EQ(Find(0, {.whole = false, .least = 0.25}).points.size(), 3u);
  const LoadSearch all = Find(1e9, {.largest = 100});
  EXPECT_EQ(all.most, 100);
  EXPECT_FALSE(all.bounded);
}

}  // namespace
}  // namespace kvasir::plan
