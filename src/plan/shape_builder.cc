#include "plan/shape_builder.h"

#include <algorithm>

#include "model/spec.h"

namespace kvasir::plan {

void AddWeights(ModelShape& shape, Part part, int64_t rows, int64_t cols, int64_t count) {
  for (WeightShape& known : shape.weights) {
    if (known.part == part && known.rows == rows && known.cols == cols) {
      known.count += count;
      return;
    }
  }
  shape.weights.push_back({part, rows, cols, count});
}

void AddLayer(ModelShape& shape, const LayerShape& layer) {
  for (LayerShape& known : shape.layers) {
    LayerShape counted = layer;
    counted.layers_count = known.layers_count;
    if (known == counted) {
      ++known.layers_count;
      return;
    }
  }
  shape.layers.push_back(layer);
  shape.layers.back().layers_count = 1;
}

void SetWindow(LayerShape& layer, int64_t window_tokens, int64_t max_positions) {
  const bool windowed = window_tokens > 0 && window_tokens < max_positions;
  layer.kind = windowed ? LayerKind::kWindow : LayerKind::kFull;
  layer.window_tokens = windowed ? window_tokens : 0;
}

void AssignCacheGroups(ModelShape& shape, const std::vector<int64_t>& windows) {
  using model::MaskSpec;
  model::ModelSpec spec;  // the masks alone matter
  for (const int64_t window : windows) {
    model::GroupedQueryAttention attention;
    if (window > 0) attention.mask = MaskSpec{MaskSpec::Kind::kWindow, window};
    model::LayerSpec layer;
    layer.attention = attention;
    spec.layers.push_back(layer);
  }
  model::AssignCacheGroups(spec);
  shape.cache_groups.clear();
  for (const model::CacheGroup& group : spec.cache_groups) {
    shape.cache_groups.push_back(
        {static_cast<int64_t>(group.layers.size()), group.mask.window_tokens});
  }
  shape.layers_per_group = spec.layers_per_group;
  shape.cached_values_per_slot = 0;
  for (const LayerShape& layer : shape.layers) {
    shape.cached_values_per_slot = std::max(shape.cached_values_per_slot, layer.cached_values);
  }
}

}  // namespace kvasir::plan
