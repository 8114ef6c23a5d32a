#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "files/model_files.h"
#include "support/data.h"
#include "text/detokenizer.h"
#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

/// One of the tokenizers of tests/data/tokenizers/components.json.xz, as a tree of JSON.
const json& Component(const std::string& name) {
  static const json components =
      json::parse(test::ReadFile(test::DataPath("tokenizers/components.json.xz")));
  for (const json& entry : components) {
    if (entry["name"] == name) return entry["tokenizer"];
  }
  ADD_FAILURE() << "no component " << name;
  return components;
}

std::unique_ptr<Tokenizer> Make(const json& tokenizer, const json& config = nullptr) {
  auto made = Tokenizer::FromHuggingFace(tokenizer.dump(), config);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return std::move(made).value();
}

/// Valid UTF-8 of characters from all over.
std::string RandomText(Rng& rng, size_t characters_max) {
  std::string text;
  for (uint64_t i = rng.Below(characters_max); i > 0; --i) {
    const uint64_t kind = rng.Below(6);
    uint32_t c = 0;
    if (kind < 3) {
      c = static_cast<uint32_t>(rng.Below(128));
    } else if (kind == 3) {
      c = static_cast<uint32_t>(0xA0 + rng.Below(0x500));
    } else {
      c = static_cast<uint32_t>(rng.Below(kind == 4 ? 0x10000 : 0x110000));
    }
    AppendUtf8(c >= 0xD800 && c < 0xE000 ? ' ' : c, text);
  }
  return text;
}

TEST(TinyModels, EncodeTheirTextsAsExpected) {
  int folders_count = 0;
  for (const auto& folder : std::filesystem::directory_iterator(test::DataPath("models"))) {
    if (!std::filesystem::exists(folder.path() / "tokenizer.json")) continue;
    SCOPED_TRACE(folder.path().filename().string());
    const auto files = files::OpenModel(folder.path(), {.need_weights = false});
    ASSERT_TRUE(files.ok()) << files.error().message;
    const auto tokenizer = Tokenizer::FromModelFiles(*files);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const json expected = json::parse(test::ReadFile(folder.path() / "expected.json"));
    for (const json& row : expected["cases"]) {
      if (!row.contains("text")) continue;
      EXPECT_EQ((*tokenizer)->Encode(row["text"].get<std::string>()), Ids(row["prompt_ids"]));
      ++folders_count;
    }
    EXPECT_EQ((*tokenizer)->bos_token(), "<|bos|>");
    EXPECT_EQ((*tokenizer)->eos_id(), 2);
    EXPECT_TRUE((*tokenizer)->adds_bos());
    EXPECT_EQ((*tokenizer)->vocab_size(), 384);
    EXPECT_TRUE((*tokenizer)->IsSpecial(4));
    EXPECT_EQ((*tokenizer)->TokenId("<|im_end|>"), 4);
  }
  EXPECT_GT(folders_count, 10);
}

TEST(Tokenizer, NamesAndPieces) {
  const json config = {{"bos_token", "<s>"},
                       {"eos_token", {{"content", "</s>"}, {"lstrip", false}}},
                       {"unk_token", nullptr},
                       {"extra_special_tokens", {{"image_token", "<img>"}}}};
  const auto tokenizer = Make(Component("llama_like"), config);
  EXPECT_EQ(tokenizer->kind(), "BPE with byte fallback");
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->unk_id(), std::nullopt);
  EXPECT_EQ(tokenizer->end_of_generation_ids(), Ids{2});
  EXPECT_EQ(tokenizer->special_tokens().at("image_token"), "<img>");
  EXPECT_TRUE(tokenizer->adds_bos());
  const auto newline = tokenizer->TokenId("<0x0A>");
  ASSERT_TRUE(newline.has_value());
  EXPECT_EQ(tokenizer->TokenPiece(*newline), "<0x0A>");
  EXPECT_EQ(tokenizer->TokenBytes(*newline), "\n");
  const auto high = tokenizer->TokenId("<0xE2>");
  ASSERT_TRUE(high.has_value());
  EXPECT_EQ(tokenizer->TokenBytes(*high), "\xE2");
  EXPECT_EQ(tokenizer->TokenText(*high), "\uFFFD");
  const auto word = tokenizer->TokenId("▁that");
  ASSERT_TRUE(word.has_value());
  EXPECT_EQ(tokenizer->TokenText(*word), " that");
  EXPECT_EQ(tokenizer->TokenPiece(-1), "");
  EXPECT_EQ(tokenizer->TokenPiece(1 << 30), "");
  EXPECT_EQ(tokenizer->TokenBytes(1 << 30), "");
  EXPECT_FALSE(tokenizer->IsSpecial(-5));
  EXPECT_EQ(tokenizer->TokenId("no such piece"), std::nullopt);
}

