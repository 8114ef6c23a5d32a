// Adds up a shape layer by layer.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/model_shape.h"

namespace kvasir::plan {

/// One matrix [rows, cols] more, `count` times.
void AddWeights(ModelShape& shape, Part part, int64_t rows, int64_t cols, int64_t count = 1);

/// One layer more like `layer`, whatever its layers_count.
void AddLayer(ModelShape& shape, const LayerShape& layer);

/// Full attention, or a window; one that no position is behind is full attention.
void SetWindow(LayerShape& layer, int64_t window_tokens, int64_t max_positions);

/// Cuts the layers that keep something of each position into cache groups as the server does, by
/// their windows in the order of the layers (0: all positions), and sets the slot's size.
void AssignCacheGroups(ModelShape& shape, const std::vector<int64_t>& windows);

}  // namespace kvasir::plan
