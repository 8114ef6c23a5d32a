// Qwen 2 and 2.5: biases on q, k and v; a window on the upper layers where switched on.
#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  CommonDefaults defaults;
  defaults.max_positions = 32768;
  const CommonConfig common = ReadCommon(reader, defaults);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  AddRopeTable(reader, out.spec, common.rope);
  const bool use_window = reader.Bool({"use_sliding_window", {}}, false);
  const int64_t window = use_window ? reader.Int({"sliding_window", {}}, 4096) : 0;
  const int64_t first_windowed = reader.Int({"max_window_layers", {}}, 28);
  ApplyMasks(reader, out.spec, window, [&](int64_t layer) { return layer >= first_windowed; });
  out.names = DefaultNames(reader, out.spec);
  out.names.layer.qkv.bias = BiasRule(reader, true);
  return out;
}

}  // namespace

const Family kQwen2 = {{"Qwen2ForCausalLM", "qwen2"}, {"qwen2"}, Build};

}  // namespace kvasir::model
