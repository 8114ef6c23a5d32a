#include "model/blueprint.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "files/printable.h"

namespace kvasir::model {
namespace {

constexpr int64_t kLayersMax = 1024;
constexpr int64_t kHeadDimMax = 1024;

int64_t IntOrRequired(ConfigReader& reader, const Key& key, int64_t otherwise) {
  return otherwise > 0 && !reader.Has(key) ? otherwise : reader.RequiredInt(key);
}

int64_t ReadVocabSize(ConfigReader& reader, int64_t otherwise) {
  if (reader.is_gguf() && !reader.Has({{}, "vocab_size"})) {
    const TensorView* embedding = reader.weights().Find("token_embd.weight");
    if (embedding != nullptr && embedding->shape.size() == 2) return embedding->dim(0);
  }
  return IntOrRequired(reader, {"vocab_size", "vocab_size"}, otherwise);
}

}  // namespace

CommonConfig ReadCommon(ConfigReader& reader, const CommonDefaults& defaults,
                        const CommonKeys& keys) {
  CommonConfig common;
  common.vocab_size = ReadVocabSize(reader, defaults.vocab_size);
  common.hidden_size = reader.RequiredInt(keys.hidden_size);
  common.layers_count = reader.RequiredInt(keys.layers);
  if (common.layers_count > kLayersMax) {
    reader.Fail(keys.layers,
                fmt::format("expected at most {}, got {}", kLayersMax, common.layers_count));
    common.layers_count = 1;
  }
  common.query_heads = IntOrRequired(reader, keys.query_heads, defaults.query_heads);
  common.kv_heads =
      reader.Int(keys.kv_heads, defaults.kv_heads > 0 ? defaults.kv_heads : common.query_heads);
  if (common.kv_heads < 1 || common.query_heads % common.kv_heads != 0) {
    reader.Fail(keys.kv_heads, fmt::format("expected a divisor of {} query heads, got {}",
                                           common.query_heads, common.kv_heads));
    common.kv_heads = common.query_heads;
  }
  common.head_dim = reader.Int(keys.head_dim, defaults.head_dim);
  if (common.head_dim == 0) common.head_dim = common.hidden_size / common.query_heads;
  if (common.head_dim < 1 || common.head_dim > kHeadDimMax) {
    reader.Fail(keys.head_dim,
                fmt::format("expected 1 to {}, got {}", kHeadDimMax, common.head_dim));
    common.head_dim = 2;
  }
  common.ffn_size = defaults.ffn_size > 0 ? reader.Int(keys.ffn_size, defaults.ffn_size)
                                          : reader.RequiredInt(keys.ffn_size);
  if (common.ffn_size < 1) reader.Fail(keys.ffn_size, "expected at least 1");
  common.norm.kind = defaults.norm_kind;
  common.norm.has_bias = defaults.norm_bias;
  common.norm.eps = static_cast<float>(reader.Float(keys.norm_eps, defaults.norm_eps));
  if (reader.is_gguf()) {
    common.tied_embeddings = reader.weights().Find("output.weight") == nullptr;
  } else {
    common.tied_embeddings = reader.Bool({"tie_word_embeddings", {}}, defaults.tied_embeddings);
  }
  common.rope = ReadRope(reader, defaults.rope, "full_attention");
  common.max_positions = ReadMaxPositions(reader, common.rope, defaults.max_positions);
  if (common.max_positions < 1) {
    reader.Fail({"max_position_embeddings", "context_length"}, "expected at least 1");
    common.max_positions = 1;
  }
  if (reader.Int({{}, "expert_count"}, 0) > 0) {
    reader.Fail(MakeError(ErrorCode::kUnsupported,
                          "{}: architecture {} with experts (mixture of experts) is not supported",
                          reader.source(), reader.architecture()));
  }
  return common;
}

int AddRopeTable(ConfigReader& reader, ModelSpec& spec, const RopeConfig& rope) {
  const int64_t head_dim = spec.layers.front().gqa().head_dim;
  if (rope.partial_rotary_factor < 0.0 || rope.partial_rotary_factor > 1.0) {
    reader.Fail({"partial_rotary_factor", "rope.dimension_count"},
                fmt::format("expected 0 to 1, got {}", rope.partial_rotary_factor));
    return 0;
  }
  const auto by_fraction =
      static_cast<int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor);
  const int64_t rotated = reader.Int({{}, "rope.dimension_count"}, by_fraction);
  if (rotated > head_dim) {
    reader.Fail({"partial_rotary_factor", "rope.dimension_count"},
                fmt::format("{} rotated dims, but a head has {}", rotated, head_dim));
    return 0;
  }
  const int64_t max_model_len =
      reader.max_model_len() > 0 ? reader.max_model_len() : spec.max_positions;
  Result<RopeTableSpec> table = MakeRopeTable(rope.theta, rotated, rope.scaling, max_model_len);
  if (!table.ok()) {
    Error error = std::move(table).error();
    error.message = fmt::format("{}: {}", reader.source(), error.message);
    reader.Fail(std::move(error));
    return 0;
  }
  const auto found = std::find(spec.rope_tables.begin(), spec.rope_tables.end(), *table);
  if (found != spec.rope_tables.end()) return static_cast<int>(found - spec.rope_tables.begin());
  spec.rope_tables.push_back(*std::move(table));
  return static_cast<int>(spec.rope_tables.size()) - 1;
}

