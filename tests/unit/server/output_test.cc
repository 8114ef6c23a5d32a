// The way of a choice's text: whatever the stop strings and wherever tokens are cut.
#include "server/output.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "unit/server/server_fixture.h"

namespace kvasir::server::test {
namespace {

TokenEvent Event(TokenId token, FinishReason finish = FinishReason::kNone) {
  TokenEvent event;
  event.token = token;
  event.finish = finish;
  if (finish == FinishReason::kStop) event.stop_token = token;
  return event;
}

// The match that is complete first wins, the longest of those that end together.
std::string Expected(const std::string& text, const std::vector<std::string>& stops, bool include,
                     std::optional<std::string>& matched) {
  size_t best_end = std::string::npos;
  for (const std::string& stop : stops) {
    const size_t at = text.find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end < best_end || (end == best_end && stop.size() > matched->size())) {
      best_end = end;
      matched = stop;
    }
  }
  if (!matched) return text;
  return text.substr(0, include ? best_end : best_end - matched->size());
}

TEST(Output, EqualsASearchInTheWholeText) {
  Rng rng(1);
  const std::vector<std::string> pieces = {
      "a", "b", "ab", "ba", "abc", "\xC3\xA9", "\xF0\x9F\x98\x80", " "};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    const int64_t length = rng.Between(0, 14);
    for (int64_t i = 0; i < length; ++i) text += pieces[rng.Below(pieces.size())];
    std::vector<std::string> stops;
    const int64_t stops_count = rng.Between(0, 3);
    for (int64_t i = 0; i < stops_count; ++i) {
      std::string stop;
      for (int64_t j = rng.Between(1, 3); j > 0; --j) stop += pieces[rng.Below(pieces.size())];
      stops.push_back(stop);
    }
    OutputOptions options;
    options.stop = stops;
    options.include_stop = rng.Chance(0.5);
    options.primary_eos = kEos;
    ChoiceOutput output(TestTokenizer(), Ids("prompt"), options);
    std::string got;
    std::optional<Finish> finish;
    const std::vector<TokenId> ids = Ids(text);
    for (const TokenId id : ids) {
      if (finish) break;
      const OutputStep step = output.Push(Event(id));
      got += step.text;
      finish = step.finish;
    }
    if (!finish) {
      const OutputStep step = output.Push(Event(kEos, FinishReason::kStop));
      got += step.text;
      finish = step.finish;
    }
    std::optional<std::string> matched;
    const std::string expected = Expected(text, stops, options.include_stop, matched);
    ASSERT_EQ(got, expected) << text;
    ASSERT_TRUE(finish);
    EXPECT_EQ(finish->reason, "stop");
    if (matched) {
      EXPECT_EQ(std::get<std::string>(finish->stop_reason), *matched);
    } else {
      EXPECT_TRUE(std::holds_alternative<std::monostate>(finish->stop_reason));
    }
  }
}

TEST(Output, AnIncompleteCharacterAtTheEndIsShownOnce) {
  const std::vector<TokenId> ids = Ids("\xF0\x9F\x98\x80");
  ASSERT_GE(ids.size(), 2u);
  ChoiceOutput output(TestTokenizer(), {}, OutputOptions{});
  std::string text = output.Push(Event(ids[0], FinishReason::kLength)).text;
  EXPECT_EQ(text, "\xEF\xBF\xBD");
  EXPECT_TRUE(output.finished());
}

TEST(Output, StopTokensBesideTheEnd) {
  OutputOptions options;
  options.primary_eos = kEos;
  ChoiceOutput output(TestTokenizer(), {}, options);
  const OutputStep step = output.Push(Event(4, FinishReason::kStop));
  EXPECT_EQ(step.text, "");
  EXPECT_EQ(std::get<TokenId>(step.finish->stop_reason), 4);
}

}  // namespace
}  // namespace kvasir::server::test
