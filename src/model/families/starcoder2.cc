// StarCoder2: LayerNorm and biases everywhere, a plain GELU FFN, a window on all layers.
#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  CommonDefaults defaults;
  defaults.norm_kind = kernels::NormArgs::Kind::kLayer;
  defaults.norm_bias = true;
  defaults.norm_eps = 1e-5;
  defaults.tied_embeddings = true;
  CommonKeys keys;
  keys.norm_eps = {"norm_epsilon", "attention.layer_norm_epsilon"};
  const CommonConfig common = ReadCommon(reader, defaults, keys);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  AddRopeTable(reader, out.spec, common.rope);
  const auto activation = ReadActivation(reader, "hidden_act", "gelu_pytorch_tanh");
  ForEachLayer(out.spec, [&](int64_t, LayerSpec& layer, GroupedQueryAttention&) {
    layer.ffn = DenseFfn{common.ffn_size, false, activation};
  });
  ApplyMasks(reader, out.spec, reader.Int({"sliding_window", "attention.sliding_window"}, 0),
             [](int64_t) { return true; });
  out.names = DefaultNames(reader, out.spec);
  LayerNames& names = out.names.layer;
  if (!reader.is_gguf()) {
    names.ffn_input.parts.front().name = "model.layers.{}.mlp.c_fc";
    names.ffn_output.parts.front().name = "model.layers.{}.mlp.c_proj";
  }
  const auto bias = BiasRule(reader, reader.Bool({"use_bias", {}}, true));
  for (LinearSource* source :
       {&names.qkv, &names.attention_output, &names.ffn_input, &names.ffn_output}) {
    source->bias = bias;
  }
  return out;
}

}  // namespace

const Family kStarcoder2 = {{"Starcoder2ForCausalLM", "starcoder2"}, {"starcoder2"}, Build};

}  // namespace kvasir::model
