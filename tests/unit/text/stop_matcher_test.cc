#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace kvasir::text {
namespace {

struct Result {
  std::string text;
  std::optional<size_t> match;
  friend bool operator==(const Result&, const Result&) = default;
};

Result Feed(const std::vector<std::string>& stops, const std::vector<std::string>& pushes,
            bool include_stop = false) {
  StopMatcher matcher(stops, include_stop);
  Result result;
  for (const std::string& push : pushes) {
    StopMatcher::Output output = matcher.Push(push);
    result.text += output.emit;
    result.match = output.match;
    if (result.match.has_value()) return result;
  }
  result.text += matcher.Flush();
  return result;
}

TEST(StopMatcher, PassesTextThroughWithoutStops) {
  StopMatcher matcher({}, false);
  EXPECT_EQ(matcher.Push("any text").emit, "any text");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"</s>", "END"}, false);
  EXPECT_EQ(matcher.Push("abc").emit, "abc");
  EXPECT_EQ(matcher.Push("d<").emit, "d");
  EXPECT_EQ(matcher.Push("/s").emit, "");
  EXPECT_EQ(matcher.Push("x").emit, "</sx");  // no stop begins here any more
  EXPECT_EQ(matcher.Push("EN").emit, "");
  EXPECT_EQ(matcher.Push("E").emit, "EN");  // an E may begin one
  EXPECT_EQ(matcher.Flush(), "E");
}

TEST(StopMatcher, FindsStopsAcrossPushes) {
  EXPECT_EQ(Feed({"stop"}, {"go s", "t", "op now"}), (Result{"go ", 0}));
  EXPECT_EQ(Feed({"stop"}, {"go s", "t", "op now"}, true), (Result{"go stop", 0}));
  EXPECT_EQ(Feed({"aab"}, {"aa", "aa", "b"}), (Result{"aa", 0}));
}

TEST(StopMatcher, EarliestMatchWins) {
  EXPECT_EQ(Feed({"cd", "ab"}, {"abcd"}), (Result{"", 1}));
  EXPECT_EQ(Feed({"abc", "ab"}, {"xabc"}), (Result{"x", 1}));            // complete first
  EXPECT_EQ(Feed({"lo", "hello"}, {"say hello"}), (Result{"say ", 1}));  // complete together
  EXPECT_EQ(Feed({"x", "x"}, {"x"}), (Result{"", 0}));
}

TEST(StopMatcher, AStopAtTheBeginLeavesNothing) {
  EXPECT_EQ(Feed({"\n"}, {"\nabc"}), (Result{"", 0}));
}

// However the text is cut, the outcome is the same, and it is that of a plain search.
TEST(StopMatcher, DoesNotDependOnTheCuts) {
  Rng rng(5);
  for (int round = 0; round < 3000; ++round) {
    const auto random = [&](size_t size_max) {
      std::string text(1 + rng.Below(size_max), 'a');
      for (char& c : text) c = static_cast<char>('a' + rng.Below(2));
      return text;
    };
    std::vector<std::string> stops;
    for (uint64_t i = 0; i <= rng.Below(3); ++i) stops.push_back(random(4) + "b");
    const std::string text = random(24);
    Result expected{text, std::nullopt};
    size_t best_end = std::string::npos;
    for (size_t i = 0; i < stops.size(); ++i) {
      const size_t at = text.find(stops[i]);
      if (at == std::string::npos) continue;
      const size_t end = at + stops[i].size();
      const bool better = end < best_end || (end == best_end && at < expected.text.size());
      if (!better) continue;
      best_end = end;
      expected = {text.substr(0, at), i};
    }
    std::vector<std::string> pushes;
    for (size_t at = 0; at < text.size();) {
      const size_t size = rng.Below(5);
      pushes.push_back(text.substr(at, size));
      at += size;
    }
    ASSERT_EQ(Feed(stops, pushes), expected) << text;
  }
}

TEST(StopMatcher, IsLinearInTheText) {
  StopMatcher matcher({std::string(200'000, 'a') + "b"}, false);
  std::string text;
  for (int i = 0; i < 100; ++i) text += matcher.Push(std::string(10'000, 'a')).emit;
  EXPECT_EQ(text.size(), 800'000u);
  EXPECT_TRUE(matcher.Push("b").match.has_value());
}

TEST(StopMatcherDeathTest, RefusesAnEmptyStop) {
  EXPECT_DEATH(StopMatcher({""}, false), "empty stop string");
}

}  // namespace
}  // namespace kvasir::text
