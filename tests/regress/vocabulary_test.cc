// Vocabularies that users of other servers could crash them with. README.md lists them all; a
// test's name holds its row.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "files/gguf.h"
#include "text/tokenizer.h"
#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

TEST(RegressVocabulary, Row143OddByteTokensLoadOrAreRefused) {
  const std::string huge(1'000'000, 'x');
  for (const std::string& odd :
       {std::string("<0x-1>"), std::string("<0xZZ>"), std::string("<0x1>"), std::string("<0x100>"),
        std::string("<0x 1>"), std::string("<0x+1>"), std::string("<0xFF"), std::string("<0x0G>"),
        std::string(), std::string("a"), huge, std::string("\xff\xfe", 2), std::string("\0", 1)}) {
    for (const int64_t type : {1, 6}) {
      for (const char* model : {"llama", "t5", "gpt2", "bert"}) {
        files::GgufMetadata metadata;
        metadata.values["tokenizer.ggml.model"] = std::string_view(model);
        metadata.values["tokenizer.ggml.tokens"] = std::vector<std::string_view>{
            "<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "b", "ab", "▁ab", odd, "<0xC3>"};
        metadata.values["tokenizer.ggml.token_type"] =
            std::vector<int64_t>{2, 3, 3, 6, 1, 1, 1, 1, 1, type, 6};
        metadata.values["tokenizer.ggml.scores"] = std::vector<double>(11, -1.0);
        metadata.values["tokenizer.ggml.merges"] = std::vector<std::string_view>{"a b"};
        metadata.values["tokenizer.ggml.unknown_token_id"] = int64_t{0};
        metadata.values["tokenizer.ggml.bos_token_id"] = int64_t{1};
        metadata.values["tokenizer.ggml.eos_token_id"] = int64_t{2};
        metadata.values["tokenizer.ggml.seperator_token_id"] = int64_t{2};
        const auto made = Tokenizer::FromGguf(metadata);
        if (!made.ok()) {
          EXPECT_EQ(made.error().message.find('\n'), std::string::npos);
          EXPECT_LT(made.error().message.size(), 400U);
          continue;
        }
        std::vector<int32_t> all;
        for (int32_t id = -1; id < 13; ++id) all.push_back(id);
        EXPECT_TRUE(IsValidUtf8((*made)->Decode(all, false)));
        for (const int32_t id : (*made)->Encode("ab \xc3\n<0x-1> \xff")) {
          EXPECT_GE(id, 0);
          EXPECT_LT(id, 11);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvasir::text
