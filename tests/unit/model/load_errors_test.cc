// What is wrong with a checkpoint is said in one line that names the file and what was expected.
#include "support/load_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace kvasir::model {
namespace {

using nlohmann::json;
using test::ConfigError;
using test::LoadError;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(LoadErrors, UnknownArchitectureIsNamedWithTheKnownOnes) {
  const std::string error = ConfigError("llama", "architectures", {"MixtralForCausalLM"});
  EXPECT_THAT(error, HasSubstr("llama/config.json: architecture 'MixtralForCausalLM' is not "
                               "supported; supported: LlamaForCausalLM, MistralForCausalLM, "));
  EXPECT_THAT(error, Not(HasSubstr("\n")));
}

TEST(LoadErrors, WithoutArchitecturesTheModelTypeCounts) {
  EXPECT_EQ(
      LoadError("llama", [](files::ModelFiles& files) { files.config.erase("architectures"); }),
      "");
  EXPECT_THAT(LoadError("llama",
                        [](files::ModelFiles& files) {
                          files.config.erase("architectures");
                          files.config["model_type"] = "mamba";
                        }),
              HasSubstr("architecture 'mamba' is not supported"));
}

TEST(LoadErrors, ConfigValuesOfTheWrongKind) {
  EXPECT_THAT(ConfigError("llama", "hidden_size", "large"),
              EndsWith("llama/config.json: hidden_size: expected an integer, got \"large\""));
  EXPECT_THAT(ConfigError("llama", "num_hidden_layers", 1'000'000'000),
              EndsWith("num_hidden_layers: expected at most 1024, got 1000000000"));
  EXPECT_THAT(ConfigError("llama", "hidden_size", -1),
              EndsWith("hidden_size: expected 1 to 2147483647, got -1"));
  EXPECT_THAT(ConfigError("llama", "num_key_value_heads", 3),
              EndsWith("num_key_value_heads: expected a divisor of 4 query heads, got 3"));
  EXPECT_THAT(ConfigError("llama", "num_attention_heads", 0),
              EndsWith("num_attention_heads: expected 1 to 2147483647, got 0"));
  EXPECT_THAT(ConfigError("llama", "hidden_act", "xielu"),
              HasSubstr("hidden_act: expected silu, gelu"));
  EXPECT_THAT(
      ConfigError("llama", "rope_scaling", {{"rope_type", "spiral"}}),
      HasSubstr("rope_type: expected default, linear, dynamic, llama3, yarn or longrope, got "
                "spiral"));
  EXPECT_THAT(ConfigError("llama", "rope_scaling", {{"rope_type", "linear"}, {"factor", "x"}}),
              HasSubstr("factor: in the rope's configuration: expected a number"));
  EXPECT_THAT(ConfigError("gemma3", "layer_types", {"full_attention"}),
              EndsWith("layer_types: expected a list of 5 names, one a layer"));
  EXPECT_THAT(ConfigError("gemma3", "sliding_window", 0), HasSubstr("sliding_window: expected at"));
  EXPECT_THAT(ConfigError("smollm3", "no_rope_layers", {1, 0}),
              EndsWith("no_rope_layers: expected 4 items, one a layer, got 2"));
}

TEST(LoadErrors, AMissingKeyIsNamed) {
  EXPECT_THAT(
      LoadError("llama", [](files::ModelFiles& files) { files.config.erase("vocab_size"); }),
      EndsWith("config.json: vocab_size: expected an integer, but the key is missing"));
}

TEST(LoadErrors, QuantizedSafetensorsAreRefused) {
  EXPECT_THAT(ConfigError("llama", "quantization_config", {{"quant_method", "gptq"}}),
              HasSubstr("quantized safetensors (quant_method gptq) are not supported"));
}

TEST(LoadErrors, TensorsThatDoNotFitTheConfig) {
  // Missing, of another shape, left over.
  EXPECT_THAT(ConfigError("llama", "num_hidden_layers", 3), HasSubstr("model.layers.2."));
  EXPECT_THAT(ConfigError("llama", "intermediate_size", 96),
              HasSubstr("model.safetensors: tensor model.layers.0.mlp.gate_proj.weight: expected "
                        "shape [96, 64], got [112, 64]"));
  EXPECT_THAT(ConfigError("llama", "num_hidden_layers", 1),
              HasSubstr("not part of a LlamaForCausalLM model with 1 layers"));
  EXPECT_THAT(ConfigError("llama", "attention_bias", true),
              HasSubstr("model.layers.0.self_attn.q_proj.bias"));
}

TEST(LoadErrors, TheTextPartOfAMultimodalConfigIsRead) {
  EXPECT_EQ(LoadError("gemma3",
                      [](files::ModelFiles& files) {
                        json text = files.config;
                        text.erase("architectures");
                        text.erase("dtype");
                        files.config = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                                        {"model_type", "gemma3"},
                                        {"dtype", "bfloat16"},
                                        {"text_config", text}};
                      }),
            "");
}

TEST(LoadErrors, AHeadBesideATiedTableIsIgnored) {
  EXPECT_EQ(ConfigError("llama", "tie_word_embeddings", true), "");
}

TEST(LoadErrors, GgufWithExpertsIsRefused) {
  EXPECT_THAT(LoadError("gguf/llama-f32/model.gguf",
                        [](files::ModelFiles& files) {
                          files.gguf->metadata.values["llama.expert_count"] = int64_t{8};
                        }),
              HasSubstr("architecture llama with experts (mixture of experts) is not supported"));
  EXPECT_THAT(
      LoadError("gguf/llama-f32/model.gguf",
                [](files::ModelFiles& files) {
                  files.gguf->metadata.values["general.architecture"] =
                      std::string_view("deepseek2");
                }),
      HasSubstr("model.gguf: architecture 'deepseek2' is not supported; supported: llama, "));
}

TEST(LoadErrors, GgufPerLayerArraysMustAgree) {
  EXPECT_THAT(LoadError("gguf/llama-f32/model.gguf",
                        [](files::ModelFiles& files) {
                          files.gguf->metadata.values["llama.attention.head_count_kv"] =
                              std::vector<int64_t>{2, 4};
                        }),
              HasSubstr("llama.attention.head_count_kv: differs from layer to layer"));
  EXPECT_EQ(LoadError("gguf/llama-f32/model.gguf",
                      [](files::ModelFiles& files) {
                        files.gguf->metadata.values["llama.attention.head_count_kv"] =
                            std::vector<int64_t>{2, 2};
                      }),
            "");
}

}  // namespace
}  // namespace kvasir::model