ModelSpec PlainSpec(ConfigReader& reader, const CommonConfig& common) {
  ModelSpec spec;
  spec.architecture = reader.architecture();
  spec.vocab_size = common.vocab_size;
  spec.hidden_size = common.hidden_size;
  spec.max_positions = common.max_positions;
  spec.tied_embeddings = common.tied_embeddings;
  spec.final_norm = common.norm;

  GroupedQueryAttention attention;
  attention.query_heads = common.query_heads;
  attention.kv_heads = common.kv_heads;
  attention.head_dim = common.head_dim;
  attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(common.head_dim)));
  attention.qk_norm_spec = common.norm;
  attention.rope_table = 0;
  LayerSpec layer;
  layer.attention = attention;
  layer.ffn = DenseFfn{common.ffn_size, true, kernels::Activation::kSilu};
  layer.attention_pre_norm = common.norm;
  layer.ffn_pre_norm = common.norm;
  spec.layers.assign(static_cast<size_t>(common.layers_count), layer);
  return spec;
}

void ForEachLayer(ModelSpec& spec,
                  const std::function<void(int64_t, LayerSpec&, GroupedQueryAttention&)>& change) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    change(static_cast<int64_t>(i), layer, std::get<GroupedQueryAttention>(layer.attention));
  }
}

void ApplyMasks(ConfigReader& reader, ModelSpec& spec, int64_t window_tokens,
                const std::function<bool(int64_t)>& is_windowed) {
  std::vector<bool> windowed(spec.layers.size());
  if (const nlohmann::json* types = reader.HfValue("layer_types"); types != nullptr) {
    const Key key{"layer_types", {}};
    if (!types->is_array() || types->size() != spec.layers.size()) {
      reader.Fail(key, fmt::format("expected a list of {} names, one a layer", windowed.size()));
      return;
    }
    for (size_t i = 0; i < windowed.size(); ++i) {
      const nlohmann::json& type = (*types)[i];
      if (type != "full_attention" && type != "sliding_attention") {
        reader.Fail(key, fmt::format("layer {}: expected full_attention or sliding_attention", i));
        return;
      }
      windowed[i] = type == "sliding_attention";
    }
  } else {
    for (size_t i = 0; i < windowed.size(); ++i) {
      windowed[i] = window_tokens > 0 && is_windowed(static_cast<int64_t>(i));
    }
  }
  ForEachLayer(spec, [&](int64_t i, LayerSpec&, GroupedQueryAttention& attention) {
    if (!windowed[static_cast<size_t>(i)]) return;
    if (window_tokens < 1) {
      reader.Fail({"sliding_window", "attention.sliding_window"},
                  "expected at least 1, as layers with a sliding window are listed");
      return;
    }
    attention.mask = MaskSpec{MaskSpec::Kind::kWindow, window_tokens};
  });
}

kernels::Activation ReadActivation(ConfigReader& reader, std::string_view hf_key,
                                   std::string_view otherwise) {
  const std::string name = reader.String({hf_key, {}}, otherwise);
  if (name == "silu" || name == "swish") return kernels::Activation::kSilu;
  if (name == "gelu") return kernels::Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    return kernels::Activation::kGeluTanh;
  }
  if (name == "relu") return kernels::Activation::kRelu;
  reader.Fail(Key{hf_key, {}},
              fmt::format("expected silu, gelu, gelu_new, gelu_pytorch_tanh or relu, got {}",
                          files::Printable(name, 40)));
  return kernels::Activation::kSilu;
}

LinearSource::Bias BiasRule(const ConfigReader& reader, bool required) {
  if (reader.is_gguf()) return LinearSource::Bias::kIfPresent;
  return required ? LinearSource::Bias::kRequired : LinearSource::Bias::kNone;
}

}  // namespace kvasir::model
