// Gemma 2: norms around both blocks, soft caps, every other layer windowed, its own score scale.
#include <algorithm>
#include <cmath>

#include "model/families/families.h"
#include "tensor/float16.h"

namespace kvasir::model {
namespace {

/// A soft cap: absent means `otherwise`, null means none.
float ReadCap(ConfigReader& reader, const Key& key, double otherwise) {
  return static_cast<float>(reader.Float(key, reader.Has(key) ? 0.0 : otherwise));
}

Blueprint Build(ConfigReader& reader) {
  CommonDefaults defaults;
  defaults.max_positions = 8192;
  defaults.head_dim = 256;
  defaults.tied_embeddings = true;
  CommonConfig common = ReadCommon(reader, defaults);
  common.norm.weight_plus_one = !reader.is_gguf();
  Blueprint out;
  out.spec = PlainSpec(reader, common);
  AddRopeTable(reader, out.spec, common.rope);
  out.spec.embedding_scale = GemmaEmbeddingScale(reader, common.hidden_size);
  out.spec.logit_softcap =
      ReadCap(reader, {"final_logit_softcapping", "final_logit_softcapping"}, 30);
  const float cap = ReadCap(reader, {"attn_logit_softcapping", "attn_logit_softcapping"}, 50);
  // GGUF may leave the scale out: then it is that of the head size, but for the 27B with its 46
  // layers.
  constexpr int64_t kLayers27B = 46;
  const int64_t gguf_scalar =
      common.layers_count == kLayers27B ? common.hidden_size / common.query_heads : common.head_dim;
  const double scalar = reader.Float({"query_pre_attn_scalar", {}},
                                     reader.is_gguf() ? static_cast<double>(gguf_scalar) : 256.0);
  const auto scale = static_cast<float>(
      reader.Float({{}, "attention.scale"}, 1.0 / std::sqrt(std::max(scalar, 1e-6))));
  const auto activation = ReadActivation(reader, "hidden_activation", "gelu_pytorch_tanh");
  ForEachLayer(out.spec, [&](int64_t, LayerSpec& layer, GroupedQueryAttention& attention) {
    attention.softcap = cap;
    attention.scale = scale;
    layer.attention_post_norm = layer.ffn_post_norm = common.norm;
    std::get<DenseFfn>(layer.ffn).activation = activation;
  });
  const int64_t window = reader.Int({"sliding_window", "attention.sliding_window"}, 4096);
  ApplyMasks(reader, out.spec, window, [](int64_t layer) { return layer % 2 == 0; });
  out.names = GemmaNames(reader, out.spec);
  return out;
}

}  // namespace

float GemmaEmbeddingScale(ConfigReader& reader, int64_t hidden_size) {
  const auto scale = static_cast<float>(std::sqrt(static_cast<double>(hidden_size)));
  const std::string dtype = reader.String({"dtype", {}}, reader.String({"torch_dtype", {}}, ""));
  // A model made in bfloat16 was trained with the constant rounded to it (25.25, not 25.298...).
  return dtype == "bfloat16" ? Bf16ToFloat(FloatToBf16(scale)) : scale;
}

TensorNames GemmaNames(const ConfigReader& reader, const ModelSpec& spec) {
  if (reader.is_gguf()) return GgufNames(reader, spec);
  const std::string prefix = FindPrefix(
      reader, {"model.", "model.language_model.", "language_model.model."}, "embed_tokens.weight");
  TensorNames names = LlamaNames(spec, prefix);
  const std::string at = prefix + "layers.{}.";
  names.layer.attention_post_norm = at + "post_attention_layernorm";
  names.layer.ffn_pre_norm = at + "pre_feedforward_layernorm";
  names.layer.ffn_post_norm = at + "post_feedforward_layernorm";
  names.ignored_prefixes = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                            "model.multi_modal_projector."};
  return names;
}

const Family kGemma2 = {{"Gemma2ForCausalLM", "gemma2"}, {"gemma2"}, Build};

}  // namespace kvasir::model
