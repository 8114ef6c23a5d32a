// GPT-2: learned positions, LayerNorm, weights stored [in, out].
#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  CommonKeys keys;
  keys.hidden_size.hf = "n_embd";
  keys.layers.hf = "n_layer";
  keys.query_heads.hf = "n_head";
  keys.kv_heads = {};
  keys.head_dim = {};
  keys.ffn_size.hf = "n_inner";
  keys.norm_eps = {"layer_norm_epsilon", "attention.layer_norm_epsilon"};
  CommonDefaults defaults;
  defaults.norm_kind = kernels::NormArgs::Kind::kLayer;
  defaults.norm_bias = true;
  defaults.norm_eps = 1e-5;
  defaults.tied_embeddings = true;
  defaults.ffn_size = 4 * reader.RequiredInt(keys.hidden_size);
  CommonConfig common = ReadCommon(reader, defaults, keys);
  common.max_positions = reader.RequiredInt({"n_positions", "context_length"});
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  out.spec.learned_positions = true;
  const auto activation = ReadActivation(reader, "activation_function", "gelu_new");
  const bool scaled = reader.Bool({"scale_attn_weights", {}}, true);
  const bool by_layer = reader.Bool({"scale_attn_by_inverse_layer_idx", {}}, false);
  ForEachLayer(out.spec, [&](int64_t i, LayerSpec& layer, GroupedQueryAttention& attention) {
    attention.rope_table.reset();
    if (!scaled) attention.scale = 1.0f;
    if (by_layer) attention.scale /= static_cast<float>(i + 1);
    layer.ffn = DenseFfn{common.ffn_size, false, activation};
  });
  if (reader.is_gguf()) {
    out.names = GgufNames(reader, out.spec);
    return out;
  }
  // The first releases lack the prefix.
  const std::string prefix = FindPrefix(reader, {"transformer.", ""}, "wte.weight");
  TensorNames& names = out.names;
  names = LlamaNames(out.spec, prefix);
  names.embedding = prefix + "wte";
  names.positions = prefix + "wpe";
  names.final_norm = prefix + "ln_f";
  names.ignored_suffixes = {".attn.bias", ".attn.masked_bias"};  // causal masks
  const std::string at = prefix + "h.{}.";
  LayerNames& in = names.layer;
  in.attention_pre_norm = at + "ln_1";
  in.ffn_pre_norm = at + "ln_2";
  in.qkv.parts = {{at + "attn.c_attn", 3 * common.hidden_size}};
  in.attention_output.parts.front().name = at + "attn.c_proj";
  in.ffn_input.parts.front().name = at + "mlp.c_fc";
  in.ffn_output.parts.front().name = at + "mlp.c_proj";
  for (LinearSource* source : {&in.qkv, &in.attention_output, &in.ffn_input, &in.ffn_output}) {
    source->layout = LinearSource::Layout::kTransposed;
    source->bias = LinearSource::Bias::kRequired;
  }
  return out;
}

}  // namespace

const Family kGpt2 = {{"GPT2LMHeadModel", "gpt2"}, {"gpt2"}, Build};

}  // namespace kvasir::model
