// Bad input gets one line that names the field.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "plan/answer.h"
#include "plan/hardware.h"
#include "plan/model_shape.h"
#include "plan/number_format.h"
#include "plan/search.h"
#include "plan/shipped_formats.h"
#include "plan/units.h"
#include "support/temp_folder.h"

namespace kvasir::plan {
namespace {

using nlohmann::json;

/// One line that holds `field`.
void ExpectNames(const Error& error, std::string_view field) {
  EXPECT_NE(error.message.find(field), std::string::npos) << error.message;
  EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
}

class ConfigFile {
 public:
  Result<ModelShape> Read(const std::string& text) const {
    return FindModelShape(folder_.Write("config.json", text).string());
  }

 private:
  test::TempFolder folder_;
};

const json kDense = {{"architectures", {"LlamaForCausalLM"}},
                     {"hidden_size", 64},
                     {"num_hidden_layers", 2},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 2},
                     {"intermediate_size", 128},
                     {"vocab_size", 256},
                     {"max_position_embeddings", 512}};
const json kLatent = {{"architectures", {"DeepseekV3ForCausalLM"}},
                      {"hidden_size", 64},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 4},
                      {"intermediate_size", 128},
                      {"moe_intermediate_size", 32},
                      {"n_routed_experts", 4},
                      {"num_experts_per_tok", 2},
                      {"n_shared_experts", 1},
                      {"first_k_dense_replace", 1},
                      {"q_lora_rank", 16},
                      {"kv_lora_rank", 16},
                      {"qk_nope_head_dim", 16},
                      {"qk_rope_head_dim", 8},
                      {"v_head_dim", 16},
                      {"vocab_size", 256}};

