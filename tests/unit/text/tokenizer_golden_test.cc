// Ids and texts of six public tokenizers equal those of Hugging Face's tokenizers 0.23.3.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/data.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> Open(const std::string& name) {
  const auto folder = test::SharedPath("tokenizers/" + name);
  auto tokenizer =
      Tokenizer::FromHuggingFace(test::ReadFile(folder / "tokenizer.json.xz"),
                                 json::parse(test::ReadFile(folder / "tokenizer_config.json")));
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().message);
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

void CheckEncode(const Tokenizer& tokenizer, const json& cases) {
  for (const json& row : cases) {
    SCOPED_TRACE(row["name"].get<std::string>());
    const std::string text = row["text"];
    const Ids ids = row["ids"];
    const Ids plain = row["ids_no_special"];
    const Ids as_text =
        row.contains("ids_specials_as_text") ? Ids(row["ids_specials_as_text"]) : plain;
    EXPECT_EQ(tokenizer.Encode(text), ids);
    EXPECT_EQ(tokenizer.Encode(text, {.add_special_tokens = false}), plain);
    EXPECT_EQ(tokenizer.Encode(text, {.add_special_tokens = false, .parse_special = false}),
              as_text);
    EXPECT_EQ(tokenizer.Decode(ids, true), row["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer.Decode(ids, false), row["decoded_with_special"].get<std::string>());
  }
}

void CheckDecode(const Tokenizer& tokenizer, const json& cases) {
  for (const json& row : cases) {
    const Ids ids = row["ids"];
    EXPECT_EQ(tokenizer.Decode(ids, true), row["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer.Decode(ids, false), row["decoded_with_special"].get<std::string>());
  }
}

void CheckStream(const Tokenizer& tokenizer, const json& cases) {
  for (const json& row : cases) {
    SCOPED_TRACE(row["name"].get<std::string>());
    Detokenizer stream(tokenizer, {}, row["skip_special"].get<bool>());
    const bool malformed = row.value("malformed", false);
    std::string sent;
    std::string known;  // what may be sent at most
    for (size_t i = 0; i < row["ids"].size(); ++i) {
      const std::string piece = stream.Push(row["ids"][i].get<int32_t>());
      EXPECT_TRUE(IsValidUtf8(piece));
      sent += piece;
      if (malformed) continue;
      known += row["pieces"][i].get<std::string>();
      EXPECT_TRUE(known.starts_with(sent)) << sent << " but only " << known << " is known";
    }
    const std::string rest = stream.Flush();
    EXPECT_TRUE(IsValidUtf8(rest));
    if (!malformed) {
      EXPECT_EQ(sent + rest, row["final"].get<std::string>());
    }
  }
}

class TokenizerGolden : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, EqualsHuggingFace) {
  const std::string name = GetParam();
  KVASIR_SHARED_OR_SKIP(path, "tokenizers/golden/" + name + ".json.xz");
  const json golden = json::parse(test::ReadFile(path));
  const std::unique_ptr<Tokenizer> tokenizer = Open(name);
  ASSERT_NE(tokenizer, nullptr);
  CheckEncode(*tokenizer, golden["encode"]);
  CheckDecode(*tokenizer, golden["decode"]);
  CheckStream(*tokenizer, golden["stream"]);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden,
                         testing::Values("llama2", "llama3_1", "qwen3", "deepseek_v3", "gptoss",
                                         "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace kvasir::text
