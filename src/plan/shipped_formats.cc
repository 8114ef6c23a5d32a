#include "plan/shipped_formats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "files/printable.h"

namespace kvasir::plan {
namespace {

using nlohmann::json;

constexpr size_t kShownMost = 40;
constexpr int64_t kTileMost = 1 << 20;

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
  NumberFormat format;
  bool experts_only = false;
};

constexpr std::string_view kConfig = "quantization_config";
constexpr std::string_view kCure = "give the weights' format with --weights";

Error Unknown(const std::string& what, std::string_view field, const std::string& came) {
  return MakeParamError(ErrorCode::kUnsupported, std::string(kConfig),
                        "{}: {}: {}: '{}' is not known here; {}", what, kConfig, field,
                        files::Printable(came, kShownMost), kCure);
}

Error Missing(const std::string& what, std::string_view field, std::string_view expected) {
  return MakeParamError(ErrorCode::kDataLoss, std::string(kConfig),
                        "{}: {}: {}: expected {}, but the field is missing", what, kConfig, field,
                        expected);
}

Error Wrong(const std::string& what, std::string_view field, std::string_view expected,
            const json& came) {
  return MakeParamError(ErrorCode::kDataLoss, std::string(kConfig),
                        "{}: {}{}{}: expected {}, got {}", what, kConfig, field.empty() ? "" : ": ",
                        field, expected, files::Printable(came.dump(), kShownMost));
}

// Codes of 4 bits and a scale of 16 bits a group, whose size stands in `field`; -1: a scale a row.
Result<Quantized> Int4(const json& object, std::string_view field, int64_t otherwise,
                       const std::string& what) {
  Quantized out;
  const auto given = object.find(field);
  const json group = given == object.end() || given->is_null() ? json(otherwise) : *given;
  if (group == -1) {
    out.format.name = "int4";
    out.format.block_values = 2;
    out.format.block_bytes = 1;
    out.format.tile_rows = 1;
    out.format.tile_bytes = 2;
    out.format.math = Math::kBF16;
    return out;
  }
  auto format = ParseWeightFormat("int4-g" + group.dump());
  if (!format.ok()) return Wrong(what, field, "-1 or an even number of 16 to 1024", group);
  out.format = *std::move(format);
  return out;
}

Quantized Known(std::string_view format, bool experts_only = false) {
  return {ParseWeightFormat(format).value(), experts_only};
}

// With the size of the tiles that share a scale, where it is given.
Result<Quantized> ReadFp8(const json& quantization, const std::string& what) {
  Quantized out = Known("fp8");
  const auto tile = quantization.find("weight_block_size");
  if (tile == quantization.end() || tile->is_null()) return out;
  const auto is_size = [](const json& size) {
    return size.is_number_integer() && size > 0 && size <= kTileMost;
  };
  if (!tile->is_array() || tile->size() != 2 || !std::ranges::all_of(*tile, is_size)) {
    return Wrong(what, "weight_block_size", fmt::format("two integers of 1 to {}", kTileMost),
                 *tile);
  }
  out.format.tile_rows = (*tile)[0];
  out.format.tile_cols = (*tile)[1];
  return out;
}

// compressed-tensors: the weights of the first group of layers; what is left alone stands in
// `ignore`.
Result<Quantized> ReadCompressed(const json& quantization, const std::string& what) {
  const auto groups = quantization.find("config_groups");
  if (groups == quantization.end() || !groups->is_object() || groups->empty() ||
      !groups->begin()->is_object() || !groups->begin()->contains("weights") ||
      !(*groups->begin())["weights"].is_object()) {
    return Missing(what, "config_groups", "an object of groups, each with its weights");
  }
  const json& weights = (*groups->begin())["weights"];
  const int64_t bits = IntOf(weights, "num_bits", 0);
  Quantized out;
  if (bits == 4 && StringOf(weights, "type") == "int") {
    KVASIR_ASSIGN_OR_RETURN(out, Int4(weights, "group_size", -1, what));
  } else if (bits == 4) {
    out = Known("nvfp4");
  } else if (bits == 8) {
    out = Known(StringOf(weights, "type") == "float" ? "fp8" : "int8");
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
  if (!quantization.is_object()) return Wrong(what, "", "an object", quantization);
  const auto given = quantization.find("quant_method");
  if (given == quantization.end()) return Missing(what, "quant_method", "a string");
  if (!given->is_string()) return Wrong(what, "quant_method", "a string", *given);
  const std::string method = *given;
  if (method == "fp8" || method == "fbgemm_fp8") return ReadFp8(quantization, what);
  if (method == "mxfp4") return Known("mxfp4", /*experts_only=*/true);
  if (method == "gptq" || method == "awq") {
    const int64_t bits = IntOf(quantization, "bits", IntOf(quantization, "w_bit", 4));
    const char* const field = quantization.contains("group_size") ? "group_size" : "q_group_size";
    if (bits == 8) return Known("int8");
    if (bits == 4) return Int4(quantization, field, 128, what);
    return Unknown(what, "bits", std::to_string(bits));
  }
  if (method == "compressed-tensors") return ReadCompressed(quantization, what);
  return Unknown(what, "quant_method", method);
}

}  // namespace

Status ReadShippedFormats(const json& config, const std::string& what, ModelShape& shape) {
  std::string dtype = "bfloat16";
  std::string_view dtype_key = "dtype";
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    const json* value = Find(config, key);
    if (value == nullptr) continue;
    if (!value->is_string()) {
      return MakeParamError(ErrorCode::kDataLoss, std::string(key),
                            "{}: {}: expected a string, got {}", what, key,
                            files::Printable(value->dump(), kShownMost));
    }
    dtype = value->get<std::string>();
    dtype_key = key;
    break;
  }
  const bool known = dtype == "bfloat16" || dtype == "float16" || dtype == "float32";
  if (!known && !dtype.starts_with("float8")) {
    return MakeParamError(ErrorCode::kDataLoss, std::string(dtype_key),
                          "{}: {}: expected bfloat16, float16 or float32, got '{}'", what,
                          dtype_key, files::Printable(dtype, kShownMost));
  }
  const std::string name = dtype == "float32" ? "f32" : dtype == "float16" ? "f16" : "bf16";
  KVASIR_ASSIGN_OR_RETURN(const NumberFormat plain, ParseWeightFormat(name));
  KVASIR_ASSIGN_OR_RETURN(shape.kv_format, ParseKvFormat(name));
  shape.shipped.fill(plain);
  const json* quantization = Find(config, kConfig);
  if (quantization == nullptr) return Status::Ok();
  KVASIR_ASSIGN_OR_RETURN(const Quantized quantized, ReadQuantization(*quantization, what));
  for (const Part part : {Part::kAttention, Part::kFfn, Part::kSharedExpert, Part::kExperts}) {
    if (quantized.experts_only && part != Part::kExperts) continue;
    shape.shipped[static_cast<size_t>(part)] = quantized.format;
  }
  return Status::Ok();
}

}  // namespace kvasir::plan
