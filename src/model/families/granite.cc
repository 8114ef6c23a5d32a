// Granite 3 (dense): Llama with four multipliers.
#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  const CommonConfig common = ReadCommon(reader);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  AddRopeTable(reader, out.spec, common.rope);
  const auto scale =
      static_cast<float>(reader.Float({"attention_multiplier", "attention.scale"}, 1.0));
  out.spec.embedding_scale =
      static_cast<float>(reader.Float({"embedding_multiplier", "embedding_scale"}, 1.0));
  out.spec.residual_multiplier =
      static_cast<float>(reader.Float({"residual_multiplier", "residual_scale"}, 1.0));
  out.spec.logit_scale =
      static_cast<float>(1.0 / reader.Float({"logits_scaling", "logit_scale"}, 1.0));
  ForEachLayer(out.spec, [&](int64_t, LayerSpec&, GroupedQueryAttention& attention) {
    attention.scale = scale;
    // Its GGUF files are permuted as Llama's are.
    if (reader.is_gguf()) attention.rope_kind = kernels::RopeArgs::Kind::kInterleaved;
  });
  out.names = DefaultNames(reader, out.spec);
  LayerNames& names = out.names.layer;
  names.qkv.bias = names.attention_output.bias =
      BiasRule(reader, reader.Bool({"attention_bias", {}}, false));
  names.ffn_input.bias = names.ffn_output.bias =
      BiasRule(reader, reader.Bool({"mlp_bias", {}}, false));
  return out;
}

}  // namespace

const Family kGranite = {{"GraniteForCausalLM", "granite"}, {"granite"}, Build};

}  // namespace kvasir::model
