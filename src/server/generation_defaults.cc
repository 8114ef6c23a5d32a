// Sampling values of the model's generation_config.json and of --override-generation-config, and
// what becomes of them beside those of a request.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>

#include "server/errors.h"
#include "server/sampling_values.h"
#include "server/server.h"

namespace kvasir::server {
namespace {

constexpr double kTemperatureMin = 0.01;  // vLLM's: what is smaller, but not 0, is raised to it

template <typename T>
Status ReadValue(const nlohmann::json& object, const char* where, const char* key,
                 const NumberRange& range, std::optional<T>& value) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return Status::Ok();
  const bool whole = std::is_integral_v<T>;
  if (!found->is_number() || (whole && std::trunc(found->get<double>()) != found->get<double>()) ||
      !range.holds(found->get<double>())) {
    return MakeParamError(
        ErrorCode::kInvalidArgument, key, "{}: {} must be {}, got {}", where, key, range.text,
        Shortened(found->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), 80));
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
  static constexpr NumberRange kTopKs{"an integer of -1 or more",
                                      [](double v) { return v >= -1 && v <= 1e9; }};
  static constexpr NumberRange kCounts{"an integer of at least 1",
                                       [](double v) { return v >= 1 && v <= 1e12; }};
  KVASIR_RETURN_IF_ERROR(
      ReadValue(object, where, "temperature", kTemperatureRange, defaults.temperature));
  KVASIR_RETURN_IF_ERROR(ReadValue(object, where, "top_p", kTopPRange, defaults.top_p));
  KVASIR_RETURN_IF_ERROR(ReadValue(object, where, "top_k", kTopKs, defaults.top_k));
  KVASIR_RETURN_IF_ERROR(ReadValue(object, where, "min_p", kMinPRange, defaults.min_p));
  KVASIR_RETURN_IF_ERROR(ReadValue(object, where, "repetition_penalty", kRepetitionPenaltyRange,
                                   defaults.repetition_penalty));
  return ReadValue(object, where, "max_new_tokens", kCounts, defaults.max_new_tokens);
}

// A model's own file holds much that is no sampling value; what an operator writes is meant.
Status CheckKeys(const nlohmann::json& overrides) {
  if (!overrides.is_object()) return Status::Ok();
  static constexpr std::string_view kKeys[] = {
      "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens"};
  for (const auto& [key, value] : overrides.items()) {
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) {
      return MakeParamError(ErrorCode::kInvalidArgument, key,
                            "--override-generation-config: expected the keys {}, got '{}'",
                            fmt::join(kKeys, ", "), Shortened(key, 64));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<GenerationDefaults> ReadGenerationDefaults(const nlohmann::json& generation_config,
                                                  const nlohmann::json& overrides) {
  GenerationDefaults defaults;
  KVASIR_RETURN_IF_ERROR(Read(generation_config, "generation_config.json", defaults));
  KVASIR_RETURN_IF_ERROR(CheckKeys(overrides));
  KVASIR_RETURN_IF_ERROR(Read(overrides, "--override-generation-config", defaults));
  return defaults;
}

void SetFilters(const GenerationDefaults& asked, const GenerationDefaults& defaults,
                int64_t vocab_size, SamplingParams& sampling) {
  const auto pick = [](std::optional<double> value, std::optional<double> fallback,
                       double neutral) { return value ? *value : fallback.value_or(neutral); };
  double temperature = pick(asked.temperature, defaults.temperature, 1.0);
  if (temperature > 0 && temperature < kTemperatureMin) temperature = kTemperatureMin;
  sampling.temperature = static_cast<float>(temperature);
  // What a double holds above zero, a float may not.
  sampling.top_p = std::max(static_cast<float>(pick(asked.top_p, defaults.top_p, 1.0)),
                            std::numeric_limits<float>::min());
  const int64_t top_k = asked.top_k ? *asked.top_k : defaults.top_k.value_or(0);
  // More than the vocabulary has is all of it.
  sampling.top_k = top_k < 0 ? 0 : static_cast<int32_t>(std::min(top_k, vocab_size));
  sampling.min_p = static_cast<float>(pick(asked.min_p, defaults.min_p, 0.0));
  sampling.repetition_penalty =
      static_cast<float>(pick(asked.repetition_penalty, defaults.repetition_penalty, 1.0));
  if (sampling.temperature == 0) {
    sampling.top_p = 1;
    sampling.top_k = 0;
    sampling.min_p = 0;
  }
}

}  // namespace kvasir::server
