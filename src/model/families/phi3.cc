// Phi-3 and 3.5, Phi-4-mini: fused q|k|v and gate|up, partial rotation, longrope.
#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  CommonDefaults defaults;
  defaults.max_positions = 4096;
  defaults.norm_eps = 1e-5;
  const CommonConfig common = ReadCommon(reader, defaults);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  AddRopeTable(reader, out.spec, common.rope);
  ApplyMasks(reader, out.spec, reader.Int({"sliding_window", "attention.sliding_window"}, 0),
             [](int64_t) { return true; });
  out.names = DefaultNames(reader, out.spec);
  if (reader.is_gguf()) return out;
  const GroupedQueryAttention& attention = out.spec.layers.front().gqa();
  LayerNames& names = out.names.layer;
  names.qkv.parts = {
      {"model.layers.{}.self_attn.qkv_proj", attention.QueryCols() + 2 * attention.KvCols()}};
  names.ffn_input.parts = {{"model.layers.{}.mlp.gate_up_proj", 2 * common.ffn_size}};
  return out;
}

}  // namespace

const Family kPhi3 = {{"Phi3ForCausalLM", "phi3"}, {"phi3"}, Build};

}  // namespace kvasir::model
