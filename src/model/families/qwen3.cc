// Qwen 3 (dense): norms of q and k a head, head_dim apart from hidden / heads.
#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  CommonDefaults defaults;
  defaults.max_positions = 32768;
  defaults.head_dim = 128;
  const CommonConfig common = ReadCommon(reader, defaults);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  AddRopeTable(reader, out.spec, common.rope);
  ForEachLayer(out.spec, [](int64_t, LayerSpec&, GroupedQueryAttention& attention) {
    attention.qk_norm = QkNorm::kPerHead;
  });
  const bool use_window = reader.Bool({"use_sliding_window", {}}, false);
  const int64_t window = use_window ? reader.Int({"sliding_window", {}}, 4096) : 0;
  const int64_t first_windowed = reader.Int({"max_window_layers", {}}, 28);
  ApplyMasks(reader, out.spec, window, [&](int64_t layer) { return layer >= first_windowed; });
  out.names = DefaultNames(reader, out.spec);
  const auto bias = BiasRule(reader, reader.Bool({"attention_bias", {}}, false));
  out.names.layer.qkv.bias = out.names.layer.attention_output.bias = bias;
  return out;
}

}  // namespace

const Family kQwen3 = {{"Qwen3ForCausalLM", "qwen3"}, {"qwen3"}, Build};

}  // namespace kvasir::model
