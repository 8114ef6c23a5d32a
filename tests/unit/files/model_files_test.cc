// What --model may point at.
#include "files/model_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "files/inspect.h"
#include "support/data.h"
#include "unit/files/file_makers.h"

namespace kvasir::files {
namespace {

namespace fs = std::filesystem;

constexpr OpenOptions kNoWeights = {.need_weights = false};

std::string TinySafetensors() {
  return Safetensors(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1");
}
std::string TinyGguf(const std::string& chat_template = "") {
  ByteWriter w;
  w.GgufHeader(1, chat_template.empty() ? 1 : 3).Key("general.architecture", 8).String("llama");
  if (!chat_template.empty()) {
    w.Key("tokenizer.chat_template", 8).String(chat_template);
    w.Key("tokenizer.chat_template.tool_use", 8).String("tools " + chat_template);
  }
  return w.Tensor("w", {1}, 0, 0).Pad(32).Number(1.0f).bytes();
}

TEST(OpenModel, OpensEveryTinyModel) {
  int opened = 0;
  for (const auto& entry : fs::directory_iterator(test::DataPath("models"))) {
    if (!entry.is_directory() || entry.path().filename() == "gguf") continue;
    const auto model = OpenModel(entry.path());
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->kind, ModelFiles::Kind::kHuggingFace);
    EXPECT_EQ(model->name, entry.path().filename().string());
    EXPECT_TRUE(model->config.is_object());
    EXPECT_TRUE(model->generation_config.is_object());
    EXPECT_TRUE(model->tokenizer_config.is_object());
    EXPECT_TRUE(model->tokenizer_json.starts_with("{"));
    EXPECT_TRUE(model->chat_template.has_value());
    EXPECT_FALSE(model->weights()->names().empty());
    ++opened;
  }
  EXPECT_GE(opened, 29);
}

TEST(OpenModel, OpensGgufByFileAndByFolder) {
  const fs::path folder = test::DataPath("models/gguf/llama-q4_0");
  for (const fs::path& path : {folder, folder / "model.gguf"}) {
    const auto model = OpenModel(path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->kind, ModelFiles::Kind::kGguf);
    EXPECT_EQ(model->name, path == folder ? "llama-q4_0" : "model");
    EXPECT_EQ(model->path, path);
    EXPECT_TRUE(model->chat_template.value().starts_with("{{ bos_token }}"));
    EXPECT_NE(model->weights()->Find("token_embd.weight"), nullptr);
    EXPECT_TRUE(model->config.is_null());
  }
}

TEST(OpenModel, NamesTheModel) {
  const TempFolder folder;
  folder.Write("Qwen2.5-0.5B/config.json", "{}");
  folder.Write("Qwen2.5-0.5B/model.safetensors", TinySafetensors());
  folder.Write("x/Llama.v1.gguf", TinyGguf());
  const auto name = [&](const fs::path& path) { return OpenModel(path).value().name; };
  EXPECT_EQ(name(folder.path() / "Qwen2.5-0.5B"), "Qwen2.5-0.5B");
  EXPECT_EQ(name(folder.path() / "Qwen2.5-0.5B/"), "Qwen2.5-0.5B");
  EXPECT_EQ(name(folder.path() / "Qwen2.5-0.5B/."), "Qwen2.5-0.5B");
  EXPECT_EQ(name(folder.path() / "x/../Qwen2.5-0.5B/"), "Qwen2.5-0.5B");
  EXPECT_EQ(name(folder.path() / "x/Llama.v1.gguf"), "Llama.v1");
}

TEST(OpenModel, RefusesWhatIsNoModel) {
  const TempFolder folder;
  const auto expect = [&](const fs::path& path, std::vector<std::string> words) {
    words.push_back(path.filename().string());
    ExpectError(OpenModel(path), words);
  };
  expect(folder.path() / "nowhere", {"nothing is there"});
  fs::create_directory(folder.path() / "empty");
  expect(folder.path() / "empty", {"the folder is empty"});
  expect(folder.Write("pickled/pytorch_model.bin", "PK").parent_path(),
         {"pytorch_model.bin", "run any code", "convert it to safetensors"});
  expect(folder.Write("other/readme.txt", "hello").parent_path(),
         {"config.json", "found readme.txt"});
  folder.Write("only-config/tokenizer.json", "{}");
  expect(folder.Write("only-config/config.json", "{}").parent_path(),
         {"found config.json, tokenizer.json"});
  expect(folder.Write("no-config/model.safetensors", TinySafetensors()).parent_path(),
         {"expected config.json", "model.safetensors"});
  folder.Write("two/a.gguf", TinyGguf());
  expect(folder.Write("two/b.gguf", TinyGguf()).parent_path(), {"found 2 (a.gguf, b.gguf)"});
  for (const char* name : {"m.bin", "m.pt", "m.pth", "m.ckpt", "m.pkl"}) {
    expect(folder.Write(name, "\x80\x02}q"), {"PyTorch pickle"});
  }
  expect(folder.Write("m.safetensors", TinySafetensors()), {"the folder that holds config.json"});
  expect(folder.Write("m.txt", "hello"), {"begins with 'hell'"});
  expect(folder.Write("m.onnx", ""), {"empty"});
  expect(folder.Write("m.gguf", "hello"), {"expected a GGUF file"});
  expect(folder.Write("vocab.gguf", ByteWriter().GgufHeader(0, 0).bytes()), {"no tensors"});
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  expect(folder.path() / "pipe", {"regular file"});
  expect("/dev/null", {"regular file"});
}

TEST(OpenModel, RefusesBrokenSideFilesByName) {
  for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json"}) {
    const TempFolder folder;
    folder.Write("config.json", "{}");
    folder.Write("model.safetensors", TinySafetensors());
    ASSERT_TRUE(OpenModel(folder.path()).ok());
    folder.Write(name, "{\"a\": ");
    ExpectError(OpenModel(folder.path()), {name, "valid JSON", "line 1, column 7"});
    folder.Write(name, "[1]");
    ExpectError(OpenModel(folder.path()), {name, "expected a JSON object, came array"});
    folder.Write(name, std::string(10'000, '['));
    ExpectError(OpenModel(folder.path()), {name, "levels"});
    fs::remove(folder.path() / name);
    fs::create_directory(folder.path() / name);
    ExpectError(OpenModel(folder.path()), {name, "found a folder"});
  }
}

TEST(OpenModel, PrefersSafetensorsAndNeverOpensPickles) {
  const TempFolder folder;
  folder.Write("config.json", R"({"architectures":["A"],"auto_map":{"AutoModel":"code.A"}})");
  folder.Write("pytorch_model.bin", "PK");
  folder.Write("m.gguf", TinyGguf());
  EXPECT_EQ(OpenModel(folder.path()).value().kind, ModelFiles::Kind::kGguf);
  folder.Write("model.safetensors", TinySafetensors());
  EXPECT_EQ(OpenModel(folder.path()).value().kind, ModelFiles::Kind::kHuggingFace);
}

TEST(OpenModel, WithoutWeightsATokenizerWillDo) {
  const TempFolder folder;
  folder.Write("tokenizer.json", "{\"x\":1}");
  const auto model = OpenModel(folder.path(), kNoWeights);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->tokenizer_json, "{\"x\":1}");
  EXPECT_EQ(model->weights(), nullptr);
  EXPECT_TRUE(model->config.is_null());
  // Broken or absent shards are no matter then.
  folder.Write("model.safetensors", "broken");
  EXPECT_TRUE(OpenModel(folder.path(), kNoWeights).ok());
  EXPECT_FALSE(OpenModel(folder.path()).ok());
  const TempFolder other;
  other.Write("readme.txt", "");
  ExpectError(OpenModel(other.path(), kNoWeights), {"found readme.txt"});
  const auto vocabulary =
      OpenModel(other.Write("vocab.gguf", ByteWriter().GgufHeader(0, 0).bytes()), kNoWeights);
  EXPECT_TRUE(vocabulary.ok());
}

// The template that a folder of `files` gives.
struct Templates {
  std::optional<std::string> main, tool_use;
};
Templates TemplatesOf(const std::vector<std::pair<std::string, std::string>>& files) {
  const TempFolder folder;
  folder.Write("tokenizer.json", "{}");
  for (const auto& [name, text] : files) folder.Write(name, text);
  auto model = OpenModel(folder.path(), kNoWeights);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return {model->chat_template, model->tool_use_template};
}

TEST(ChatTemplate, ComesFromTheFirstPlaceThatHasIt) {
  EXPECT_EQ(TemplatesOf({}).main, std::nullopt);
  const std::pair<std::string, std::string> one = {"tokenizer_config.json",
                                                   R"({"chat_template":"config"})"};
  const std::pair<std::string, std::string> list = {
      "tokenizer_config.json",
      R"({"chat_template":[{"name":"tool_use","template":"tools"},
          {"name":"default","template":"list"},{"name":"rag","template":"rag"}]})"};
  EXPECT_EQ(TemplatesOf({one}).main, "config");
  EXPECT_EQ(TemplatesOf({one}).tool_use, std::nullopt);
  EXPECT_EQ(TemplatesOf({list}).main, "list");
  EXPECT_EQ(TemplatesOf({list}).tool_use, "tools");
  EXPECT_EQ(TemplatesOf({one, {"chat_template.jinja", "jinja"}}).main, "jinja");
  const Templates both = TemplatesOf({list,
                                      {"chat_template.jinja", "jinja"},
                                      {"additional_chat_templates/tool_use.jinja", "extra"}});
  EXPECT_EQ(both.main, "jinja");
  EXPECT_EQ(both.tool_use, "extra");
  EXPECT_EQ(TemplatesOf({{"tokenizer_config.json", R"({"chat_template":null})"}}).main,
            std::nullopt);
  EXPECT_EQ(TemplatesOf({{"chat_template.json", R"({"chat_template":"json"})"}}).main, "json");
  EXPECT_EQ(TemplatesOf({one, {"chat_template.json", R"({"chat_template":"json"})"}}).main,
            "config");
}

TEST(ChatTemplate, OfAnotherKindIsRefused) {
  for (const char* value : {"7", "{}", "[7]", "[{}]", R"([{"name":"default","template":7}])"}) {
    const TempFolder folder;
    folder.Write("tokenizer.json", "{}");
    folder.Write("tokenizer_config.json", fmt::format("{{\"chat_template\":{}}}", value));
    ExpectError(OpenModel(folder.path(), kNoWeights), {"tokenizer_config.json", "chat_template"});
  }
}

TEST(ChatTemplate, OfGguf) {
  const TempFolder folder;
  const auto model = OpenModel(folder.Write("m.gguf", TinyGguf("chat")));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->chat_template, "chat");
  EXPECT_EQ(model->tool_use_template, "tools chat");
}

