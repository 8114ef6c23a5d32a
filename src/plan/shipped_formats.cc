#include "plan/shipped_formats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kvasir::plan {
namespace {

using nlohmann::json;

// Of the text part where there is one, else of the whole.
const json* Find(const json& config, std::string_view key) {
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) {
    if (const auto found = text->find(key); found != text->end() && !found->is_null()) {
      return &*found;
    }
  }
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? nullptr : &*found;
}

std::string StringOf(const json& object, std::string_view key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

int64_t IntOf(const json& object, std::string_view key, int64_t otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

struct Quantized {
  std::string format;  ///< for ParseWeightFormat
  bool experts_only = false;
};

Error Unknown(const std::string& what, std::string_view field, const std::string& came) {
  return MakeParamError(ErrorCode::kUnsupported, "quantization_config",
                        "{}: quantization_config: {}: '{}' is not known here; give the weights' "
                        "format with --weights",
                        what, field, came.substr(0, 40));
}

// compressed-tensors: the weights of the first group of layers; what is left alone stands in
// `ignore`.
Result<Quantized> ReadCompressed(const json& quantization, const std::string& what) {
  const auto groups = quantization.find("config_groups");
  if (groups == quantization.end() || !groups->is_object() || groups->empty() ||
      !groups->begin()->is_object() || !groups->begin()->contains("weights") ||
      !(*groups->begin())["weights"].is_object()) {
    return Unknown(what, "config_groups", "");
  }
  const json& weights = (*groups->begin())["weights"];
  const int64_t bits = IntOf(weights, "num_bits", 0);
  Quantized out;
  if (bits == 4 && StringOf(weights, "type") == "int") {
    out.format = fmt::format("int4-g{}", std::max<int64_t>(IntOf(weights, "group_size", 128), 16));
  } else if (bits == 4) {
    out.format = "nvfp4";
  } else if (bits == 8) {
    out.format = StringOf(weights, "type") == "float" ? "fp8" : "int8";
  } else {
    return Unknown(what, "num_bits", std::to_string(bits));
  }
  if (const auto ignore = quantization.find("ignore");
      ignore != quantization.end() && ignore->is_array()) {
    out.experts_only = std::any_of(ignore->begin(), ignore->end(), [](const json& item) {
      return item.is_string() && item.get<std::string>().find("self_attn") != std::string::npos;
    });
  }
  return out;
}

Result<Quantized> ReadQuantization(const json& quantization, const std::string& what) {
  if (!quantization.is_object()) return Unknown(what, "expected an object", quantization.dump());
  const std::string method = StringOf(quantization, "quant_method");
  if (method == "fp8" || method == "fbgemm_fp8") return Quantized{"fp8"};
  if (method == "mxfp4") return Quantized{"mxfp4", true};
  if (method == "gptq" || method == "awq") {
    const int64_t bits = IntOf(quantization, "bits", IntOf(quantization, "w_bit", 4));
    const int64_t group =
        IntOf(quantization, "group_size", IntOf(quantization, "q_group_size", 128));
    if (bits == 8) return Quantized{"int8"};
    if (bits == 4) return Quantized{fmt::format("int4-g{}", std::max<int64_t>(group, 16))};
    return Unknown(what, "bits", std::to_string(bits));
  }
  if (method == "compressed-tensors") return ReadCompressed(quantization, what);
  return Unknown(what, "quant_method", method);
}

}  // namespace

Status ReadShippedFormats(const json& config, const std::string& what, ModelShape& shape) {
  std::string dtype = "bfloat16";
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    const json* value = Find(config, key);
    if (value == nullptr) continue;
    if (!value->is_string()) {
      return MakeParamError(ErrorCode::kDataLoss, std::string(key), "{}: {}: expected a string",
                            what, key);
    }
    dtype = value->get<std::string>();
    break;
  }
  const bool known = dtype == "bfloat16" || dtype == "float16" || dtype == "float32";
  if (!known && !dtype.starts_with("float8")) {
    return MakeParamError(ErrorCode::kDataLoss, "dtype",
                          "{}: dtype: expected bfloat16, float16 or float32, got '{}'", what,
                          dtype.substr(0, 40));
  }
  const std::string name = dtype == "float32" ? "f32" : dtype == "float16" ? "f16" : "bf16";
  KVASIR_ASSIGN_OR_RETURN(const NumberFormat plain, ParseWeightFormat(name));
  KVASIR_ASSIGN_OR_RETURN(shape.kv_format, ParseKvFormat(name));
  shape.shipped.fill(plain);
  const json* quantization = Find(config, "quantization_config");
  if (quantization == nullptr) return Status::Ok();
  KVASIR_ASSIGN_OR_RETURN(const Quantized quantized, ReadQuantization(*quantization, what));
  KVASIR_ASSIGN_OR_RETURN(const NumberFormat format, ParseWeightFormat(quantized.format));
  for (const Part part : {Part::kAttention, Part::kFfn, Part::kSharedExpert, Part::kExperts}) {
    if (quantized.experts_only && part != Part::kExperts) continue;
    shape.shipped[static_cast<size_t>(part)] = format;
  }
  return Status::Ok();
}

}  // namespace kvasir::plan
