// How the many spellings of a rope's configuration become one RopeConfig.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "files/printable.h"
#include "model/config_reader.h"

namespace kvasir::model {
namespace {

using nlohmann::json;

/// A finite number of `object`, or `otherwise` where it is absent or null.
double NumberOf(ConfigReader& reader, const json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  if (!found->is_number() || !std::isfinite(found->get<double>())) {
    reader.Fail(Key{key, {}}, "in the rope's configuration: expected a number");
    return otherwise;
  }
  return found->get<double>();
}

std::vector<double> NumbersOf(ConfigReader& reader, const json& object, const char* key) {
  std::vector<double> numbers;
  const auto found = object.find(key);
  if (found == object.end()) return numbers;
  if (!found->is_array()) {
    reader.Fail(Key{key, {}}, "in the rope's configuration: expected a list of numbers");
    return numbers;
  }
  for (const json& item : *found) {
    if (!item.is_number()) {
      reader.Fail(Key{key, {}}, "in the rope's configuration: expected a list of numbers");
      return numbers;
    }
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

RopeScaling::Kind KindOf(ConfigReader& reader, const json& object) {
  std::string name = "default";
  for (const char* key : {"rope_type", "type"}) {
    const auto found = object.find(key);
    if (found != object.end() && found->is_string()) {
      name = found->get<std::string>();
      break;
    }
  }
  if (name == "default") return RopeScaling::Kind::kNone;
  if (name == "linear") return RopeScaling::Kind::kLinear;
  if (name == "dynamic") return RopeScaling::Kind::kDynamic;
  if (name == "llama3") return RopeScaling::Kind::kLlama3;
  if (name == "yarn") return RopeScaling::Kind::kYarn;
  if (name == "longrope" || name == "su") return RopeScaling::Kind::kLongrope;
  reader.Fail(Key{"rope_type", {}},
              fmt::format("expected default, linear, dynamic, llama3, yarn or longrope, got {}",
                          files::Printable(name, 40)));
  return RopeScaling::Kind::kNone;
}

RopeScaling ReadHfScaling(ConfigReader& reader, const json& object) {
  RopeScaling scaling;
  scaling.kind = KindOf(reader, object);
  if (scaling.kind == RopeScaling::Kind::kNone) return scaling;
  scaling.max_positions = reader.Int({"max_position_embeddings", {}}, 0);
  const int64_t original =
      reader.Int({"original_max_position_embeddings", {}}, scaling.max_positions);
  scaling.original_max_positions = static_cast<int64_t>(std::clamp(
      NumberOf(reader, object, "original_max_position_embeddings", static_cast<double>(original)),
      0.0, 1e9));
  const double ratio = scaling.original_max_positions > 0
                           ? static_cast<double>(scaling.max_positions) /
                                 static_cast<double>(scaling.original_max_positions)
                           : 1.0;
  scaling.factor = NumberOf(reader, object, "factor", ratio);
  scaling.low_freq_factor = NumberOf(reader, object, "low_freq_factor", 1.0);
  scaling.high_freq_factor = NumberOf(reader, object, "high_freq_factor", 4.0);
  scaling.beta_fast = NumberOf(reader, object, "beta_fast", 32.0);
  scaling.beta_slow = NumberOf(reader, object, "beta_slow", 1.0);
  scaling.mscale = NumberOf(reader, object, "mscale", 0.0);
  scaling.mscale_all_dim = NumberOf(reader, object, "mscale_all_dim", 0.0);
  scaling.attention_factor = NumberOf(reader, object, "attention_factor", 0.0);
  if (const auto truncate = object.find("truncate");
      truncate != object.end() && truncate->is_boolean()) {
    scaling.truncate = truncate->get<bool>();
  }
  if (scaling.kind == RopeScaling::Kind::kLongrope) {
    scaling.short_factors = NumbersOf(reader, object, "short_factor");
    scaling.long_factors = NumbersOf(reader, object, "long_factor");
  }
  return scaling;
}

RopeConfig ReadHfRope(ConfigReader& reader, const RopeDefaults& defaults,
                      std::string_view layer_type) {
  RopeConfig rope;
  rope.partial_rotary_factor =
      reader.Float({"partial_rotary_factor", {}}, defaults.partial_rotary_factor);
  rope.theta = reader.Float({"rope_theta", {}}, defaults.theta);
  const json* parameters = reader.HfValue("rope_parameters");
  if (parameters == nullptr) parameters = reader.HfValue("rope_scaling");
  if (parameters == nullptr) return rope;
  if (!parameters->is_object()) {
    reader.Fail(Key{"rope_parameters", {}}, "expected an object");
    return rope;
  }
  if (const auto nested = parameters->find(layer_type);
      !layer_type.empty() && nested != parameters->end() && nested->is_object()) {
    parameters = &*nested;
  }
  rope.theta = NumberOf(reader, *parameters, "rope_theta", rope.theta);
  rope.partial_rotary_factor =
      NumberOf(reader, *parameters, "partial_rotary_factor", rope.partial_rotary_factor);
  rope.scaling = ReadHfScaling(reader, *parameters);
  return rope;
}

std::vector<double> FactorsOf(ConfigReader& reader, std::string_view name) {
  const TensorView* view = reader.weights().Find(name);
  if (view == nullptr) return {};
  constexpr int64_t kFactorsMax = 4096;  // half of any head's dims
  if (view->dtype != DType::kF32 || ElementCount(view->shape) > kFactorsMax) {
    reader.Fail(MakeError(ErrorCode::kDataLoss,
                          "{}: tensor {}: expected at most {} values of F32, got {} {}",
                          reader.weights().FileOf(name), name, kFactorsMax, Info(view->dtype).name,
                          ToString(view->shape)));
    return {};
  }
  const std::vector<float> values = ToFloat(*view);
  return {values.begin(), values.end()};
}

RopeConfig ReadGgufRope(ConfigReader& reader, const RopeDefaults& defaults) {
  RopeConfig rope;
  rope.theta = reader.Float({{}, "rope.freq_base"}, defaults.theta);
  rope.partial_rotary_factor = defaults.partial_rotary_factor;
  RopeScaling& scaling = rope.scaling;
  scaling.max_positions = reader.Int({{}, "context_length"}, 0);
  scaling.original_max_positions =
      reader.Int({{}, "rope.scaling.original_context_length"}, scaling.max_positions);
  scaling.attention_factor = reader.Float({{}, "rope.scaling.attn_factor"}, 0.0);
  scaling.factor =
      reader.Float({{}, "rope.scaling.factor"}, reader.Float({{}, "rope.scale_linear"}, 0.0));

  if (std::vector<double> divisors = FactorsOf(reader, "rope_freqs.weight"); !divisors.empty()) {
    scaling.kind = RopeScaling::Kind::kDivisors;
    scaling.short_factors = std::move(divisors);
    return rope;
  }
  scaling.short_factors = FactorsOf(reader, "rope_factors_short.weight");
  scaling.long_factors = FactorsOf(reader, "rope_factors_long.weight");
  if (!scaling.short_factors.empty() && !scaling.long_factors.empty()) {
    scaling.kind = RopeScaling::Kind::kLongrope;
    scaling.factor = 1.0;
    return rope;
  }
  const std::string type =
      reader.String({{}, "rope.scaling.type"}, scaling.factor > 0.0 ? "linear" : "none");
  if (type == "linear" && scaling.factor > 0.0) {
    scaling.kind = RopeScaling::Kind::kLinear;
    scaling.attention_factor = 0.0;
  } else if (type == "yarn") {
    scaling.kind = RopeScaling::Kind::kYarn;
    scaling.beta_fast = reader.Float({{}, "rope.scaling.yarn_beta_fast"}, 32.0);
    scaling.beta_slow = reader.Float({{}, "rope.scaling.yarn_beta_slow"}, 1.0);
    if (scaling.attention_factor != 0.0) {
      // GGUF's factor comes on top of YaRN's own.
      scaling.attention_factor *= 0.1 * std::log(std::max(scaling.factor, 1.0)) + 1.0;
    }
  } else if (type != "none" && type != "linear") {
    reader.Fail(Key{{}, "rope.scaling.type"},
                fmt::format("expected none, linear, yarn, or longrope with its factors, got {}",
                            files::Printable(type, 40)));
  } else {
    scaling = RopeScaling{};
  }
  return rope;
}

}  // namespace

bool HasRopeOf(const ConfigReader& reader, std::string_view layer_type) {
  const json* parameters = reader.HfValue("rope_parameters");
  return parameters != nullptr && parameters->is_object() && parameters->contains(layer_type);
}

RopeConfig ReadRope(ConfigReader& reader, const RopeDefaults& defaults,
                    std::string_view layer_type) {
  return reader.is_gguf() ? ReadGgufRope(reader, defaults)
                          : ReadHfRope(reader, defaults, layer_type);
}

int64_t ReadMaxPositions(ConfigReader& reader, const RopeConfig& rope, int64_t otherwise) {
  const int64_t stored = reader.Int({"max_position_embeddings", "context_length"}, otherwise);
  if (reader.is_gguf()) return stored;  // GGUF's is the length after scaling
  double stretched = 0.0;
  switch (rope.scaling.kind) {
    case RopeScaling::Kind::kLinear:
    case RopeScaling::Kind::kDynamic:
      stretched = static_cast<double>(stored) * rope.scaling.factor;
      break;
    case RopeScaling::Kind::kYarn:
      stretched = static_cast<double>(rope.scaling.original_max_positions) * rope.scaling.factor;
      break;
    default:
      break;
  }
  constexpr double kPositionsMax = 1 << 30;
  return std::max(stored, static_cast<int64_t>(std::clamp(stretched, 0.0, kPositionsMax)));
}

}  // namespace kvasir::model
