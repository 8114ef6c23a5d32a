// GGUF vocabularies encode llama.cpp's test texts to the ids that llama.cpp lists for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "files/gguf.h"
#include "support/data.h"
#include "support/temp_folder.h"
#include "text/tokenizer.h"

namespace kvasir::text {
namespace {

using Ids = std::vector<int32_t>;

std::vector<std::string> SplitTexts(const std::string& file) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  size_t begin = 0;
  for (size_t end = file.find(kSeparator); end != std::string::npos;
       end = file.find(kSeparator, begin)) {
    texts.push_back(file.substr(begin, end - begin));
    begin = end + kSeparator.size();
  }
  texts.push_back(file.substr(begin));
  return texts;
}

std::vector<Ids> ParseLines(const std::string& file) {
  std::vector<Ids> lines;
  std::istringstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream numbers(line);
    Ids ids;
    for (int32_t id = 0; numbers >> id;) ids.push_back(id);
    lines.push_back(ids);
  }
  return lines;
}

/// Compares all texts of `vectors` (a stem without .inp and .out).
void CheckVectors(const Tokenizer& tokenizer, const std::filesystem::path& vectors) {
  const auto texts = SplitTexts(test::ReadFile(vectors.string() + ".inp"));
  auto expected = ParseLines(test::ReadFile(vectors.string() + ".out"));
  // The text behind the last separator is empty, and so is its line, which most files leave out.
  if (texts.back().empty() && expected.size() + 1 == texts.size()) expected.push_back({});
  ASSERT_GE(texts.size(), 46u);
  ASSERT_EQ(texts.size(), expected.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const Ids ids =
        tokenizer.Encode(texts[i], {.add_special_tokens = false, .parse_special = false});
    EXPECT_EQ(ids, expected[i]) << "text " << i << ": " << texts[i];
  }
}

class GgufVocabulary : public testing::TestWithParam<const char*> {};

TEST_P(GgufVocabulary, EqualsLlamaCpp) {
  const std::string stem = std::string("gguf-vocabs/ggml-vocab-") + GetParam() + ".gguf";
  KVASIR_SHARED_OR_SKIP(packed, stem + ".xz");
  const test::TempFolder folder;
  const auto file = files::OpenGguf(folder.Write("vocabulary.gguf", test::ReadFile(packed)));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto tokenizer = Tokenizer::FromGguf(file->metadata);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  CheckVectors(**tokenizer, test::SharedPath(stem + ".inp").replace_extension());
}

INSTANTIATE_TEST_SUITE_P(All, GgufVocabulary,
                         testing::Values("deepseek-coder", "deepseek-llm", "falcon", "gpt-2",
                                         "llama-spm", "mpt", "phi-3", "refact", "starcoder"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

struct Pairing {
  const char* tokenizer;
  const char* vectors;

  friend void PrintTo(const Pairing& pairing, std::ostream* out) { *out << pairing.tokenizer; }
};
class PairedVocabulary : public testing::TestWithParam<Pairing> {};

// The vocabularies of these vectors are at hand in the other format.
TEST_P(PairedVocabulary, EqualsLlamaCpp) {
  const auto [name, vectors] = GetParam();
  KVASIR_SHARED_OR_SKIP(json, std::string("tokenizers/") + name + "/tokenizer.json.xz");
  const auto tokenizer = Tokenizer::FromHuggingFace(test::ReadFile(json), nullptr);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  CheckVectors(**tokenizer,
               test::SharedPath(std::string("gguf-vocabs/ggml-vocab-") + vectors + ".gguf.inp")
                   .replace_extension());
}

INSTANTIATE_TEST_SUITE_P(All, PairedVocabulary,
                         testing::Values(Pairing{"llama3_1", "llama-bpe"},
                                         Pairing{"qwen3", "qwen2"}, Pairing{"gemma3", "gemma-4"}),
                         [](const auto& info) { return std::string(info.param.tokenizer); });

}  // namespace
}  // namespace kvasir::text
