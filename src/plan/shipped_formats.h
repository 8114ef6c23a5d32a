// In which formats a checkpoint stores its parts, as its config.json says.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "plan/model_shape.h"

namespace kvasir::plan {

/// Whether `config`, or its text part, has a quantization_config.
[[nodiscard]] bool IsQuantized(const nlohmann::json& config);

/// Sets shape.shipped and shape.kv_format by `config`'s dtype (torch_dtype) and
/// quantization_config: each part in the format that most of it has. What is not known is said in
/// shape.shipped_unknown. `what` names the config in messages.
[[nodiscard]] Status ReadShippedFormats(const nlohmann::json& config, const std::string& what,
                                        ModelShape& shape);

}  // namespace kvasir::plan