TEST(Tokenizer, TokensOfTheConfigAreAdded) {
  const json config = {
      {"added_tokens_decoder",
       {{"900", {{"content", "<|extra|>"}, {"special", true}}}, {"x", {{"content", "<|no|>"}}}}}};
  const auto tokenizer = Make(Component("gpt2_like"), config);
  EXPECT_EQ(tokenizer->Encode("<|extra|>"), Ids{900});
  EXPECT_EQ(tokenizer->vocab_size(), 901);
  EXPECT_EQ(tokenizer->Decode(Ids{900, 850, 899}, false), "<|extra|>");  // ids without a token
  EXPECT_EQ(tokenizer->Decode(Ids{900}, true), "");
  EXPECT_EQ(tokenizer->TokenId("<|no|>"), std::nullopt);
}

TEST(Tokenizer, RoundTripsAnyText) {
  const auto byte_level = Make(Component("gpt2_like"));
  const auto sentence_piece = Make(Component("llama_like"));
  Rng rng(11);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = RandomText(rng, 60);
    ASSERT_EQ(byte_level->Decode(byte_level->Encode(text), true), text);
    if (text.find("▁") == std::string::npos) {
      ASSERT_EQ(sentence_piece->Decode(sentence_piece->Encode(text), true), text);
    }
  }
}

TEST(Tokenizer, ReadsBrokenUtf8AsReplacementCharacters) {
  Rng rng(12);
  const auto tokenizer = Make(Component("gpt2_like"));
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(rng.Below(40), '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng.Below(256));
    std::string repaired;
    AppendLossy(bytes, repaired);
    ASSERT_EQ(tokenizer->Encode(bytes), tokenizer->Encode(repaired));
    ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(bytes), true), repaired);
  }
}

// A stream gives in pieces what Decode gives at once, for ids that no text would have, too.
TEST(Tokenizer, StreamsEqualWholeDecodes) {
  Rng rng(13);
  for (const char* name : {"gpt2_like", "bert", "unigram", "word_level", "falcon_chain"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = Make(Component(name));
    for (int round = 0; round < 300; ++round) {
      Ids ids(rng.Below(30));
      for (int32_t& id : ids) {
        id = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(tokenizer->vocab_size()) + 3));
      }
      for (const bool skip : {false, true}) {
        Detokenizer stream(*tokenizer, {}, skip);
        std::string text;
        for (const int32_t id : ids) {
          const std::string piece = stream.Push(id);
          ASSERT_TRUE(IsValidUtf8(piece));
          text += piece;
        }
        ASSERT_EQ(text + stream.Flush(), tokenizer->Decode(ids, skip));
      }
    }
  }
}

TEST(Tokenizer, SegmentsAroundSpecialTokensAreIndependent) {
  const json& tree = Component("added_tokens");
  const auto tokenizer = Make(tree);
  const auto id = tokenizer->TokenId("<s>");
  ASSERT_TRUE(id.has_value());
  Rng rng(14);
  for (int round = 0; round < 500; ++round) {
    const std::string left = RandomText(rng, 20);
    const std::string right = RandomText(rng, 20);
    Ids expected = tokenizer->Encode(left);
    expected.push_back(*id);
    const Ids behind = tokenizer->Encode(right);
    expected.insert(expected.end(), behind.begin(), behind.end());
    std::string text = left;
    text += "<s>";
    text += right;
    ASSERT_EQ(tokenizer->Encode(text), expected);
  }
}

