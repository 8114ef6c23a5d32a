// Sampling values of the model's generation_config.json and of --override-generation-config.
#include <cmath>
#include <functional>

#include "server/server.h"

namespace kvasir::server {
namespace {

template <typename T>
Status ReadValue(const nlohmann::json& object, const char* where, const char* key,
                 const char* range, const std::function<bool(double)>& good,
                 std::optional<T>& value) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return Status::Ok();
  const bool whole = std::is_integral_v<T>;
  if (!found->is_number() || (whole && std::trunc(found->get<double>()) != found->get<double>()) ||
      !good(found->get<double>())) {
    return MakeParamError(ErrorCode::kInvalidArgument, key, "{}: {} must be {}, got {}", where, key,
                          range,
                          found->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  value = static_cast<T>(found->get<double>());
  return Status::Ok();
}

Status Read(const nlohmann::json& object, const char* where, GenerationDefaults& defaults) {
  if (object.is_null()) return Status::Ok();
  if (!object.is_object()) {
    return MakeError(ErrorCode::kInvalidArgument, "{}: expected a JSON object, got {}", where,
                     object.type_name());
  }
  KVASIR_RETURN_IF_ERROR(ReadValue(
      object, where, "temperature", "in [0, 2]", [](double v) { return v >= 0 && v <= 2; },
      defaults.temperature));
  KVASIR_RETURN_IF_ERROR(ReadValue(
      object, where, "top_p", "in (0, 1]", [](double v) { return v > 0 && v <= 1; },
      defaults.top_p));
  KVASIR_RETURN_IF_ERROR(ReadValue(
      object, where, "top_k", "an integer of -1 or more",
      [](double v) { return v >= -1 && v <= 1e9; }, defaults.top_k));
  KVASIR_RETURN_IF_ERROR(ReadValue(
      object, where, "min_p", "in [0, 1]", [](double v) { return v >= 0 && v <= 1; },
      defaults.min_p));
  KVASIR_RETURN_IF_ERROR(ReadValue(
      object, where, "repetition_penalty", "greater than zero",
      [](double v) { return v > 0 && v <= 1e6; }, defaults.repetition_penalty));
  return ReadValue(
      object, where, "max_new_tokens", "an integer of at least 1",
      [](double v) { return v >= 1 && v <= 1e12; }, defaults.max_new_tokens);
}

}  // namespace

Result<GenerationDefaults> ReadGenerationDefaults(const nlohmann::json& generation_config,
                                                  const nlohmann::json& overrides) {
  GenerationDefaults defaults;
  KVASIR_RETURN_IF_ERROR(Read(generation_config, "generation_config.json", defaults));
  KVASIR_RETURN_IF_ERROR(Read(overrides, "--override-generation-config", defaults));
  return defaults;
}

}  // namespace kvasir::server
