// GPT-NeoX and Pythia: attention and FFN side by side, q, k and v fused head by head, partial
// rotation.
#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  CommonKeys keys;
  keys.kv_heads = {};
  keys.norm_eps = {"layer_norm_eps", "attention.layer_norm_epsilon"};
  CommonDefaults defaults;
  defaults.norm_kind = kernels::NormArgs::Kind::kLayer;
  defaults.norm_bias = true;
  defaults.norm_eps = 1e-5;
  // Older configs have their own words for the two.
  defaults.rope.theta = reader.Float({"rotary_emb_base", {}}, 10000.0);
  defaults.rope.partial_rotary_factor = reader.Float({"rotary_pct", {}}, 0.25);
  const CommonConfig common = ReadCommon(reader, defaults, keys);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  AddRopeTable(reader, out.spec, common.rope);
  const auto activation = ReadActivation(reader, "hidden_act", "gelu");
  const bool parallel = reader.Bool({"use_parallel_residual", "use_parallel_residual"}, true);
  ForEachLayer(out.spec, [&](int64_t, LayerSpec& layer, GroupedQueryAttention&) {
    layer.parallel = parallel;
    layer.ffn = DenseFfn{common.ffn_size, false, activation};
  });
  if (reader.is_gguf()) {
    out.names = GgufNames(reader, out.spec);
    return out;
  }
  TensorNames& names = out.names;
  names = LlamaNames(out.spec, "gpt_neox.");
  names.embedding = "gpt_neox.embed_in";
  names.final_norm = "gpt_neox.final_layer_norm";
  names.head = "embed_out";
  names.ignored_suffixes = {"rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"};
  const std::string at = "gpt_neox.layers.{}.";
  LayerNames& in = names.layer;
  in.qkv.parts = {
      {at + "attention.query_key_value", 3 * out.spec.layers.front().gqa().QueryCols()}};
  in.qkv.layout = LinearSource::Layout::kQkvPerHead;
  in.qkv.head_dim = common.head_dim;
  in.attention_output.parts.front().name = at + "attention.dense";
  in.ffn_input.parts.front().name = at + "mlp.dense_h_to_4h";
  in.ffn_output.parts.front().name = at + "mlp.dense_4h_to_h";
  in.ffn_input.bias = in.ffn_output.bias = LinearSource::Bias::kRequired;
  in.qkv.bias = in.attention_output.bias =
      BiasRule(reader, reader.Bool({"attention_bias", {}}, true));
  return out;
}

}  // namespace

const Family kGptNeox = {{"GPTNeoXForCausalLM", "gpt_neox"}, {"gptneox"}, Build};

}  // namespace kvasir::model
