// What a checkpoint will take in memory, without loading it: for planning.
#pragma once

#include <cstdint>
#include <string_view>

#include "files/weights.h"
#include "model/blueprint.h"

namespace kvasir::model {

/// Model::weights_bytes() of these files with the backend of that name. Tensors that are missing
/// count for nothing; loading reports them.
[[nodiscard]] int64_t PackedWeightsBytes(const Blueprint& blueprint, const files::Weights& weights,
                                         std::string_view backend);

/// Bytes of the files that stay mapped and are read whole while serving: all matrices with the
/// backend "ref", none with others.
[[nodiscard]] int64_t MappedWeightsBytes(const Blueprint& blueprint, const files::Weights& weights,
                                         std::string_view backend);

}  // namespace kvasir::model
