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

/// Cuts the layers that keep something of each position into cache groups as the server does, by
/// their windows in the order of the layers (0: all positions), and sets the slot's size.
void AssignCacheGroups(ModelShape& shape, const std::vector<int64_t>& windows);

}  // namespace kvasir::plan
