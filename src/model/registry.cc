// From the name of an architecture to its family, and the checks that every spec must pass.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "files/printable.h"
#include "model/blueprint.h"
#include "model/families/families.h"

namespace kvasir::model {
namespace {

constexpr std::array kFamilies = {
    &kLlama,   &kMistral, &kQwen2,      &kQwen3, &kGemma2,  &kGemma3,  &kPhi3,    &kOlmo2,
    &kGranite, &kSmolLm3, &kStarcoder2, &kGpt2,  &kGptNeox, &kCohere2, &kErnie45, &kGlm4,
};

const std::vector<std::string_view>& NamesOf(const Family& family, bool gguf) {
  return gguf ? family.gguf_architectures : family.hf_architectures;
}

Error UnknownArchitecture(const ConfigReader& reader) {
  std::string known;
  for (const Family* family : kFamilies) {
    const auto& names = NamesOf(*family, reader.is_gguf());
    if (names.empty()) continue;
    if (!known.empty()) known += ", ";
    known += names.front();
  }
  if (reader.architecture().empty()) {
    return MakeParamError(ErrorCode::kUnsupported, "architectures",
                          "{}: {} is missing or empty; supported: {}", reader.source(),
                          reader.is_gguf() ? "general.architecture" : "architectures", known);
  }
  return MakeParamError(ErrorCode::kUnsupported, "architectures",
                        "{}: architecture '{}' is not supported; supported: {}", reader.source(),
                        files::Printable(reader.architecture(), 60), known);
}

Status CheckNorm(const ConfigReader& reader, const NormSpec& norm) {
  if (norm.eps >= 0.0f && norm.eps <= 1.0f) return Status::Ok();
  return MakeError(ErrorCode::kDataLoss,
                   "{}: a norm's epsilon (rms_norm_eps, layer_norm_eps) is {}, expected 0 to 1",
                   reader.source(), norm.eps);
}

Status CheckCap(const ConfigReader& reader, float softcap) {
  if (std::isfinite(softcap) && softcap >= 0.0f) return Status::Ok();
  return MakeError(ErrorCode::kDataLoss,
                   "{}: a soft cap (attn_logit_softcapping, final_logit_softcapping) is {}, "
                   "expected a finite number from 0",
                   reader.source(), softcap);
}

Status CheckSpec(const ConfigReader& reader, const ModelSpec& spec) {
  // What a single row of activations may take keeps absurd configs from absurd allocations.
  constexpr int64_t kRowMax = int64_t{1} << 24;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const GroupedQueryAttention& attention = spec.layers[i].gqa();
    const int64_t qkv = attention.QueryCols() + 2 * attention.KvCols();
    if (qkv > kRowMax || spec.layers[i].dense_ffn().hidden_size > kRowMax ||
        spec.hidden_size > kRowMax) {
      return MakeError(ErrorCode::kDataLoss,
                       "{}: layer {} is wider than {} values (hidden_size, intermediate_size, "
                       "num_attention_heads x head_dim)",
                       reader.source(), i, kRowMax);
    }
    if (!std::isfinite(attention.scale) || attention.scale <= 0.0f) {
      return MakeError(
          ErrorCode::kDataLoss,
          "{}: attention scale (head_dim, query_pre_attn_scalar) is {}, expected above 0",
          reader.source(), attention.scale);
    }
    KVASIR_RETURN_IF_ERROR(CheckCap(reader, attention.softcap));
    KVASIR_RETURN_IF_ERROR(CheckNorm(reader, attention.qk_norm_spec));
    for (const auto& norm : {spec.layers[i].attention_pre_norm, spec.layers[i].attention_post_norm,
                             spec.layers[i].ffn_pre_norm, spec.layers[i].ffn_post_norm}) {
      if (norm) KVASIR_RETURN_IF_ERROR(CheckNorm(reader, *norm));
    }
  }
  KVASIR_RETURN_IF_ERROR(CheckCap(reader, spec.logit_softcap));
  KVASIR_RETURN_IF_ERROR(CheckNorm(reader, spec.final_norm));
  if (!std::isfinite(spec.logit_scale) || !std::isfinite(spec.embedding_scale) ||
      !std::isfinite(spec.residual_multiplier)) {
    return MakeError(ErrorCode::kDataLoss, "{}: a scale or multiplier is not finite",
                     reader.source());
  }
  return Status::Ok();
}

// "quant_method gptq", or what there is instead.
std::string QuantMethod(const nlohmann::json& config) {
  const auto method = config.is_object() ? config.find("quant_method") : config.end();
  if (method == config.end() || !method->is_string()) return "no quant_method";
  return fmt::format("quant_method {}", files::Printable(method->get<std::string>()));
}

}  // namespace

Result<Blueprint> MakeBlueprint(ConfigReader& reader) {
  KVASIR_RETURN_IF_ERROR(reader.status());
  const auto family = std::find_if(kFamilies.begin(), kFamilies.end(), [&](const Family* item) {
    const auto& names = NamesOf(*item, reader.is_gguf());
    return std::find(names.begin(), names.end(), reader.architecture()) != names.end();
  });
  if (family == kFamilies.end()) return UnknownArchitecture(reader);
  if (const nlohmann::json* config = reader.HfValue("quantization_config")) {
    return MakeError(
        ErrorCode::kUnsupported,
        "{}: quantization_config: quantized safetensors ({}) are not supported; use an "
        "unquantized checkpoint or a GGUF",
        reader.source(), QuantMethod(*config));
  }
  Blueprint blueprint = (*family)->build(reader);
  KVASIR_RETURN_IF_ERROR(reader.status());
  KVASIR_RETURN_IF_ERROR(CheckSpec(reader, blueprint.spec));
  AssignCacheGroups(blueprint.spec);
  return blueprint;
}

}  // namespace kvasir::model
