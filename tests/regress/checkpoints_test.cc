// Checkpoints that users of other servers could not load, or that loaded wrong. README.md lists
// them all; a test's name holds its row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/load_errors.h"

namespace kvasir::model {
namespace {

using nlohmann::json;
using test::ConfigError;
using test::LoadError;
using testing::HasSubstr;
using testing::Not;

TEST(RegressCheckpoints, Rows113To131QuantizedCheckpointsAreRefusedByName) {
  for (const char* method : {"gptq", "awq", "compressed-tensors", "fp8", "bitsandbytes", "hqq",
                             "eetq", "modelopt", "foo"}) {
    const std::string error =
        ConfigError("llama", "quantization_config", {{"quant_method", method}, {"bits", 4}});
    EXPECT_THAT(error, HasSubstr("quantized safetensors (quant_method " + std::string(method) +
                                 ") are not supported"))
        << method;
    EXPECT_THAT(error, HasSubstr(method));
    EXPECT_THAT(error, Not(HasSubstr("\n")));
  }
}

TEST(RegressCheckpoints, Row115TheConfigMayBeNested) {
  const std::string error = LoadError("gemma3", [](files::ModelFiles& files) {
    json text = files.config;
    text.erase("architectures");
    text["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}};
    files.config = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                    {"model_type", "gemma3"},
                    {"dtype", "bfloat16"},
                    {"text_config", text}};
  });
  EXPECT_THAT(error, HasSubstr("quantized safetensors (quant_method awq) are not supported"));
}

TEST(RegressCheckpoints, Row124SparseCheckpointsAreRefusedByName) {
  EXPECT_THAT(ConfigError("llama", "quantization_config",
                          {{"quant_method", "compressed-tensors"},
                           {"sparsity_config", {{"format", "sparse-bitmask"}}}}),
              HasSubstr("compressed-tensors"));
}

TEST(RegressCheckpoints, Rows107And153AnUntiedHeadMustBeThere) {
  // The tied model says it is not: its head is missing.
  const std::string error = ConfigError("llama-bias-tied", "tie_word_embeddings", false);
  EXPECT_THAT(error, HasSubstr("lm_head.weight"));
  EXPECT_THAT(error, HasSubstr("tie_word_embeddings"));
  EXPECT_EQ(ConfigError("llama-bias-tied", "tie_word_embeddings", true), "");
}

TEST(RegressCheckpoints, Rows104And128TensorsThatNoLayerUsesStopTheLoad) {
  EXPECT_THAT(ConfigError("llama", "num_hidden_layers", 1), HasSubstr("model.layers.1."));
}

TEST(RegressCheckpoints, Row106HeadDimWinsOverHiddenByHeads) {
  // 64 by 4 heads is 16: any other head_dim asks for other shapes, which the message shows.
  EXPECT_THAT(ConfigError("llama", "head_dim", 24), HasSubstr("[96, 64]"));
  EXPECT_EQ(ConfigError("llama", "head_dim", 16), "");
}

TEST(RegressCheckpoints, Row149AFileWithoutArchitectureSaysSo) {
  for (const char* name : {"", "clip", "foo"}) {
    const std::string error = LoadError("gguf/llama-f32/model.gguf", [&](files::ModelFiles& files) {
      files.gguf->metadata.values["general.architecture"] = std::string_view(name);
    });
    EXPECT_THAT(error, HasSubstr("supported: llama, ")) << name;
  }
  EXPECT_THAT(LoadError("gguf/llama-f32/model.gguf",
                        [](files::ModelFiles& files) {
                          files.gguf->metadata.values.erase("general.architecture");
                        }),
              HasSubstr("general.architecture"));
}

TEST(RegressCheckpoints, Row152AnotherFamilysTensorsAreNamed) {
  const std::string error = LoadError("gguf/gemma3-q8_0/model.gguf", [](files::ModelFiles& files) {
    auto& values = files.gguf->metadata.values;
    std::vector<std::pair<std::string, std::string>> renamed;
    for (const auto& [key, value] : values) {
      if (key.rfind("gemma3.", 0) == 0) renamed.emplace_back(key, "llama." + key.substr(7));
    }
    for (const auto& [from, to] : renamed) values[to] = values.at(from);
    values["general.architecture"] = std::string_view("llama");
  });
  EXPECT_THAT(error, HasSubstr("blk.0."));
  EXPECT_THAT(error, Not(HasSubstr("\n")));
}

TEST(RegressCheckpoints, Row220CodeOfACheckpointIsNeverRun) {
  // auto_map names Python code beside the weights; nothing here could run it.
  EXPECT_EQ(ConfigError("llama", "auto_map", {{"AutoModelForCausalLM", "modeling_evil.Evil"}}), "");
}

}  // namespace
}  // namespace kvasir::model
