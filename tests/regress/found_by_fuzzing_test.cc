// What fuzzing and reading for it found, each mended at its root. The inputs themselves are seeds
// of tests/fuzz where a fuzzer had them.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "files/gguf.h"
#include "files/model_files.h"
#include "model/blueprint.h"
#include "model/config_reader.h"
#include "model/rope.h"
#include "server/server.h"
#include "support/counted_allocations.h"
#include "support/data.h"
#include "text/jinja.h"
#include "text/normalizer_charsmap.h"
#include "text/tokenizer.h"
#include "unit/files/file_makers.h"

namespace kvasir {
namespace {

using nlohmann::json;

std::string TemplateError(const std::string& source) {
  const auto parsed = text::jinja::Template::Parse(source);
  if (!parsed.ok()) return parsed.error().message;
  const auto rendered = (*parsed)->Render(nlohmann::ordered_json::object(), {});
  return rendered.ok() ? "" : rendered.error().message;
}

TEST(FoundByFuzzing, ControlCharactersOfATemplateStayOutOfItsErrors) {
  for (const std::string source :
       {"{{ \x01 }}", "{{ x\x1b }}", "{{ {}['a\\nb'].c }}", "{{ 'x' | join(1, '\\n').y.z }}",
        "{% set x = 'a\\x1b' %}{{ x() }}", "{{ 1 + 'a\\nb' }}", "{{ {}['\n'].c }}"}) {
    const std::string message = TemplateError(source);
    EXPECT_TRUE(files::IsOneLine(message)) << source << ": " << message;
    EXPECT_TRUE(message.starts_with("line 1: ") || message.starts_with("line 2: ")) << message;
  }
}

// The blueprint of a good config with one value changed.
Status WithConfig(const std::string& model, const std::function<void(json&)>& change) {
  files::ModelFiles files = files::OpenModel(test::DataPath("models/" + model)).value();
  change(files.config);
  model::ConfigReader reader(files, 0);
  const auto blueprint = model::MakeBlueprint(reader);
  return blueprint.ok() ? Status::Ok() : Status(blueprint.error());
}

TEST(FoundByFuzzing, NamesInConfigsStayOnOneLine) {
  files::ExpectError(WithConfig("llama", [](json& c) { c["architectures"][0] = "x\ny\x1b"; }),
                     {"architecture 'x\\x0ay\\x1b' is not supported"});
  files::ExpectError(WithConfig("llama",
                                [](json& c) {
                                  c["rope_scaling"] = {{"rope_type", "a\nb"}};
                                }),
                     {"a\\x0ab"});
  files::ExpectError(WithConfig("llama", [](json& c) { c["hidden_act"] = "a\nb"; }), {"a\\x0ab"});
}

TEST(FoundByFuzzing, NumbersThatMakeARotationOfNothingAreRefused) {
  const auto scaled = [](double factor) {
    return [factor](json& c) { c["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}}; };
  };
  ASSERT_TRUE(WithConfig("llama", scaled(2.0)).ok());
  for (const double factor : {-1e300, -1.0, 0.0, 1e-320}) {
    files::ExpectError(WithConfig("llama", scaled(factor)), {"rope"});
  }
  for (const double fraction : {-1e300, -0.5, 1.5, 1e300}) {
    files::ExpectError(WithConfig("llama", [=](json& c) { c["partial_rotary_factor"] = fraction; }),
                       {"partial_rotary_factor", "0 to 1"});
  }
  model::RopeScaling yarn;
  yarn.kind = model::RopeScaling::Kind::kYarn;
  yarn.factor = 4.0;
  yarn.original_max_positions = 512;
  ASSERT_TRUE(model::MakeRopeTable(1e4, 64, yarn, 0).ok());
  yarn.attention_factor = 1e300;
  files::ExpectError(model::MakeRopeTable(1e4, 64, yarn, 0), {"attention factor"});
}

TEST(FoundByFuzzing, EpsilonsAndCapsThatMakeNothingButNanAreRefused) {
  for (const double eps : {-1.0, 2.0, 1e300}) {
    files::ExpectError(WithConfig("llama", [=](json& c) { c["rms_norm_eps"] = eps; }), {"epsilon"});
  }
  for (const double cap : {-1.0, 1e300}) {
    files::ExpectError(WithConfig("gemma2", [=](json& c) { c["final_logit_softcapping"] = cap; }),
                       {"soft cap"});
  }
}

// 14 kB that name id 2^24 - 1 made lists of 2^24 entries: 300 MB.
TEST(FoundByFuzzing, OneFarIdMakesNoHugeVocabulary) {
  const std::string good = test::ReadFile(test::DataPath("models/llama/tokenizer.json"));
  const auto load = [](const json& tokenizer) {
    return text::Tokenizer::FromHuggingFace(tokenizer.dump(), nullptr);
  };
  json in_vocabulary = json::parse(good);
  in_vocabulary["model"]["vocab"]["far"] = (1 << 24) - 1;
  json added = json::parse(good);
  added["added_tokens"].push_back({{"id", (1 << 24) - 1}, {"content", "<far>"}});
  for (const json& tokenizer : {in_vocabulary, added}) {
    const int64_t before = test::allocated_bytes;
    files::ExpectError(load(tokenizer), {"token id 16777215", "expected 0 to"});
    EXPECT_LT(test::allocated_bytes - before, 16 << 20);
  }
  json gaps = json::parse(good);
  gaps["model"]["vocab"]["near"] = 60'000;
  EXPECT_TRUE(load(gaps).ok());
}

TEST(FoundByFuzzing, APartNumberAtTheEndOfTheIntegersDoesNotOverflow) {
  const files::TempFolder folder;
  files::ByteWriter w;
  w.GgufHeader(0, 2).Key("split.count", 11).Number<int64_t>(2);
  w.Key("split.no", 11).Number<int64_t>(INT64_MAX);
  files::ExpectError(files::OpenGguf(folder.Write("m-00002-of-00002.gguf", w.bytes())),
                     {"expected the first part"});
}

TEST(FoundByFuzzing, AHoleBetweenTensorsOfAGgufIsRefused) {
  const files::TempFolder folder;
  files::ByteWriter w;
  w.GgufHeader(2, 0).Tensor("a", {8}, 0, 0).Tensor("b", {8}, 0, 64).Pad(32);
  w.Raw(std::string(96, 'x'));
  files::ExpectError(files::OpenGguf(folder.Write("m.gguf", w.bytes())), {"tensor 'b'", "hole"});
}

TEST(FoundByFuzzing, AHugeValueInAGenerationConfigMakesAShortMessage) {
  json values = json::array();
  for (int i = 0; i < 100'000; ++i) values.push_back(i);
  const auto read = server::ReadGenerationDefaults({{"temperature", values}}, nullptr);
  files::ExpectError(read, {"temperature"});
  EXPECT_LT(read.error().message.size(), 300u);
}

// Steps that each double a text, sixty times: any request, or the load itself, would have ended the
// process.
TEST(FoundByFuzzing, StepsOfATokenizerThatGrowWithoutEndAreRefused) {
  const json good = json::parse(test::ReadFile(test::DataPath("models/llama/tokenizer.json")));
  const auto load = [&](const char* component, const char* list, const json& step) {
    json tokenizer = good;
    tokenizer[component] = {{"type", "Sequence"}, {list, std::vector<json>(60, step)}};
    return text::Tokenizer::FromHuggingFace(tokenizer.dump(), nullptr);
  };
  const json doubling = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const json by_regex = {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", "aa"}};
  const json bytes = {{"type", "ByteLevel"}};
  files::ExpectError(load("normalizer", "normalizers", doubling), {"normalizer", "as long"});
  files::ExpectError(load("normalizer", "normalizers", by_regex), {"normalizer", "as long"});
  files::ExpectError(load("normalizer", "normalizers", bytes), {"normalizer", "as long"});
  files::ExpectError(load("decoder", "decoders", doubling), {"decoder", "as long"});
  files::ExpectError(load("pre_tokenizer", "pretokenizers", bytes), {"pre_tokenizer", "ByteLevel"});
  files::ExpectError(
      load("pre_tokenizer", "pretokenizers", {{"type", "Metaspace"}, {"replacement", "  "}}),
      {"Metaspace", "a character"});
}

TEST(FoundByFuzzing, AReplacementOfMegabytesInACharsmapIsRefused) {
  // One trie unit, then one replacement.
  const std::string blob = files::ByteWriter()
                               .Number<uint32_t>(4)
                               .Number<uint32_t>(0)
                               .Raw(std::string(3000, 'x'))
                               .bytes();
  const auto map = text::CharsMap::Parse(blob);
  files::ExpectError(map, {"3000 bytes"});
}

}  // namespace
}  // namespace kvasir
