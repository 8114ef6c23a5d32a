// SmolLM3: Llama with layers that do not rotate.
#include <algorithm>

#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  CommonDefaults defaults;
  defaults.max_positions = 32768;
  defaults.tied_embeddings = true;
  defaults.rope.theta = 2e6;
  const CommonConfig common = ReadCommon(reader, defaults);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  AddRopeTable(reader, out.spec, common.rope);
  // 1 = rotates. Without a list every fourth layer does not.
  const Key key{"no_rope_layers", {}};
  std::vector<int64_t> rotates = reader.Ints(key);
  if (rotates.empty()) {
    const int64_t period = std::max<int64_t>(reader.Int({"no_rope_layer_interval", {}}, 4), 1);
    for (int64_t i = 0; i < common.layers_count; ++i) rotates.push_back((i + 1) % period != 0);
  }
  if (static_cast<int64_t>(rotates.size()) != common.layers_count) {
    reader.Fail(key, fmt::format("expected {} items, one a layer, got {}", common.layers_count,
                                 rotates.size()));
    return out;
  }
  ForEachLayer(out.spec, [&](int64_t i, LayerSpec&, GroupedQueryAttention& attention) {
    if (rotates[static_cast<size_t>(i)] == 0) attention.rope_table.reset();
    // Its GGUF files are permuted as Llama's are.
    if (reader.is_gguf()) attention.rope_kind = kernels::RopeArgs::Kind::kInterleaved;
  });
  const bool use_window = reader.Bool({"use_sliding_window", {}}, false);
  ApplyMasks(reader, out.spec, use_window ? reader.Int({"sliding_window", {}}, 0) : 0,
             [&](int64_t layer) { return rotates[static_cast<size_t>(layer)] != 0; });
  out.names = DefaultNames(reader, out.spec);
  LayerNames& names = out.names.layer;
  names.qkv.bias = names.attention_output.bias =
      BiasRule(reader, reader.Bool({"attention_bias", {}}, false));
  names.ffn_input.bias = names.ffn_output.bias =
      BiasRule(reader, reader.Bool({"mlp_bias", {}}, false));
  return out;
}

}  // namespace

const Family kSmolLm3 = {{"SmolLM3ForCausalLM", "smollm3"}, {"smollm3"}, Build};

}  // namespace kvasir::model
