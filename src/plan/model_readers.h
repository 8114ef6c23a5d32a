// From a configuration to a shape: one reader for the families that the server runs, by the
// server's own code, and one for the families with experts, latents and linear states.
#pragma once

#include <string_view>

#include "base/result.h"
#include "files/weights.h"
#include "model/blueprint.h"
#include "model/config_reader.h"
#include "plan/model_shape.h"

namespace kvasir::plan {

/// All but name, source, formats and stored weights.
[[nodiscard]] ModelShape ShapeOfBlueprint(const model::Blueprint& blueprint,
                                          const files::Weights& weights);

/// True where ReadExpertsShape knows the reader's architecture.
[[nodiscard]] bool IsExpertsFamily(model::ConfigReader& reader);
/// Those that it knows: "MixtralForCausalLM, ...".
[[nodiscard]] std::string ExpertsFamilyNames(bool gguf);
/// Mixture-of-experts, MLA and hybrid families; as ShapeOfBlueprint. Errors name the field.
[[nodiscard]] Result<ModelShape> ReadExpertsShape(model::ConfigReader& reader);

}  // namespace kvasir::plan
