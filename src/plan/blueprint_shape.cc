// Shapes of the families that the server runs, from the very records that it loads them by.
#include <string>

#include "plan/model_readers.h"
#include "plan/shape_builder.h"

namespace kvasir::plan {
namespace {

class Counter {
 public:
  Counter(const model::Blueprint& blueprint, const files::Weights& weights, ModelShape& shape)
      : spec_(blueprint.spec), names_(blueprint.names), weights_(weights), shape_(shape) {}

  void Count() {
    AddMatrix(Part::kEmbedding, spec_.vocab_size, spec_.hidden_size);
    if (spec_.learned_positions) {
      AddMatrix(Part::kEmbedding, spec_.max_positions, spec_.hidden_size);
    }
    for (size_t i = 0; i < spec_.layers.size(); ++i) AddLayerWeights(i);
    AddNorm(spec_.final_norm, spec_.hidden_size);
    if (!spec_.tied_embeddings) AddMatrix(Part::kHead, spec_.vocab_size, spec_.hidden_size);
  }

 private:
  void AddMatrix(Part part, int64_t rows, int64_t cols) { AddWeights(shape_, part, rows, cols); }

  void AddNorm(const model::NormSpec& norm, int64_t cols) {
    AddMatrix(Part::kNorms, 1, cols);
    if (norm.has_bias) AddMatrix(Part::kNorms, 1, cols);
  }

  void AddNorm(const std::optional<model::NormSpec>& norm) {
    if (norm) AddNorm(*norm, spec_.hidden_size);
  }

  void AddLinear(Part part, const model::LinearSource& source, size_t layer) {
    using Bias = model::LinearSource::Bias;
    for (const model::LinearSource::Part& matrix : source.parts) {
      AddMatrix(part, matrix.rows, source.cols);
      std::string name = matrix.name + ".bias";
      if (const size_t at = name.find("{}"); at != std::string::npos) {
        name.replace(at, 2, std::to_string(layer));
      }
      if (source.bias == Bias::kRequired ||
          (source.bias == Bias::kIfPresent && weights_.Find(name) != nullptr)) {
        AddMatrix(Part::kNorms, 1, matrix.rows);
      }
    }
  }

  void AddLayerWeights(size_t i) {
    const model::LayerSpec& layer = spec_.layers[i];
    AddNorm(layer.attention_pre_norm);
    AddNorm(layer.attention_post_norm);
    AddNorm(layer.ffn_pre_norm);
    AddNorm(layer.ffn_post_norm);
    const model::GroupedQueryAttention& attention = layer.gqa();
    if (attention.qk_norm != model::QkNorm::kNone) {
      const bool per_head = attention.qk_norm == model::QkNorm::kPerHead;
      AddNorm(attention.qk_norm_spec, per_head ? attention.head_dim : attention.QueryCols());
      AddNorm(attention.qk_norm_spec, per_head ? attention.head_dim : attention.KvCols());
    }
    AddLinear(Part::kAttention, names_.layer.qkv, i);
    AddLinear(Part::kAttention, names_.layer.attention_output, i);
    AddLinear(Part::kFfn, names_.layer.ffn_input, i);
    AddLinear(Part::kFfn, names_.layer.ffn_output, i);
  }

  const model::ModelSpec& spec_;
  const model::TensorNames& names_;
  const files::Weights& weights_;
  ModelShape& shape_;
};

LayerShape LayerOf(const model::GroupedQueryAttention& attention, int64_t max_positions) {
  LayerShape layer;
  const bool window = attention.mask.kind == model::MaskSpec::Kind::kWindow;
  SetWindow(layer, window ? attention.mask.window_tokens : 0, max_positions);
  layer.query_heads = attention.query_heads;
  layer.kv_heads = attention.kv_heads;
  layer.key_dim = layer.value_dim = attention.head_dim;
  layer.cached_values = 2 * attention.KvCols();
  return layer;
}

}  // namespace

ModelShape ShapeOfBlueprint(const model::Blueprint& blueprint, const files::Weights& weights) {
  const model::ModelSpec& spec = blueprint.spec;
  ModelShape shape;
  shape.architecture = spec.architecture;
  shape.vocab_size = spec.vocab_size;
  shape.hidden_size = spec.hidden_size;
  shape.layers_count = static_cast<int64_t>(spec.layers.size());
  shape.max_positions = spec.max_positions;
  shape.tied_embeddings = spec.tied_embeddings;
  Counter(blueprint, weights, shape).Count();
  for (const model::LayerSpec& layer : spec.layers) {
    AddLayer(shape, LayerOf(layer.gqa(), spec.max_positions));
  }
  for (const model::CacheGroup& group : spec.cache_groups) {
    shape.cache_groups.push_back(
        {static_cast<int64_t>(group.layers.size()), group.mask.window_tokens});
  }
  shape.layers_per_group = spec.layers_per_group;
  shape.cached_values_per_slot = spec.KvValuesPerTokenLayer();
  return shape;
}

}  // namespace kvasir::plan
