// OLMo 2 and 3: no pre-norms, the blocks' outputs are normed instead; norms of q and k over the
// whole row. OLMo 3 adds windowed layers, whose rope is never scaled.
#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  CommonDefaults defaults;
  defaults.norm_eps = 1e-5;
  defaults.rope.theta = 500000.0;
  const CommonConfig common = ReadCommon(reader, defaults);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  const int table = AddRopeTable(reader, out.spec, common.rope);
  RopeConfig local =
      reader.is_gguf() ? common.rope : ReadRope(reader, defaults.rope, "sliding_attention");
  local.scaling = RopeScaling{};
  const int local_table = AddRopeTable(reader, out.spec, local);
  const bool is_olmo3 =
      reader.architecture().starts_with("Olmo3") || reader.architecture() == "olmo3";
  const int64_t window =
      reader.Int({"sliding_window", "attention.sliding_window"}, is_olmo3 ? 4096 : 0);
  ApplyMasks(reader, out.spec, window, [](int64_t layer) { return (layer + 1) % 4 != 0; });
  ForEachLayer(out.spec, [&](int64_t, LayerSpec& layer, GroupedQueryAttention& attention) {
    attention.qk_norm = QkNorm::kWholeRow;
    attention.rope_table = attention.mask.kind == MaskSpec::Kind::kWindow ? local_table : table;
    layer.attention_post_norm = layer.ffn_post_norm = common.norm;
    layer.attention_pre_norm.reset();
    layer.ffn_pre_norm.reset();
  });
  out.names = DefaultNames(reader, out.spec);
  LayerNames& names = out.names.layer;
  if (!reader.is_gguf()) {
    names.attention_post_norm = "model.layers.{}.post_attention_layernorm";
    names.ffn_post_norm = "model.layers.{}.post_feedforward_layernorm";
  }
  const auto bias = BiasRule(reader, reader.Bool({"attention_bias", {}}, false));
  names.qkv.bias = names.attention_output.bias = bias;
  return out;
}

}  // namespace

const Family kOlmo2 = {
    {"Olmo2ForCausalLM", "olmo2", "Olmo3ForCausalLM", "olmo3"}, {"olmo2"}, Build};

}  // namespace kvasir::model
