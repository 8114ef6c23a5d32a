#include "support/tiny_models.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/data.h"

namespace kvasir::test {

std::vector<ExpectedCase> ReadExpected(const std::filesystem::path& folder) {
  const nlohmann::json file = nlohmann::json::parse(ReadFile(folder / "expected.json"));
  std::vector<ExpectedCase> cases;
  for (const nlohmann::json& item : file.at("cases")) {
    ExpectedCase expected;
    item.at("name").get_to(expected.name);
    item.at("prompt_ids").get_to(expected.prompt_ids);
    if (item.contains("last_logits")) item.at("last_logits").get_to(expected.last_logits);
    if (item.contains("last_top")) {
      const nlohmann::json& top = item.at("last_top");
      for (size_t i = 0; i < top.at("ids").size(); ++i) {
        expected.last_top.emplace_back(top.at("ids")[i], top.at("logits")[i]);
      }
    }
    item.at("last_logsumexp").get_to(expected.last_logsumexp);
    item.at("prompt_logprobs").get_to(expected.prompt_logprobs);
    item.at("argmax").get_to(expected.argmax);
    item.at("margins").get_to(expected.margins);
    item.at("bf16_diff").get_to(expected.bf16_diff);
    if (item.contains("greedy")) {
      item.at("greedy").at("ids").get_to(expected.greedy_ids);
      item.at("greedy").at("logprobs").get_to(expected.greedy_logprobs);
      item.at("greedy").at("margins").get_to(expected.greedy_margins);
    }
    cases.push_back(std::move(expected));
  }
  return cases;
}

const std::vector<std::string>& TinyModels() {
  static const std::vector<std::string> names = {"cohere2",
                                                 "ernie4.5",
                                                 "gemma2",
                                                 "gemma3",
                                                 "gemma3-wide",
                                                 "glm4",
                                                 "gpt-neox",
                                                 "gpt2",
                                                 "granite",
                                                 "llama",
                                                 "llama-bias-tied",
                                                 "llama-f16-sharded",
                                                 "llama-f32",
                                                 "llama-rope-dynamic",
                                                 "llama-rope-linear",
                                                 "llama-rope-yarn",
                                                 "llama-wide",
                                                 "llama3-rope",
                                                 "mistral-swa",
                                                 "olmo2",
                                                 "olmo3",
                                                 "phi3",
                                                 "phi3-longrope",
                                                 "qwen2",
                                                 "qwen2-swa",
                                                 "qwen3",
                                                 "qwen3-wide",
                                                 "smollm3",
                                                 "starcoder2"};
  return names;
}

const std::vector<std::string>& TinyGgufs() {
  static const std::vector<std::string> names = {
      "gguf/gemma3-q4_0", "gguf/gemma3-q8_0", "gguf/llama-f16",         "gguf/llama-f32",
      "gguf/llama-q4_0",  "gguf/llama-q8_0",  "gguf/llama-wide-q4_k_m", "gguf/qwen3-bf16",
      "gguf/qwen3-q4_0",  "gguf/qwen3-q8_0",  "gguf/qwen3-wide-q4_k_s", "gguf/qwen3-wide-q5_k_m"};
  return names;
}

}  // namespace kvasir::test