TEST(Inspect, CountsParametersAndBytes) {
  const auto model = OpenModel(test::DataPath("models/llama-f16-sharded"));
  ASSERT_TRUE(model.ok());
  const ModelSummary summary = Summarize(*model);
  EXPECT_EQ(summary.architecture, "LlamaForCausalLM");
  EXPECT_EQ(summary.parameters_count, 153'536);  // the index's total_parameters
  EXPECT_EQ(summary.bytes, 307'072);
  EXPECT_EQ(summary.tensors.size(), 30u);
  ASSERT_EQ(summary.formats.size(), 1u);
  EXPECT_EQ(summary.formats[0].dtype, DType::kF16);
  EXPECT_EQ(summary.formats[0].tensors_count, 30);

  const auto gguf = OpenModel(test::DataPath("models/gguf/llama-wide-q4_k_m"));
  ASSERT_TRUE(gguf.ok());
  const ModelSummary mixed = Summarize(*gguf);
  EXPECT_EQ(mixed.architecture, "llama");
  ASSERT_GE(mixed.formats.size(), 3u);
  int64_t bytes = 0;
  int64_t values = 0;
  int64_t tensors = 0;
  for (const FormatSummary& format : mixed.formats) {
    EXPECT_EQ(format.bytes, RowBytes(format.dtype, format.values_count));
    bytes += format.bytes;
    values += format.values_count;
    tensors += format.tensors_count;
  }
  EXPECT_EQ(bytes, mixed.bytes);
  EXPECT_EQ(values, mixed.parameters_count);
  EXPECT_EQ(tensors, static_cast<int64_t>(mixed.tensors.size()));
  EXPECT_GE(mixed.formats[0].bytes, mixed.formats[1].bytes);
}

TEST(Inspect, ArchitectureFromTheConfig) {
  ModelFiles model;
  model.config = nlohmann::json::parse(R"({"architectures":["B","C"],"model_type":"b"})");
  EXPECT_EQ(ArchitectureOf(model), "B");
  for (const char* config :
       {R"({"architectures":[],"model_type":"b"})", R"({"architectures":[3],"model_type":"b"})",
        R"({"model_type":"b"})"}) {
    model.config = nlohmann::json::parse(config);
    EXPECT_EQ(ArchitectureOf(model), "b");
  }
  model.config = nlohmann::json::parse(R"({"model_type":3})");
  EXPECT_EQ(ArchitectureOf(model), "");
  model.config = nullptr;
  EXPECT_EQ(ArchitectureOf(model), "");
}

}  // namespace
}  // namespace kvasir::files
