// GLM-4-0414 (dense): norms around both blocks, half of each head rotated by neighbours, fused
// gate|up.
#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  CommonDefaults defaults;
  defaults.norm_eps = 1.5625e-7;
  defaults.max_positions = 131072;
  defaults.head_dim = 128;
  defaults.rope.partial_rotary_factor = 0.5;
  const CommonConfig common = ReadCommon(reader, defaults);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  AddRopeTable(reader, out.spec, common.rope);
  const auto activation = ReadActivation(reader, "hidden_act", "silu");
  ForEachLayer(out.spec, [&](int64_t, LayerSpec& layer, GroupedQueryAttention& attention) {
    attention.rope_kind = kernels::RopeArgs::Kind::kInterleaved;
    layer.attention_post_norm = layer.ffn_post_norm = common.norm;
    std::get<DenseFfn>(layer.ffn).activation = activation;
  });
  out.names = DefaultNames(reader, out.spec);
  LayerNames& names = out.names.layer;
  names.qkv.bias = BiasRule(reader, reader.Bool({"attention_bias", {}}, true));
  if (!reader.is_gguf()) {
    names.attention_post_norm = "model.layers.{}.post_self_attn_layernorm";
    names.ffn_post_norm = "model.layers.{}.post_mlp_layernorm";
    names.ffn_input.parts = {{"model.layers.{}.mlp.gate_up_proj", 2 * common.ffn_size}};
  }
  return out;
}

}  // namespace

const Family kGlm4 = {{"Glm4ForCausalLM", "glm4"}, {"glm4"}, Build};

}  // namespace kvasir::model
