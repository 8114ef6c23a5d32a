// Gemma 3 (text): norms of q and k a head, windowed layers with a rope of their own.
#include <algorithm>
#include <cmath>

#include "model/families/families.h"

namespace kvasir::model {
namespace {

/// The rope of windowed layers: its own base, never scaled.
RopeConfig LocalRope(ConfigReader& reader) {
  if (HasRopeOf(reader, "sliding_attention")) return ReadRope(reader, {}, "sliding_attention");
  RopeConfig rope;
  rope.theta = reader.Float({"rope_local_base_freq", "rope.freq_base_swa"}, 10000.0);
  return rope;
}

Blueprint Build(ConfigReader& reader) {
  CommonDefaults defaults;
  defaults.max_positions = 131072;
  defaults.head_dim = 256;
  defaults.tied_embeddings = true;
  defaults.rope.theta = 1e6;
  if (!reader.is_gguf()) {  // multimodal checkpoints rely on these
    defaults.vocab_size = 262208;
    defaults.query_heads = 8;
    defaults.kv_heads = 4;
  }
  CommonConfig common = ReadCommon(reader, defaults);
  common.norm.weight_plus_one = !reader.is_gguf();
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  // Its configs name the length after scaling.
  out.spec.max_positions =
      reader.Int({"max_position_embeddings", "context_length"}, defaults.max_positions);
  out.spec.embedding_scale = GemmaEmbeddingScale(reader, common.hidden_size);
  out.spec.logit_softcap = static_cast<float>(reader.Float({"final_logit_softcapping", {}}, 0.0));
  const int64_t window = reader.Int({"sliding_window", "attention.sliding_window"}, 4096);
  const int64_t period = std::max<int64_t>(
      reader.Int({reader.Has({"sliding_window_pattern", {}}) ? "sliding_window_pattern"
                                                             : "_sliding_window_pattern",
                  {}},
                 6),
      1);
  ApplyMasks(reader, out.spec, window, [&](int64_t layer) { return (layer + 1) % period != 0; });

  // GGUF may leave the scale out: then it is that of the head size, but for the 27B with its 62
  // layers.
  constexpr int64_t kLayers27B = 62;
  const int64_t gguf_scalar =
      common.layers_count == kLayers27B ? common.hidden_size / common.query_heads : common.head_dim;
  const double scalar = reader.Float({"query_pre_attn_scalar", {}},
                                     reader.is_gguf() ? static_cast<double>(gguf_scalar) : 256.0);
  const auto scale = static_cast<float>(
      reader.Float({{}, "attention.scale"}, 1.0 / std::sqrt(std::max(scalar, 1e-6))));
  const int global_table = AddRopeTable(reader, out.spec, common.rope);
  const int local_table = AddRopeTable(reader, out.spec, LocalRope(reader));
  const auto cap = static_cast<float>(reader.Float({"attn_logit_softcapping", {}}, 0.0));
  const auto activation = ReadActivation(reader, "hidden_activation", "gelu_pytorch_tanh");
  ForEachLayer(out.spec, [&](int64_t, LayerSpec& layer, GroupedQueryAttention& attention) {
    attention.scale = scale;
    attention.softcap = cap;
    attention.qk_norm = QkNorm::kPerHead;
    attention.rope_table =
        attention.mask.kind == MaskSpec::Kind::kWindow ? local_table : global_table;
    layer.attention_post_norm = layer.ffn_post_norm = common.norm;
    std::get<DenseFfn>(layer.ffn).activation = activation;
  });
  out.names = GemmaNames(reader, out.spec);
  return out;
}

}  // namespace

const Family kGemma3 = {
    {"Gemma3ForCausalLM", "gemma3_text", "Gemma3ForConditionalGeneration", "gemma3"},
    {"gemma3"},
    Build};

}  // namespace kvasir::model
