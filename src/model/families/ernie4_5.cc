// ERNIE 4.5 (dense): Llama that rotates neighbours.
#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  CommonDefaults defaults;
  defaults.norm_eps = 1e-5;
  defaults.tied_embeddings = true;
  defaults.max_positions = 131072;
  defaults.head_dim = 128;
  defaults.rope.theta = 500000.0;
  const CommonConfig common = ReadCommon(reader, defaults);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  AddRopeTable(reader, out.spec, common.rope);
  const auto activation = ReadActivation(reader, "hidden_act", "silu");
  ForEachLayer(out.spec, [&](int64_t, LayerSpec& layer, GroupedQueryAttention& attention) {
    attention.rope_kind = kernels::RopeArgs::Kind::kInterleaved;
    std::get<DenseFfn>(layer.ffn).activation = activation;
  });
  out.names = DefaultNames(reader, out.spec);
  LayerNames& names = out.names.layer;
  const auto bias = BiasRule(reader, reader.Bool({"use_bias", {}}, false));
  for (LinearSource* source :
       {&names.qkv, &names.attention_output, &names.ffn_input, &names.ffn_output}) {
    source->bias = bias;
  }
  return out;
}

}  // namespace

const Family kErnie45 = {{"Ernie4_5ForCausalLM", "ernie4_5"}, {"ernie4_5"}, Build};

}  // namespace kvasir::model