TEST(PlanInputTest, ConfigsThatLackOrTwistAField) {
  const ConfigFile file;
  ASSERT_TRUE(file.Read(kDense.dump()).ok());
  ASSERT_TRUE(file.Read(kLatent.dump()).ok());
  for (const char* field : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                            "intermediate_size", "vocab_size", "architectures"}) {
    json config = kDense;
    config.erase(field);
    const auto shape = file.Read(config.dump());
    ASSERT_FALSE(shape.ok()) << field;
    ExpectNames(shape.error(), field);
    ExpectNames(shape.error(), "missing");
  }
  for (const char* field : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                            "moe_intermediate_size", "num_experts_per_tok", "kv_lora_rank",
                            "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "vocab_size"}) {
    json config = kLatent;
    config.erase(field);
    auto shape = file.Read(config.dump());
    ASSERT_FALSE(shape.ok()) << field;
    ExpectNames(shape.error(), field);
    for (const json& bad : {json(-1), json("many"), json(1e300), json(json::array()), json(0)}) {
      config[field] = bad;
      shape = file.Read(config.dump());
      ASSERT_FALSE(shape.ok()) << field << " " << bad;
      ExpectNames(shape.error(), field);
    }
  }
  const std::pair<json, const char*> twisted[] = {
      {{{"num_hidden_layers", 1'000'000}}, "num_hidden_layers"},
      {{{"num_key_value_heads", 3}}, "num_key_value_heads"},
      {{{"torch_dtype", "int3"}}, ": torch_dtype: expected bfloat16"},
      {{{"torch_dtype", 7}}, ": torch_dtype: expected a string, got 7"},
      {{{"dtype", "int3"}}, ": dtype: expected bfloat16"},
      {{{"quantization_config", 5}}, "quantization_config: expected an object, got 5"},
      {{{"quantization_config", {{"quant_method", 5}}}}, "quant_method: expected a string, got 5"},
      {{{"quantization_config", {{"quant_method", "compressed-tensors"}, {"config_groups", 5}}}},
       "config_groups: expected an object of groups"},
      {{{"quantization_config", {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 7}}}},
       "group_size: expected -1 or an even number of 16 to 1024, got 7"},
      {{{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", "x"}}}},
       "group_size: expected an integer"},
      {{{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {128, 0}}}}},
       "weight_block_size: expected two integers"},
      {{{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", 128}}}},
       "weight_block_size: expected two integers"},
      {{{"quantization_config", {{"quant_method", "gptq"}, {"bits", "4"}}}}, "bits: expected an i"},
      {{{"quantization_config", {{"quant_method", "gptq"}, {"bits", 8.5}}}}, "bits: expected an i"},
      {{{"quantization_config",
         {{"quant_method", "compressed-tensors"},
          {"config_groups", {{"g", {{"weights", {{"num_bits", "8"}}}}}}}}}},
       "num_bits: expected an integer, got"},
      {{{"quantization_config", {{"quant_method", "fp8"}, {"modules_to_not_convert", 5}}}},
       "modules_to_not_convert: expected a list of names, got 5"},
      {{{"architectures", {"SkynetForCausalLM"}}}, "SkynetForCausalLM"},
      {{{"architectures", {"SkynetForCausalLM"}}}, "; for plans alone: MixtralForCausalLM, "},
      {{{"architectures", 5}, {"model_type", "llama"}}, "architectures: expected a list"},
      {{{"architectures", {5}}, {"model_type", "llama"}}, "architectures: expected a list"},
  };
  for (const auto& [change, field] : twisted) {
    json config = kDense;
    config.update(change);
    const auto shape = file.Read(config.dump());
    ASSERT_FALSE(shape.ok()) << change;
    ExpectNames(shape.error(), field);
  }
  for (const char* text : {"", "[]", "7", "{", "null", "{\"architectures\": 7}"}) {
    const auto shape = file.Read(text);
    ASSERT_FALSE(shape.ok()) << text;
    ExpectNames(shape.error(), "config.json");
  }
  const json mixtral = {{"architectures", {"MixtralForCausalLM"}},
                        {"hidden_size", 64},
                        {"num_hidden_layers", 2},
                        {"num_attention_heads", 4},
                        {"intermediate_size", 128},
                        {"num_local_experts", 0},
                        {"num_experts_per_tok", 2},
                        {"vocab_size", 256}};
  ExpectNames(file.Read(mixtral.dump()).error(),
              "num_local_experts: expected an integer of at least 1, got 0");
  const std::pair<json, const char*> of_experts[] = {
      {{{"num_experts_per_tok", 5}}, "num_experts_per_tok"},
      {{{"first_k_dense_replace", 3}}, "first_k_dense_replace: expected 0 to 2, the layers, got 3"},
      {{{"first_k_dense_replace", -1}}, "first_k_dense_replace"},
      {{{"moe_layer_freq", 0}}, "moe_layer_freq: expected 1, got 0"},
      {{{"hidden_size", 1'000'000'000}}, "hidden_size: expected at most 16777216"},
      {{{"v_head_dim", 1'000'000'000}}, "v_head_dim: expected at most 16777216"},
      {{{"num_attention_heads", 16'777'216}}, "num_attention_heads: expected at most"},
      {{{"n_routed_experts", 1'000'000}}, "n_routed_experts: expected at most 65536"},
      {{{"hidden_size", 16'777'216}, {"moe_intermediate_size", 16'777'216}},
       "hidden_size: expected a model of at most 1e+15 parameters"},
  };
  json none = kLatent;
  none.erase("n_routed_experts");
  ExpectNames(file.Read(none.dump()).error(), "n_routed_experts: expected an integer, but the key");
  for (const auto& [change, field] : of_experts) {
    json config = kLatent;
    config.update(change);
    const auto shape = file.Read(config.dump());
    ASSERT_FALSE(shape.ok()) << change;
    ExpectNames(shape.error(), field);
  }
}

TEST(PlanInputTest, HowCheckpointsAreStored) {
  const ConfigFile file;
  const auto shipped = [&](const json& quantization, Part part) {
    json config = kLatent;
    config["quantization_config"] = quantization;
    return file.Read(config.dump()).value().shipped[static_cast<size_t>(part)].name;
  };
  const json fp8 = {{"quant_method", "fp8"}};
  EXPECT_EQ(shipped(fp8, Part::kAttention), "fp8");
  EXPECT_EQ(shipped(fp8, Part::kHead), "bf16");
  EXPECT_EQ(shipped({{"quant_method", "mxfp4"}}, Part::kExperts), "mxfp4");
  EXPECT_EQ(shipped({{"quant_method", "mxfp4"}}, Part::kAttention), "bf16");
  EXPECT_EQ(shipped({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}}, Part::kFfn),
            "int4-g32");
  EXPECT_EQ(shipped({{"quant_method", "gptq"}, {"bits", 4}}, Part::kFfn), "int4-g128");
  // A scale of 2 bytes a row.
  json by_row = kLatent;
  by_row["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", -1}};
  EXPECT_EQ(file.Read(by_row.dump()).value().shipped[static_cast<size_t>(Part::kFfn)].Bytes(3, 64),
            3 * (32 + 2));
  json tiles = kLatent;
  tiles["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {16, 32}}};
  EXPECT_EQ(file.Read(tiles.dump()).value().shipped[static_cast<size_t>(Part::kFfn)].Bytes(64, 64),
            64 * 64 + 4 * 2 * 4);
  json experts_only = {
      {"quant_method", "compressed-tensors"},
      {"ignore", {"lm_head", "re:.*self_attn.*"}},
      {"config_groups",
       {{"group_0", {{"weights", {{"num_bits", 4}, {"type", "int"}, {"group_size", 32}}}}}}}};
  EXPECT_EQ(shipped(experts_only, Part::kExperts), "int4-g32");
  EXPECT_EQ(shipped(experts_only, Part::kFfn), "int4-g32");
  EXPECT_EQ(shipped(experts_only, Part::kAttention), "bf16");
  // Of another tower, and of another module whose name is longer.
  for (const char* other : {"vision_tower.encoder.layers.1.self_attn.q_proj", "re:vision_tower.*",
                            "re:visual\\..*", "re:.*self_attn_norm", "re:(broken"}) {
    experts_only["ignore"] = {other};
    EXPECT_EQ(shipped(experts_only, Part::kAttention), "int4-g32") << other;
  }
  experts_only["ignore"] = {"model.layers.1.self_attn.o_proj"};  // of two layers
  EXPECT_EQ(shipped(experts_only, Part::kAttention), "bf16");
  // Two groups: a name wins over a class.
  const json two = {
      {"quant_method", "compressed-tensors"},
      {"config_groups",
       {{"group_0", {{"targets", {"Linear"}}, {"weights", {{"num_bits", 8}, {"type", "float"}}}}},
        {"group_1",
         {{"targets", {"re:.*experts.*"}},
          {"format", "mxfp4-pack-quantized"},
          {"weights", {{"num_bits", 4}, {"type", "float"}, {"group_size", 32}}}}}}}};
  EXPECT_EQ(shipped(two, Part::kExperts), "mxfp4");
  EXPECT_EQ(shipped(two, Part::kAttention), "fp8");
  const json kept = {{"quant_method", "fp8"}, {"modules_to_not_convert", {"self_attn", "gate"}}};
  EXPECT_EQ(shipped(kept, Part::kAttention), "bf16");
  EXPECT_EQ(shipped(kept, Part::kExperts), "fp8");  // gate_proj is not gate
  EXPECT_EQ(shipped({{"quant_method", "gptq"}, {"bits", 8}, {"lm_head", true}}, Part::kHead),
            "int8-g128");
  const json by_hand = {{"quant_method", "fp8"}, {"ignored_layers", {"self_attn", "lm_head"}}};
  EXPECT_EQ(shipped(by_hand, Part::kAttention), "bf16");
  EXPECT_EQ(shipped(by_hand, Part::kFfn), "fp8");
  // What most of a part has is what it is planned in.
  const json without = {{"quant_method", "fp8"}, {"modules_to_not_convert", {"down_proj"}}};
  EXPECT_EQ(shipped(without, Part::kFfn), "fp8");
  const json most = {{"quant_method", "fp8"}, {"modules_to_not_convert", {"up_proj", "gate_proj"}}};
  EXPECT_EQ(shipped(most, Part::kFfn), "bf16");
  // The text part's own, and null for none.
  json inner = kLatent;
  inner["text_config"] = {{"quantization_config", {{"quant_method", "fp8"}}}};
  inner["quantization_config"] = nullptr;
  EXPECT_TRUE(IsQuantized(inner));
  inner.erase("text_config");
  EXPECT_FALSE(IsQuantized(inner));
}

// What nobody here knows can still be planned in another format.
TEST(PlanInputTest, AFormatThatIsNotKnownIsNamedAndMayBeChosen) {
  const ConfigFile file;
  for (const auto& [quantization, words] :
       {std::pair<json, const char*>{{{"quant_method", "bitsandbytes"}}, "'bitsandbytes' is not"},
        {{{"quant_method", "gptq"}, {"bits", 3}}, "bits: '3' is not known here; give the weights'"},
        {{{"quant_method", "compressed-tensors"},
          {"config_groups", {{"g", {{"weights", {{"num_bits", 6}}}}}}}},
         "'6, int' is not"},
        {{{"load_in_4bit", true}}, "quant_method: 'none' is not known"},
        {{{"quant_method", "compressed-tensors"}}, "config_groups: 'none' is not known"},
        {{{"quant_method", "gptq"}, {"bits", 4}, {"dynamic", {{"-:.*attn.*", json::object()}}}},
         "dynamic: '{"},
        {{{"quant_method", "gptq"}, {"modules_in_block_to_quantize", {{"mlp.down_proj"}}}},
         "modules_in_block_to_quantize"}}) {
    json config = kDense;
    config["quantization_config"] = quantization;
    const ModelShape shape = file.Read(config.dump()).value();
    Choices choices;
    const Hardware machine = FindHardware("h200").value();
    const auto asked = MakeAnswer(shape, machine, choices);
    ASSERT_FALSE(asked.ok());
    ExpectNames(asked.error(), words);
    choices.users = 1;
    choices.context_tokens = 128;
    ExpectNames(Search(shape, {machine}, choices, {1.0, 1.0}).error(), words);
    choices.weights = ParseWeightFormat("int4").value();
    EXPECT_TRUE(MakeAnswer(shape, machine, choices).ok());
    EXPECT_EQ(Search(shape, {machine}, choices, {1.0, 1.0}).value().satisfying.size(), 1U);
  }
}

TEST(PlanInputTest, UnknownNamesSayWhichAreNear) {
  const auto model = FindModelShape("lama-3.3-70b");
  ASSERT_FALSE(model.ok());
  ExpectNames(model.error(), "model: ");
  ExpectNames(model.error(), "llama-3.3-70b");
  const auto machine = FindHardware("h100-80");
  ASSERT_FALSE(machine.ok());
  ExpectNames(machine.error(), "hardware: ");
  ExpectNames(machine.error(), "h100-80gb");
  // A family's name names its members, in any case of letters.
  ExpectNames(FindHardware("H100").error(), "nearest: h100-80gb, h100-nvl-94gb, h100-pcie-80gb");
  ExpectNames(FindModelShape("DeepSeek-V2").error(), "nearest: deepseek-v2-lite, ");
  EXPECT_EQ(FindHardware("H100-80GB").value().name, "h100-80gb");
  EXPECT_EQ(FindModelShape("Llama-3.3-70B").value().name, "llama-3.3-70b");
  ExpectNames(FindModelShape("no\nsuch\x1b thing").error(), "no");
  ExpectNames(FindHardware("/nowhere/machine.json").error(), "/nowhere/machine.json");
  ExpectNames(ParseWeightFormat("int5").error(), "int5");
  ExpectNames(ParseWeightFormat("int4-g7").error(), "int4-g7");
  ExpectNames(ParseKvFormat("Q4_K").error(), "Q4_K");
  EXPECT_EQ(ParseWeightFormat("Q4_K").value().block_bytes, 144);
  EXPECT_EQ(ParseWeightFormat("INT4-G32").value().name, "int4-g32");
}

TEST(PlanInputTest, MachinesAsJson) {
  const json good = {{"memory_gib", 24},
                     {"bandwidth_gb_per_s", 500},
                     {"peak_tflops", {{"bf16", 100}}},
                     {"price_per_hour_usd", 0.5}};
  const Hardware machine = HardwareFromJson(good.dump(), "mine.json").value();
  EXPECT_EQ(machine.name, "mine");
  EXPECT_EQ(machine.memory_bytes, int64_t{24} << 30);
  EXPECT_DOUBLE_EQ(machine.bandwidth, 500e9);
  const std::pair<json, const char*> bad[] = {
      {{{"memory_gib", nullptr}}, "memory_gib"},
      {{{"memory_gib", -1}}, "memory_gib"},
      {{{"bandwidth_gb_per_s", "fast"}}, "bandwidth_gb_per_s"},
      {{{"bandwidth_gb_per_s", 1e300}}, "bandwidth_gb_per_s"},
      {{{"peak_tflops", 7}}, "peak_tflops"},
      {{{"peak_tflops", {{"fp9", 1}}}}, "fp9"},
      {{{"peak_tflops", {{"int8", 1}}}}, "f32"},
      {{{"bandwith_gb_per_s", 1}}, "bandwith_gb_per_s: no such field; nearest: bandwidth_gb_per_s"},
      {{{"devices_linked", 1.5}, {"link_gb_per_s", 1}}, "devices_linked: expected a whole number"},
      {{{"title", "a\nb"}}, "title: expected a string without control characters"},
      {{{"name", "\x1b[1m"}}, "name: expected a string without control characters"},
      {{{"memory_mib", 1}}, "memory_mib: expected it or memory_gib, got both"},
      {{{"clock_ghz", 2}}, "bandwidth_gb_per_s: expected none beside sockets"},
      {{{"kind", "tpu"}}, "kind"},
      {{{"devices_linked", 4}}, "link_gb_per_s"},
      {{{"sockets", 2}, {"bandwidth_gb_per_s", nullptr}, {"peak_tflops", nullptr}},
       "bandwidth_gb_per_s"},
  };
  for (const auto& [change, field] : bad) {
    json twisted = good;
    twisted.update(change);
    const auto read = HardwareFromJson(twisted.dump(), "mine.json");
    ASSERT_FALSE(read.ok()) << change;
    ExpectNames(read.error(), field);
    ExpectNames(read.error(), "mine.json");
  }
  ExpectNames(HardwareFromJson("[1]", "mine.json").error(), "object");
  ExpectNames(HardwareFromJson("{\"title\": \"a\", \"title\": \"b\"}", "mine.json").error(),
              "title: expected each field once, got it twice");
  json twice = good;
  twice["peak_tflops"] = {{"fp9", 1}};
  EXPECT_EQ(HardwareFromJson(twice.dump(), "mine.json").error().message,
            "mine.json: peak_tflops: fp9: no such field");
  // Fields of a CPU machine, some of them left out: what is missing is named.
  const json cpu = {{"memory_gib", 24}, {"kind", "cpu"}, {"clock_ghz", 3}};
  ExpectNames(HardwareFromJson(cpu.dump(), "mine.json").error(),
              "sockets: expected a whole number");
}

TEST(PlanInputTest, NumbersThatCannotBe) {
  const ModelShape model = FindModelShape("qwen3-8b").value();
  const Hardware machine = FindHardware("h100-80gb").value();
  const auto error_of = [&](const Choices& choices) {
    const auto answer = MakeAnswer(model, machine, choices);
    EXPECT_FALSE(answer.ok());
    return answer.ok() ? Error{} : answer.error();
  };
  Choices choices;
  choices.context_tokens = 1'000'000;
  ExpectNames(error_of(choices), "--context");
  choices = {};
  choices.reserved_tokens = 1'000'000;
  ExpectNames(error_of(choices), "--max-model-len");
  choices.context_tokens = 8192;
  choices.reserved_tokens = 4096;
  ExpectNames(error_of(choices), "--max-model-len");
  for (const auto& [parallel, flag] : {std::pair{Parallel{3, 1, 1}, "--tensor-parallel"},
                                       std::pair{Parallel{16, 1, 1}, "--tensor-parallel"},
                                       std::pair{Parallel{1, 37, 1}, "--pipeline-parallel"},
                                       std::pair{Parallel{1, 1, 2}, "--expert-parallel"}}) {
    choices = {};
    choices.parallel = parallel;
    ExpectNames(error_of(choices), flag);
  }
  choices = {};
  ExpectNames(Search(model, {machine}, choices, {1.0, 1.0}).error(), "--users");
  choices.users = 10;
  choices.context_tokens = 1'000'000;
  ExpectNames(Search(model, {machine}, choices, {1.0, 1.0}).error(), "--context");

  EXPECT_EQ(ParseTokens("8k", "context").value(), 8192);
  EXPECT_EQ(ParseTokens("1.5k", "context").value(), 1536);
  EXPECT_EQ(ParseTokens("131072", "context").value(), 131'072);
  for (const char* text : {"", "k", "0", "-1", "8kb", "1e9", "nan", "inf", "99999999999", "0.5"}) {
    const auto tokens = ParseTokens(text, "context");
    ASSERT_FALSE(tokens.ok()) << text;
    ExpectNames(tokens.error(), "--context");
  }
  EXPECT_DOUBLE_EQ(ParseDuration("50ms", "max-itl").value(), 0.05);
  EXPECT_DOUBLE_EQ(ParseDuration("2s", "max-ttft").value(), 2.0);
  EXPECT_DOUBLE_EQ(ParseDuration("0s", "think-time", true).value(), 0.0);
  EXPECT_FALSE(ParseDuration("0s", "max-ttft").ok());
  EXPECT_FALSE(ParseDuration("-1s", "think-time", true).ok());
  for (const char* text : {"", "0s", "-1s", "5min", "nan", "1e20s", "2", "0"}) {
    ExpectNames(ParseDuration(text, "max-itl").error(), "--max-itl");
  }
  EXPECT_EQ(ParseDuration("50", "max-itl").error().message,
            "--max-itl: expected a time with its unit, as 50ms or 2s, got '50'");
  EXPECT_EQ(BytesText(65.24e9), "65.2 GB");
  EXPECT_EQ(BytesText(999.96e6), "1.00 GB");
  EXPECT_EQ(SecondsText(0.0124), "12.4 ms");
  EXPECT_EQ(TokensText(131'072), "128k");
  EXPECT_EQ(ParametersText(116'829'156'672), "117 B");
  EXPECT_EQ(ParametersText(134'515'008), "135 M");
  EXPECT_EQ(ParametersText(999'600'000), "1 B");
}

}  // namespace
}  // namespace kvasir::plan