// Caches belong to threads, and models do not see each other's entries.
TEST(Tokenizer, MayBeSharedByThreads) {
  const auto first = Make(Component("gpt2_like"));
  const auto second = Make(Component("unigram"));
  Rng rng(15);
  std::vector<std::string> texts;
  std::vector<Ids> of_first;
  std::vector<Ids> of_second;
  for (int i = 0; i < 200; ++i) {
    texts.push_back(RandomText(rng, 40) + " the quick brown fox");
    of_first.push_back(first->Encode(texts.back()));
    of_second.push_back(second->Encode(texts.back()));
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < texts.size(); ++i) {
        wrong[t] += first->Encode(texts[i]) != of_first[i];
        wrong[t] += second->Encode(texts[i]) != of_second[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

// Ten megabytes without a place to cut. Quadratic work would take hours.
TEST(Tokenizer, IsLinearInOneHugeWord) {
  struct Row {
    const char* name;
    size_t size;
  };
  for (const auto [name, size] :
       {Row{"gpt2_like", 10'000'000}, Row{"llama_like", 10'000'000}, Row{"unigram", 2'000'000},
        Row{"bert", 2'000'000}, Row{"added_tokens", 2'000'000}}) {
    SCOPED_TRACE(name);
    const auto tokenizer = Make(Component(name));
    const bool is_bert = name == std::string_view("bert");  // gives up on so long a word
    const Ids of_letters = tokenizer->Encode(std::string(size, 'a'));
    EXPECT_EQ(tokenizer->Decode(of_letters, !is_bert).size(),
              is_bert ? std::string("[CLS] [UNK] [SEP]").size() : size);
    std::string random(size, ' ');
    Rng rng(16);
    for (char& c : random) c = static_cast<char>('a' + rng.Below(26));
    EXPECT_FALSE(tokenizer->Encode(random).empty());
  }
  const auto tokenizer = Make(Component("gpt2_like"));
  for (const char c : {' ', '\n', '1', '!'}) {
    EXPECT_FALSE(tokenizer->Encode(std::string(2'000'000, c) + "a").empty());
  }
}

std::string LoadError(std::string_view text) {
  const auto tokenizer = Tokenizer::FromHuggingFace(text, nullptr);
  return tokenizer.ok() ? "" : tokenizer.error().message;
}

TEST(TokenizerJson, SaysWhatIsBroken) {
  EXPECT_EQ(LoadError(""), "tokenizer.json: the file is empty");
  EXPECT_EQ(LoadError("[]"), "tokenizer.json: JSON: expected '{' at byte 1");
  EXPECT_EQ(LoadError("{}"), "tokenizer.json: model.vocab is missing");
  EXPECT_EQ(LoadError(R"({"model":{"vocab":{"a":0})"),
            "tokenizer.json: JSON: expected ',' at byte 26");
  EXPECT_EQ(LoadError(R"({"model":{"vocab":{"a":-1},"merges":[]}})"),
            "tokenizer.json: token id -1: expected 0 to 65538");
  EXPECT_EQ(LoadError(R"({"model":{"vocab":{"a":99999999999},"merges":[]}})"),
            "tokenizer.json: token id 99999999999: expected 0 to 65538");
  EXPECT_EQ(LoadError(R"({"model":{"vocab":{"a":0},"merges":["a b"]}})"),
            "tokenizer.json: merge 0 joins \"a\" and \"b\", but the second is not in the "
            "vocabulary");
  EXPECT_EQ(LoadError(R"({"model":{"vocab":{"a":0},"merges":["ab"]}})"),
            "tokenizer.json: merge 0: expected two parts, got \"ab\"");
  EXPECT_EQ(LoadError(R"({"model":{"type":"Rune","vocab":{"a":0}}})"),
            "tokenizer.json: model Rune is not supported");
  EXPECT_EQ(LoadError(R"({"model":{"vocab":{"a":0},"merges":[]},"decoder":{"type":"CTC"}})"),
            "tokenizer.json: decoder CTC is not supported");
  EXPECT_EQ(LoadError(R"({"model":{"vocab":{"a":0},"merges":[]},"normalizer":{"type":"X\n"}})"),
            "tokenizer.json: normalizer X\\x0a is not supported");
  EXPECT_EQ(LoadError(R"({"model":{"vocab":{"a":0},"merges":[]},"post_processor":{"type":"X"}})"),
            "tokenizer.json: post_processor X is not supported");
  EXPECT_EQ(LoadError(R"({"model":{"type":"Unigram","unk_id":7,"vocab":[["a",0.5]]}})"),
            "tokenizer.json: model.unk_id 7: expected less than 1");
}

// Every byte of small but complete files cut off or changed: an error or a tokenizer, never more.
TEST(TokenizerJson, SurvivesBrokenFiles) {
  Rng rng(17);
  for (const char* name : {"llama_like", "bert", "unigram_bytes", "added_tokens"}) {
    const std::string whole = Component(name).dump();
    for (int round = 0; round < 300; ++round) {
      std::string text = whole;
      if (rng.Chance(0.3)) {
        text.resize(rng.Below(text.size()));
      } else {
        for (uint64_t i = 0; i <= rng.Below(4); ++i) {
          text[rng.Below(text.size())] = static_cast<char>(rng.Below(256));
        }
      }
      const auto tokenizer = Tokenizer::FromHuggingFace(text, nullptr);
      if (!tokenizer.ok()) {
        ASSERT_EQ(tokenizer.error().message.find('\n'), std::string::npos);
        continue;
      }
      const Ids ids = (*tokenizer)->Encode("The quick brown fox, 1234 <s> ▁ é");
      ASSERT_TRUE(IsValidUtf8((*tokenizer)->Decode(ids, false)));
    }
  }
}

files::GgufMetadata SmallGguf(std::string_view model) {
  files::GgufMetadata metadata;
  using Strings = std::vector<std::string_view>;
  metadata.values["tokenizer.ggml.model"] = model;
  metadata.values["tokenizer.ggml.tokens"] =
      Strings{"<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "b", "ab", "▁ab", "<user>", "<0xC3>"};
  metadata.values["tokenizer.ggml.token_type"] =
      std::vector<int64_t>{2, 3, 3, 6, 1, 1, 1, 1, 1, 4, 6};
  metadata.values["tokenizer.ggml.scores"] =
      std::vector<double>{0, 0, 0, 0, -5, -6, -7, -1, -2, 0, 0};
  metadata.values["tokenizer.ggml.bos_token_id"] = int64_t{1};
  metadata.values["tokenizer.ggml.eos_token_id"] = int64_t{2};
  metadata.values["tokenizer.ggml.unknown_token_id"] = int64_t{0};
  return metadata;
}

TEST(TokenizerGguf, SentencePieceBpe) {
  const files::GgufMetadata metadata = SmallGguf("llama");
  const auto made = Tokenizer::FromGguf(metadata);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Tokenizer& tokenizer = **made;
  EXPECT_EQ(tokenizer.Encode("ab ab"), (Ids{1, 8, 8}));
  EXPECT_EQ(tokenizer.Encode("b\n", {.add_special_tokens = false}), (Ids{4, 6, 3}));
  EXPECT_EQ(tokenizer.Encode("<user>a<s>"), (Ids{1, 9, 4, 5, 1}));
  // Not special: matched all the same. Special: text, of which "<", "s" and ">" are no tokens.
  EXPECT_EQ(tokenizer.Encode("<user><s>", {.add_special_tokens = false, .parse_special = false}),
            (Ids{9, 4, 0, 0, 0}));
  EXPECT_EQ(tokenizer.Decode(Ids{1, 8, 8, 9}, true), "ab ab<user>");
  EXPECT_EQ(tokenizer.Decode(Ids{1, 8}, false), "<s> ab");
  EXPECT_EQ(tokenizer.end_of_generation_ids(), Ids{2});
  EXPECT_TRUE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer.eos_token(), "</s>");
}

TEST(TokenizerGguf, WordPieceMarksTheBeginOfWords) {
  files::GgufMetadata metadata = SmallGguf("bert");
  metadata.values["tokenizer.ggml.seperator_token_id"] = int64_t{2};
  const auto made = Tokenizer::FromGguf(metadata);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ((*made)->Encode("AB abab x"), (Ids{1, 8, 8, 7, 0, 2}));
  EXPECT_EQ((*made)->Decode(Ids{1, 8, 7, 8, 2}, true), "abab ab");
}

TEST(TokenizerGguf, Unigram) {
  const auto made = Tokenizer::FromGguf(SmallGguf("t5"));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ((*made)->Encode("  ab   b "), (Ids{8, 4, 6, 2}));  // extra spaces go, EOS comes
}

TEST(TokenizerGguf, SaysWhatIsBroken) {
  const auto message = [](const files::GgufMetadata& metadata) {
    const auto made = Tokenizer::FromGguf(metadata);
    return made.ok() ? std::string() : made.error().message;
  };
  EXPECT_EQ(message({}), "tokenizer.ggml.model is missing");
  EXPECT_EQ(message(SmallGguf("rwkv")), "tokenizer.ggml.model \"rwkv\" is not supported");
  EXPECT_EQ(message(SmallGguf("gpt2")), "tokenizer.ggml.merges is missing");
  files::GgufMetadata metadata = SmallGguf("llama");
  metadata.values["tokenizer.ggml.scores"] = std::vector<double>{1.0};
  EXPECT_EQ(message(metadata), "tokenizer.ggml.scores: 1 values for 11 tokens");
  metadata.values.erase("tokenizer.ggml.scores");
  EXPECT_EQ(message(metadata), "tokenizer.ggml.scores is missing");
  metadata = SmallGguf("gpt2");
  metadata.values["tokenizer.ggml.pre"] = std::string_view("mystery");
  metadata.values["tokenizer.ggml.merges"] = std::vector<std::string_view>{"a b"};
  EXPECT_EQ(message(metadata),
            "tokenizer.ggml.pre: the pre-tokenizer \"mystery\" is not supported");
  metadata.values["tokenizer.ggml.pre"] = std::string_view("gpt-2");
  metadata.values["tokenizer.ggml.merges"] = std::vector<std::string_view>{"a b", "ab"};
  EXPECT_EQ(message(metadata), "tokenizer.ggml.merges: merge 1: expected two parts, got \"ab\"");
}

}  // namespace
}  // namespace kvasir::text
