#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/data.h"

namespace kvasir::text {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

/// Byte-level pieces of single bytes, and a SentencePiece-like vocabulary with byte tokens.
std::unique_ptr<Tokenizer> Component(const std::string& name) {
  const json components =
      json::parse(test::ReadFile(test::DataPath("tokenizers/components.json.xz")));
  for (const json& entry : components) {
    if (entry["name"] == name) {
      return std::move(Tokenizer::FromHuggingFace(entry["tokenizer"].dump(), nullptr)).value();
    }
  }
  return nullptr;
}

/// The ids of the bytes, one each.
Ids BytesOf(const Tokenizer& tokenizer, std::string_view bytes) {
  Ids ids;
  for (const char byte : bytes) {
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (tokenizer.TokenBytes(id) == std::string(1, byte) && !tokenizer.IsSpecial(id)) {
        ids.push_back(id);
        break;
      }
    }
  }
  EXPECT_EQ(ids.size(), bytes.size());
  return ids;
}

class DetokenizerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    bytes_ = Component("gpt2_like").release();
    llama_ = Component("llama_like").release();
  }
  static void TearDownTestSuite() {
    delete bytes_;
    delete llama_;
  }
  static Tokenizer* bytes_;
  static Tokenizer* llama_;
};
Tokenizer* DetokenizerTest::bytes_ = nullptr;
Tokenizer* DetokenizerTest::llama_ = nullptr;

TEST_F(DetokenizerTest, SendsACharacterWithItsLastByte) {
  Detokenizer stream(*bytes_, {}, true);
  std::vector<std::string> pieces;
  for (const int32_t id : BytesOf(*bytes_, "a访🦙")) pieces.push_back(stream.Push(id));
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "", "", "访", "", "", "", "🦙"}));
  EXPECT_EQ(stream.Flush(), "");
}

TEST_F(DetokenizerTest, ReplacesWhatCanNeverBecomeACharacter) {
  Detokenizer stream(*bytes_, {}, true);
  const Ids ids = BytesOf(*bytes_,
                          "\xE8\xAE"
                          "x\xFF");
  EXPECT_EQ(stream.Push(ids[0]), "");
  EXPECT_EQ(stream.Push(ids[1]), "");
  EXPECT_EQ(stream.Push(ids[2]), "\uFFFDx");
  EXPECT_EQ(stream.Push(ids[3]), "\uFFFD");
  EXPECT_EQ(stream.Push(ids[0]), "");
  EXPECT_EQ(stream.Flush(), "\uFFFD");
  EXPECT_EQ(stream.Flush(), "");
}

TEST_F(DetokenizerTest, KeepsTheLeadingSpaceBehindAPrompt) {
  const Ids prompt = llama_->Encode("The quick");
  const auto word = llama_->TokenId("▁that");
  ASSERT_TRUE(word.has_value());
  Detokenizer behind(*llama_, prompt, true);
  EXPECT_EQ(behind.Push(*word), " that");
  EXPECT_EQ(behind.Push(*word), " that");
  Detokenizer alone(*llama_, {}, true);
  EXPECT_EQ(alone.Push(*word), "that");
  EXPECT_EQ(alone.Push(*word), " that");
  // A prompt of special tokens shows nothing: the stream begins the text.
  Detokenizer special(*llama_, Ids{1}, true);
  EXPECT_EQ(special.Push(*word), "that");
  Detokenizer shown(*llama_, Ids{1}, false);
  EXPECT_EQ(shown.Push(*word), " that");
}

TEST_F(DetokenizerTest, CompletesACharacterOfThePrompt) {
  const Ids ids = BytesOf(*bytes_, "ab访");
  const Ids prompt(ids.begin(), ids.end() - 1);
  Detokenizer stream(*bytes_, prompt, true);
  EXPECT_EQ(stream.Push(ids.back()), "访");
  // Left incomplete, it is the prompt's business.
  Detokenizer broken(*bytes_, prompt, true);
  EXPECT_EQ(broken.Push(ids[0]), "a");
  Detokenizer ended(*bytes_, prompt, true);
  EXPECT_EQ(ended.Flush(), "");
}

TEST_F(DetokenizerTest, ByteTokensNeverBecomeASpace) {
  // The bytes of ▁ one by one are that character, not a space.
  const Ids ids = BytesOf(*llama_, "\xE2\x96\x81");
  Detokenizer stream(*llama_, llama_->Encode("a"), true);
  std::string text;
  for (const int32_t id : ids) text += stream.Push(id);
  EXPECT_EQ(text, "▁");
}

TEST_F(DetokenizerTest, SkipsSpecialTokensAndUnknownIds) {
  Detokenizer skipping(*llama_, Ids{1}, true);
  EXPECT_EQ(skipping.Push(2), "");
  EXPECT_EQ(skipping.Push(-1), "");
  EXPECT_EQ(skipping.Push(1 << 30), "");
  Detokenizer showing(*llama_, Ids{1}, false);
  EXPECT_EQ(showing.Push(2), "</s>");
}

}  // namespace
}  // namespace kvasir::text
