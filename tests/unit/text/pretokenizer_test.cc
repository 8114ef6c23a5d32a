// Words as Hugging Face's tokenizers cut them.
#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/data.h"
#include "text/pretokenizer_regex.h"
#include "text/pretokenizer_scanners.h"

namespace kvasir::text {
namespace {

using nlohmann::json;

std::vector<uint32_t> Ends(const PreTokenizer& pretokenizer, const std::string& text) {
  Words words;
  pretokenizer.Cut(text, true, words);
  std::vector<uint32_t> ends;
  for (const Span word : words.spans) ends.push_back(word.end);
  return ends;
}

PreTokenizer OneStep(std::unique_ptr<PreTokenizerStep> step) {
  PreTokenizer::Steps steps;
  steps.push_back(std::move(step));
  return PreTokenizer(std::move(steps));
}

// Random strings over an alphabet of characters that patterns tell apart, cut by Oniguruma.
TEST(PreTokenizerFamilies, EqualTheirRegularExpressions) {
  const json golden = json::parse(test::ReadFile(test::DataPath("tokenizers/families.json.xz")));
  for (const auto& [name, pattern] : golden["patterns"].items()) {
    SCOPED_TRACE(name);
    auto step = MakeStepOfKnownPattern(pattern.get<std::string>(), /*whole_cover=*/false);
    if (name == "cl100k") {  // left to the regex engine
      EXPECT_EQ(step, nullptr);
      continue;
    }
    if (name == "kimi") {
      EXPECT_EQ(step, nullptr);  // files hold it in no form that PCRE2 or Oniguruma reads
      step = MakeFamilyStep(PatternFamily::kKimi);
    }
    ASSERT_NE(step, nullptr) << "the pattern is not recognized";
    const PreTokenizer pretokenizer = OneStep(std::move(step));
    for (size_t i = 0; i < golden["texts"].size(); ++i) {
      const std::string text = golden["texts"][i];
      ASSERT_EQ(Ends(pretokenizer, text), golden["ends"][name][i].get<std::vector<uint32_t>>())
          << json(text).dump();
    }
  }
}

// The regex engine gives the same for the same patterns.
TEST(PreTokenizerRegex, EqualsOniguruma) {
  const json golden = json::parse(test::ReadFile(test::DataPath("tokenizers/families.json.xz")));
  for (const auto& [name, pattern] : golden["patterns"].items()) {
    SCOPED_TRACE(name);
    auto matcher = MakeRegexMatcher(pattern.get<std::string>());
    if (name == "kimi") {
      ASSERT_FALSE(matcher.ok());
      EXPECT_NE(matcher.error().message.find("sets inside a set"), std::string::npos);
      continue;
    }
    ASSERT_TRUE(matcher.ok()) << matcher.error().message;
    const PreTokenizer pretokenizer = OneStep(
        MakeSplitStep(std::move(matcher).value(), SplitBehavior::kIsolated, /*invert=*/false));
    for (size_t i = 0; i < golden["texts"].size(); ++i) {
      const std::string text = golden["texts"][i];
      ASSERT_EQ(Ends(pretokenizer, text), golden["ends"][name][i].get<std::vector<uint32_t>>())
          << json(text).dump();
    }
  }
}

TEST(PreTokenizerRegex, RefusesBrokenPatterns) {
  for (const char* pattern : {"(", "[a", "\\h+", "[a[b]]", "a{2,1}", "a{2,3}+"}) {
    EXPECT_FALSE(MakeRegexMatcher(pattern).ok()) << pattern;
  }
  EXPECT_FALSE(MakeRegexMatcher(std::string(100'000, 'a')).ok());
}

// A pattern that backtracks for ever over one long word, and one that looks to its end at every
// digit: both end, and lose no text.
TEST(PreTokenizerRegex, EndsOnHostileText) {
  for (const char* pattern : {"(a+)+$", R"(\d{1,3}(?=(?:\d{3})*\b))"}) {
    auto matcher = MakeRegexMatcher(pattern);
    ASSERT_TRUE(matcher.ok());
    const PreTokenizer pretokenizer = OneStep(
        MakeSplitStep(std::move(matcher).value(), SplitBehavior::kIsolated, /*invert=*/false));
    const std::string text = std::string(40'000, pattern[1] == 'a' ? 'a' : '1') + "b";
    EXPECT_EQ(Ends(pretokenizer, text).back(), text.size());
  }
}

TEST(PreTokenizerJson, RefusesWhatItDoesNotKnow) {
  const auto message = [](const char* text) {
    const auto plan = ParsePreTokenizer(json::parse(text));
    return plan.ok() ? std::string() : plan.error().message;
  };
  EXPECT_EQ(message(R"({"type":"UnicodeScripts"})"),
            "pre_tokenizer UnicodeScripts is not supported");
  EXPECT_EQ(message(R"({"type":"Split","pattern":{"String":"a"},"behavior":"Sideways"})"),
            "pre_tokenizer Split: behavior must be Removed, Isolated, MergedWithPrevious, "
            "MergedWithNext or Contiguous");
  EXPECT_EQ(message(R"({"type":"Metaspace","prepend_scheme":"last"})"),
            "pre_tokenizer Metaspace: prepend_scheme must be always, first or never");
  EXPECT_EQ(message("[1]"), "pre_tokenizer: expected an object with a type");
  std::string nested = R"({"type":"Digits"})";
  for (int i = 0; i < 12; ++i) {
    nested.insert(0, R"({"type":"Sequence","pretokenizers":[)").append("]}");
  }
  EXPECT_EQ(message(nested.c_str()), "pre_tokenizer: too many or too deeply nested steps");
}

TEST(PreTokenizerGguf, RefusesUnknownNames) {
  const auto unknown = GgufPreTokenizerByName("no-such-thing");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message,
            "tokenizer.ggml.pre: the pre-tokenizer \"no-such-thing\" is not supported");
}

struct GgufCase {
  const char* name;
  const char* text;
  std::vector<uint32_t> ends;
};

// Cuts worked out by hand from the patterns that the names stand for.
TEST(PreTokenizerGguf, NamesStandForTheirPatterns) {
  const GgufCase cases[] = {
      {"smollm", "ab 12 c", {2, 3, 4, 5, 7}},
      {"llama-bpe", "12345 x's", {3, 5, 7, 9}},
      {"qwen2", "12 x", {1, 2, 4}},
      {"seed-coder", "a!\nb", {1, 2, 3, 4}},
      {"gpt-4o", "HelloWorld's", {5, 12}},
      {"tiny_aya", "1234567", {1, 4, 7}},
      {"deepseek-v3", "1234中文b", {3, 4, 10, 11}},
      {"deepseek-llm", "ab, c\n1", {2, 3, 5, 6, 7}},
      {"falcon", "a--b12345", {1, 3, 4, 7, 9}},
      {"default", "a--b 12345", {1, 3, 4, 5, 8, 10}},
      {"bloom", "a b,c", {1, 3, 4, 5}},
      {"viking", "a b1,c", {1, 3, 4, 5, 6}},
      {"gemma4", "a b\n\nc", {3, 5, 6}},
      {"superbpe", "ab1234567", {2, 3, 6, 9}},
      {"minicpm5", "1234 a", {3, 4, 6}},
      {"laguna", "a\n\n1", {1, 3, 4}},
      {"whitespace", "ab  c", {2, 4, 5}},
  };
  for (const GgufCase& row : cases) {
    auto found = GgufPreTokenizerByName(row.name);
    ASSERT_TRUE(found.ok()) << row.name;
    EXPECT_EQ(Ends(PreTokenizer(std::move(found->steps)), row.text), row.ends) << row.name;
  }
}

}  // namespace
}  // namespace kvasir::text
