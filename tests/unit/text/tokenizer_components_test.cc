// Small tokenizers that together use every component give what Hugging Face's tokenizers give.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/data.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace kvasir::text {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

/// All at once, as a stream from the begin of the text.
std::string Stream(const Tokenizer& tokenizer, const Ids& ids) {
  Detokenizer stream(tokenizer, {}, /*skip_special_tokens=*/true);
  std::string text;
  for (const int32_t id : ids) text += stream.Push(id);
  return text + stream.Flush();
}

TEST(TokenizerComponents, EqualHuggingFace) {
  const json golden = json::parse(test::ReadFile(test::DataPath("tokenizers/components.json.xz")));
  ASSERT_GT(golden.size(), 60u);
  for (const json& entry : golden) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    const auto tokenizer = Tokenizer::FromHuggingFace(entry["tokenizer"].dump(), nullptr);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const Tokenizer& made = **tokenizer;
    for (const json& row : entry["cases"]) {
      SCOPED_TRACE(row["text"].dump());
      const std::string text = row["text"];
      const Ids ids = row["ids"];
      EXPECT_EQ(made.Encode(text), ids);
      EXPECT_EQ(made.Encode(text, {.add_special_tokens = false}), Ids(row["plain"]));
      EXPECT_EQ(made.Encode(text, {.add_special_tokens = false, .parse_special = false}),
                Ids(row["as_text"]));
      EXPECT_EQ(made.Decode(ids, true), row["decoded"].get<std::string>());
      EXPECT_EQ(made.Decode(ids, false), row["decoded_with_special"].get<std::string>());
      EXPECT_EQ(Stream(made, ids), row["decoded"].get<std::string>());
    }
    for (const json& row : entry["decode"]) {
      EXPECT_EQ(made.Decode(Ids(row["ids"]), true), row["decoded"].get<std::string>())
          << row["ids"].dump();
    }
  }
}

}  // namespace
}  // namespace kvasir::text
