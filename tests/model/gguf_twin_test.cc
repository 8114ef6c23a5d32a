// A checkpoint as GGUF's converters would write it gives what its safetensors give. The GGUF forms
// of families without a stored file are made here: tensors renamed and rearranged, metadata from
// the config, all in memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "files/model_files.h"
#include "support/paged_kv.h"
#include "support/tiny_models.h"

namespace kvasir {
namespace {

/// Tensors held in memory as F32.
class MemoryWeights final : public files::Weights {
 public:
  void Add(const std::string& name, Shape shape, std::vector<float> values) {
    auto& stored = values_[name];
    stored = std::move(values);
    views_[name] = {DType::kF32, std::move(shape),
                    reinterpret_cast<const std::byte*>(stored.data()),
                    static_cast<int64_t>(stored.size() * sizeof(float))};
    names_.clear();
    for (const auto& [key, view] : views_) names_.push_back(key);
  }
  [[nodiscard]] const std::vector<std::string>& names() const override { return names_; }
  [[nodiscard]] const TensorView* Find(std::string_view name) const override {
    const auto found = views_.find(std::string(name));
    return found == views_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::string FileOf(std::string_view) const override { return "memory.gguf"; }
  void Release(std::span<const std::byte>) const override {}

 private:
  std::map<std::string, std::vector<float>> values_;
  std::map<std::string, TensorView> views_;
  std::vector<std::string> names_;
};

using Renames = std::vector<std::pair<std::string, std::string>>;

/// How one family's converter works.
struct Twin {
  std::string model{};  ///< under tests/data/models
  std::string architecture{};
  Renames renames{};         ///< pieces of names, in order, on top of the common ones
  bool permutes_qk = false;  ///< rows reordered so that neighbours rotate
  bool adds_one_to_norms = false;
  bool transposes = false;        ///< GPT-2's Conv1D
  bool splits_qkv_heads = false;  ///< GPT-NeoX
  bool layer_norm = false;
  std::map<std::string, files::GgufValue> metadata{};  ///< without the architecture
  nlohmann::json config{};  ///< changes to the config first, where GGUF cannot say what it says
};

std::ostream& operator<<(std::ostream& out, const Twin& twin) { return out << twin.model; }

std::string Replaced(std::string name, const Renames& renames) {
  for (const auto& [from, to] : renames) {
    if (const size_t at = name.find(from); at != std::string::npos) {
      name.replace(at, from.size(), to);
    }
  }
  return name;
}

const Renames kCommonRenames = {
    {"model.layers.", "blk."},           {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"input_layernorm", "attn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},       {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},       {"lm_head", "output"},
};
const Renames kLlamaNorms = {{"post_attention_layernorm", "ffn_norm"}};
const Renames kSandwichNorms = {{"post_attention_layernorm", "post_attention_norm"},
                                {"pre_feedforward_layernorm", "ffn_norm"},
                                {"post_feedforward_layernorm", "post_ffw_norm"}};

std::vector<float> WithRows(const std::vector<float>& values, int64_t rows,
                            const std::function<int64_t(int64_t)>& source_row) {
  const size_t cols = values.size() / static_cast<size_t>(rows);
  std::vector<float> out(values.size());
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(out.data() + static_cast<size_t>(row) * cols,
                values.data() + static_cast<size_t>(source_row(row)) * cols, cols * sizeof(float));
  }
  return out;
}

void ConvertTensor(const Twin& twin, const model::ModelSpec& spec, const std::string& name,
                   const TensorView& view, MemoryWeights& out) {
  const int64_t head_dim = spec.layers.front().gqa().head_dim;
  std::string to = Replaced(Replaced(name, twin.renames), kCommonRenames);
  Shape shape = view.shape;
  std::vector<float> values = ToFloat(view);
  const auto is = [&](const char* piece) { return to.find(piece) != std::string::npos; };
  if (twin.adds_one_to_norms && is("norm")) {
    for (float& w : values) w += 1.0f;
  }
  if (twin.permutes_qk && (is("attn_q.") || is("attn_k."))) {
    values = WithRows(values, shape.front(), [&](int64_t row) {
      const int64_t in_head = row % head_dim;
      return row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
    });
  }
  if (twin.splits_qkv_heads && is("attn_qkv")) {
    const int64_t part_rows = shape.front() / 3;
    values = WithRows(values, shape.front(), [&](int64_t row) {
      const int64_t head = row % part_rows / head_dim;
      return (head * 3 + row / part_rows) * head_dim + row % head_dim;
    });
  }
  if (twin.transposes && shape.size() == 2 && to.starts_with("blk.")) {
    std::vector<float> turned(values.size());
    for (int64_t i = 0; i < shape[0]; ++i) {
      for (int64_t j = 0; j < shape[1]; ++j) {
        turned[static_cast<size_t>(j * shape[0] + i)] =
            values[static_cast<size_t>(i * shape[1] + j)];
      }
    }
    values = std::move(turned);
    std::swap(shape[0], shape[1]);
  }
  out.Add(to, shape, std::move(values));
}

files::ModelFiles MakeTwin(const Twin& twin, const test::LoadedModel& original) {
  const model::ModelSpec& spec = original.model->spec();
  const model::GroupedQueryAttention& attention = spec.layers.front().gqa();
  files::ModelFiles files;
  files.kind = files::ModelFiles::Kind::kGguf;
  files.path = "memory.gguf";
  auto weights = std::make_unique<MemoryWeights>();
  const files::Weights& source = *original.files->weights();
  for (const std::string& name : source.names()) {
    ConvertTensor(twin, spec, name, *source.Find(name), *weights);
  }
  files::GgufMetadata metadata;
  auto& values = metadata.values;
  const std::string at = twin.architecture + ".";
  values["general.architecture"] = std::string_view(twin.architecture);
  values[at + "context_length"] = spec.max_positions;
  values[at + "embedding_length"] = spec.hidden_size;
  values[at + "block_count"] = static_cast<int64_t>(spec.layers.size());
  values[at + "feed_forward_length"] = spec.layers.front().dense_ffn().hidden_size;
  values[at + "attention.head_count"] = attention.query_heads;
  values[at + "attention.head_count_kv"] = attention.kv_heads;
  values[at + "attention.key_length"] = attention.head_dim;
  values[at + "vocab_size"] = spec.vocab_size;
  values[at +
         (twin.layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon")] =
      static_cast<double>(spec.final_norm.eps);
  for (const auto& [key, value] : twin.metadata) values[at + key] = value;
  files.gguf = files::GgufFile{3, std::move(metadata), std::move(weights)};
  return files;
}

std::vector<Twin> Twins() {
  std::vector<Twin> twins;
  const auto add = [&](Twin twin) { twins.push_back(std::move(twin)); };
  add({.model = "llama-bias-tied",
       .architecture = "llama",
       .renames = kLlamaNorms,
       .permutes_qk = true,
       .metadata = {{"rope.freq_base", 1e4}}});
  add({.model = "mistral-swa",
       .architecture = "llama",
       .renames = kLlamaNorms,
       .permutes_qk = true,
       .metadata = {{"rope.freq_base", 1e4}, {"attention.sliding_window", int64_t{32}}}});
  add({.model = "llama-rope-yarn",
       .architecture = "llama",
       .renames = kLlamaNorms,
       .permutes_qk = true,
       .metadata = {{"rope.freq_base", 1e4},
                    {"rope.scaling.type", std::string_view("yarn")},
                    {"rope.scaling.factor", 8.0},
                    {"rope.scaling.original_context_length", int64_t{64}}}});
  add({.model = "llama-rope-linear",
       .architecture = "llama",
       .renames = kLlamaNorms,
       .permutes_qk = true,
       .metadata = {{"rope.freq_base", 1e4},
                    {"rope.scaling.type", std::string_view("linear")},
                    {"rope.scaling.factor", 4.0}}});
  add({.model = "qwen2",
       .architecture = "qwen2",
       .renames = kLlamaNorms,
       .metadata = {{"rope.freq_base", 1e6}}});
  add({.model = "gemma2",
       .architecture = "gemma2",
       .renames = kSandwichNorms,
       .adds_one_to_norms = true,
       .metadata = {{"rope.freq_base", 1e4},
                    {"attn_logit_softcapping", 8.0},
                    {"final_logit_softcapping", 6.0},
                    {"attention.sliding_window", int64_t{32}}},
       .config = {{"query_pre_attn_scalar", 24}}});
  add({.model = "phi3",
       .architecture = "phi3",
       .renames = {{"post_attention_layernorm", "ffn_norm"},
                   {"self_attn.qkv_proj", "attn_qkv"},
                   {"mlp.gate_up_proj", "ffn_up"}},
       .metadata = {{"rope.freq_base", 1e4}}});
  add({.model = "olmo2",
       .architecture = "olmo2",
       .renames = kSandwichNorms,
       .metadata = {{"rope.freq_base", 5e5}}});
  add({.model = "olmo3",
       .architecture = "olmo2",
       .renames = kSandwichNorms,
       .metadata = {{"rope.freq_base", 5e5}, {"attention.sliding_window", int64_t{24}}}});
  add({.model = "granite",
       .architecture = "granite",
       .renames = kLlamaNorms,
       .permutes_qk = true,
       .metadata = {{"rope.freq_base", 1e4},
                    {"attention.scale", 0.2},
                    {"embedding_scale", 3.0},
                    {"residual_scale", 0.6},
                    {"logit_scale", 2.0}}});
  add({.model = "smollm3",
       .architecture = "smollm3",
       .renames = kLlamaNorms,
       .permutes_qk = true,
       .metadata = {{"rope.freq_base", 5e4}},
       .config = {{"no_rope_layers", nullptr}}});
  add({.model = "starcoder2",
       .architecture = "starcoder2",
       .renames = {{"post_attention_layernorm", "ffn_norm"},
                   {"mlp.c_fc", "ffn_up"},
                   {"mlp.c_proj", "ffn_down"}},
       .layer_norm = true,
       .metadata = {{"rope.freq_base", 1e5}, {"attention.sliding_window", int64_t{48}}}});
  add({.model = "gpt2",
       .architecture = "gpt2",
       .renames = {{"transformer.h.", "blk."},
                   {"transformer.wte", "token_embd"},
                   {"transformer.wpe", "position_embd"},
                   {"transformer.ln_f", "output_norm"},
                   {"ln_1", "attn_norm"},
                   {"ln_2", "ffn_norm"},
                   {"attn.c_attn", "attn_qkv"},
                   {"attn.c_proj", "attn_output"},
                   {"mlp.c_fc", "ffn_up"},
                   {"mlp.c_proj", "ffn_down"}},
       .transposes = true,
       .layer_norm = true});
  add({.model = "gpt-neox",
       .architecture = "gptneox",
       .renames = {{"gpt_neox.layers.", "blk."},
                   {"gpt_neox.embed_in", "token_embd"},
                   {"gpt_neox.final_layer_norm", "output_norm"},
                   {"embed_out", "output"},
                   {"post_attention_layernorm", "ffn_norm"},
                   {"attention.query_key_value", "attn_qkv"},
                   {"attention.dense", "attn_output"},
                   {"mlp.dense_h_to_4h", "ffn_up"},
                   {"mlp.dense_4h_to_h", "ffn_down"}},
       .splits_qkv_heads = true,
       .layer_norm = true,
       .metadata = {{"rope.freq_base", 1e4},
                    {"rope.dimension_count", int64_t{4}},
                    {"use_parallel_residual", true}}});
  add({.model = "cohere2",
       .architecture = "cohere2",
       .layer_norm = true,
       .metadata = {{"rope.freq_base", 5e4},
                    {"logit_scale", 0.25},
                    {"attention.sliding_window", int64_t{32}}}});
  add({.model = "ernie4.5",
       .architecture = "ernie4_5",
       .renames = kLlamaNorms,
       .metadata = {{"rope.freq_base", 5e5}}});
  add({.model = "glm4",
       .architecture = "glm4",
       .renames = {{"post_self_attn_layernorm", "post_attention_norm"},
                   {"post_attention_layernorm", "ffn_norm"},
                   {"post_mlp_layernorm", "post_ffw_norm"},
                   {"mlp.gate_up_proj", "ffn_up"}},
       .metadata = {{"rope.freq_base", 1e4}, {"rope.dimension_count", int64_t{12}}}});
  return twins;
}

std::vector<float> LastLogits(model::Model& model, const std::vector<int32_t>& tokens) {
  test::PagedKv kv(model.spec(), 16, 1);
  test::TestSequence sequence(kv);
  const model::ForwardSequence rows = sequence.Next(tokens);
  model.Forward({&rows, 1}, kv.views());
  std::vector<float> logits(static_cast<size_t>(model.spec().vocab_size));
  const auto last = static_cast<int64_t>(tokens.size()) - 1;
  model.Logits({&last, 1}, logits.data());
  return logits;
}

class GgufTwinTest : public testing::TestWithParam<Twin> {};

TEST_P(GgufTwinTest, EqualsSafetensors) {
  const Twin& twin = GetParam();
  test::LoadedModel original = test::LoadTiny(twin.model, "ref");
  ASSERT_NE(original.model, nullptr);
  if (!twin.config.is_null()) {
    original.files->config.update(twin.config);
    auto changed = model::Model::Load(*original.files, *original.backend);
    ASSERT_TRUE(changed.ok()) << changed.error().message;
    original.model = *std::move(changed);
  }
  const files::ModelFiles files = MakeTwin(twin, original);
  auto loaded = model::Model::Load(files, *original.backend);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 60; ++i) tokens.push_back((i * 37 + 11) % 350);
  const std::vector<float> expected = LastLogits(*original.model, tokens);
  const std::vector<float> got = LastLogits(**loaded, tokens);
  for (size_t v = 0; v < expected.size(); ++v) ASSERT_NEAR(got[v], expected[v], 1e-4) << v;
}

std::string TestName(const testing::TestParamInfo<Twin>& info) {
  std::string name = info.param.model;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, GgufTwinTest, testing::ValuesIn(Twins()), TestName);

}  // namespace
}  // namespace kvasir
