// Cohere 2 (Command R7B, Command A): attention and FFN read one norm and are added side by side;
// windowed layers rotate neighbours, full ones do not rotate.
#include <algorithm>

#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  CommonKeys keys;
  keys.norm_eps = {"layer_norm_eps", "attention.layer_norm_epsilon"};
  CommonDefaults defaults;
  defaults.norm_kind = kernels::NormArgs::Kind::kLayer;
  defaults.norm_eps = 1e-5;
  defaults.tied_embeddings = true;
  defaults.max_positions = 8192;
  const CommonConfig common = ReadCommon(reader, defaults, keys);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  AddRopeTable(reader, out.spec, common.rope);
  out.spec.logit_scale = static_cast<float>(reader.Float({"logit_scale", "logit_scale"}, 0.0625));
  const int64_t period = std::max<int64_t>(reader.Int({"sliding_window_pattern", {}}, 4), 1);
  ApplyMasks(reader, out.spec, reader.Int({"sliding_window", "attention.sliding_window"}, 4096),
             [&](int64_t layer) { return (layer + 1) % period != 0; });
  const auto activation = ReadActivation(reader, "hidden_act", "silu");
  ForEachLayer(out.spec, [&](int64_t, LayerSpec& layer, GroupedQueryAttention& attention) {
    layer.parallel = true;
    layer.ffn_pre_norm.reset();
    std::get<DenseFfn>(layer.ffn).activation = activation;
    attention.rope_kind = kernels::RopeArgs::Kind::kInterleaved;
    if (attention.mask.kind == MaskSpec::Kind::kFull) attention.rope_table.reset();
  });
  out.names = DefaultNames(reader, out.spec);
  LayerNames& names = out.names.layer;
  names.qkv.bias = names.attention_output.bias =
      BiasRule(reader, reader.Bool({"attention_bias", {}}, false));
  return out;
}

}  // namespace

const Family kCohere2 = {{"Cohere2ForCausalLM", "cohere2"}, {"cohere2"}, Build};

}  // namespace kvasir::model
