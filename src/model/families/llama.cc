// Llama 2, 3, 3.1 and later, and the many that share the shape (SmolLM2, TinyLlama, ...).
#include "model/families/families.h"

namespace kvasir::model {
namespace {

Blueprint Build(ConfigReader& reader) {
  const CommonConfig common = ReadCommon(reader);
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  const int table = AddRopeTable(reader, out.spec, common.rope);
  const auto activation = ReadActivation(reader, "hidden_act", "silu");
  ForEachLayer(out.spec, [&](int64_t, LayerSpec& layer, GroupedQueryAttention& attention) {
    attention.rope_table = table;
    // GGUF files of this architecture hold q and k with their rows permuted for it.
    if (reader.is_gguf()) attention.rope_kind = kernels::RopeArgs::Kind::kInterleaved;
    std::get<DenseFfn>(layer.ffn).activation = activation;
  });
  ApplyMasks(reader, out.spec, reader.Int({{}, "attention.sliding_window"}, 0),
             [](int64_t) { return true; });
  out.names = DefaultNames(reader, out.spec);
  LayerNames& names = out.names.layer;
  const auto attention_bias = BiasRule(reader, reader.Bool({"attention_bias", {}}, false));
  const auto mlp_bias = BiasRule(reader, reader.Bool({"mlp_bias", {}}, false));
  names.qkv.bias = names.attention_output.bias = attention_bias;
  names.ffn_input.bias = names.ffn_output.bias = mlp_bias;
  return out;
}

}  // namespace

const Family kLlama = {{"LlamaForCausalLM", "llama"}, {"llama"}, Build};

}  // namespace kvasir::model
