// Mistral 7B, Nemo, Small: Llama's shape, with a sliding window in the first. (GGUF: llama.)
#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  CommonDefaults defaults;
  defaults.max_positions = 131072;
  const CommonConfig common = ReadCommon(reader, defaults);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  AddRopeTable(reader, out.spec, common.rope);
  // Absent means 4096, as in the first release; null means none.
  const Key window{"sliding_window", {}};
  ApplyMasks(reader, out.spec, reader.Int(window, reader.Has(window) ? 0 : 4096),
             [](int64_t) { return true; });
  out.names = DefaultNames(reader, out.spec);
  return out;
}

}  // namespace

const Family kMistral = {{"MistralForCausalLM", "mistral"}, {}, Build};

}  // namespace kvasir::model
