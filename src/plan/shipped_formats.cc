#include "plan/shipped_formats.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "files/printable.h"
#include "plan/name_pattern.h"

namespace kvasir::plan {
namespace {

using nlohmann::json;

constexpr size_t kShownMost = 40;
constexpr int64_t kTileMost = 1 << 20;
constexpr std::string_view kConfig = "quantization_config";

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

// One format and the modules that have it: names, or "re:" and a pattern, or classes. None: all.
struct Group {
  NumberFormat format;
  std::vector<std::string> targets;
};

struct Quantized {
  std::vector<Group> groups;
  std::vector<std::string> left_alone;  ///< modules
  /// left_alone are patterns of parts of names, as transformers has them; else as targets are.
  bool patterns_search = false;
  bool experts_only = false;
  bool head = false;  ///< too
};

// Reads the fields of one object under quantization_config; errors name the field.
class Fields {
 public:
  Fields(const json& object, const std::string& what) : object_(object), what_(what) {}

  [[nodiscard]] Error Wrong(std::string_view field, std::string_view expected,
                            const json& came) const {
    return MakeParamError(ErrorCode::kDataLoss, std::string(kConfig),
                          "{}: {}{}{}: expected {}, got {}", what_, kConfig,
                          field.empty() ? "" : ": ", field, expected,
                          files::Printable(came.dump(), kShownMost));
  }
  /// Neither wrong nor known.
  [[nodiscard]] Error Unknown(std::string_view field, const std::string& came) const {
    return MakeParamError(ErrorCode::kUnsupported, std::string(kConfig),
                          "{}: {}: {}: '{}' is not known here; give the weights' format with "
                          "--weights",
                          what_, kConfig, field, files::Printable(came, kShownMost));
  }

  /// None where it is missing or null.
  [[nodiscard]] const json* Value(std::string_view field) const {
    const auto found = object_.find(field);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  [[nodiscard]] Result<std::string> String(std::string_view field,
                                           std::string_view otherwise) const {
    const json* value = Value(field);
    if (value == nullptr) return std::string(otherwise);
    if (!value->is_string()) return Wrong(field, "a string", *value);
    return value->get<std::string>();
  }
  [[nodiscard]] Result<int64_t> Int(std::string_view field, int64_t otherwise) const {
    const json* value = Value(field);
    if (value == nullptr) return otherwise;
    if (!value->is_number_integer()) return Wrong(field, "an integer", *value);
    return value->get<int64_t>();
  }
  [[nodiscard]] Result<std::vector<std::string>> Strings(std::string_view field) const {
    std::vector<std::string> out;
    const json* value = Value(field);
    if (value == nullptr) return out;
    if (!value->is_array()) return Wrong(field, "a list of names", *value);
    for (const json& item : *value) {
      if (!item.is_string()) return Wrong(field, "a list of names", item);
      out.push_back(item.get<std::string>());
    }
    return out;
  }
  /// Codes of 4 bits and a scale of 16 bits a group, whose size stands in `field`; -1: a scale a
  /// row.
  [[nodiscard]] Result<NumberFormat> Int4(std::string_view field, int64_t otherwise) const {
    KVASIR_ASSIGN_OR_RETURN(const int64_t group, Int(field, otherwise));
    if (group == -1) {
      NumberFormat format;
      format.name = "int4";
      format.block_values = 2;
      format.block_bytes = 1;
      format.tile_rows = 1;
      format.tile_bytes = 2;
      return format;
    }
    auto format = ParseWeightFormat(fmt::format("int4-g{}", group));
    if (!format.ok()) return Wrong(field, "-1 or an even number of 16 to 1024", group);
    return format;
  }

 private:
  const json& object_;
  const std::string& what_;
};

NumberFormat Known(std::string_view name) { return ParseWeightFormat(name).value(); }

// With the size of the tiles that share a scale, where it is given.
Result<NumberFormat> ReadFp8(const Fields& fields) {
  NumberFormat format = Known("fp8");
  const json* tile = fields.Value("weight_block_size");
  if (tile == nullptr) return format;
  const auto is_size = [](const json& size) {
    return size.is_number_integer() && size > 0 && size <= kTileMost;
  };
  if (!tile->is_array() || tile->size() != 2 || !std::ranges::all_of(*tile, is_size)) {
    return fields.Wrong("weight_block_size", fmt::format("two integers of 1 to {}", kTileMost),
                        *tile);
  }
  format.tile_rows = (*tile)[0];
  format.tile_cols = (*tile)[1];
  return format;
}

// Of one group of compressed-tensors.
Result<NumberFormat> ReadGroupFormat(const Fields& weights, std::string_view packing) {
  KVASIR_ASSIGN_OR_RETURN(const int64_t bits, weights.Int("num_bits", 8));
  KVASIR_ASSIGN_OR_RETURN(const std::string type, weights.String("type", "int"));
  if (bits == 4 && type == "int") return weights.Int4("group_size", -1);
  if (bits == 4 && type == "float") {
    return Known(packing.starts_with("mxfp4") ? "mxfp4" : "nvfp4");
  }
  if (bits == 8 && type == "float") return Known("fp8");
  if (bits == 8 && type == "int") return Known("int8");
  return weights.Unknown("num_bits, type", fmt::format("{}, {}", bits, type));
}

Result<Quantized> ReadCompressed(const Fields& fields, const std::string& what) {
  Quantized out;
  const json* groups = fields.Value("config_groups");
  constexpr std::string_view kExpected = "an object of groups, each with its weights";
  // Of the KV cache alone, say.
  if (groups == nullptr || groups->empty()) return fields.Unknown("config_groups", "none");
  if (!groups->is_object()) return fields.Wrong("config_groups", kExpected, *groups);
  KVASIR_ASSIGN_OR_RETURN(const std::string packing, fields.String("format", ""));
  for (const json& group : *groups) {
    if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) {
      return fields.Wrong("config_groups", kExpected, group);
    }
    const Fields of_group(group, what);
    Group& read = out.groups.emplace_back();
    KVASIR_ASSIGN_OR_RETURN(const std::string own_packing, of_group.String("format", packing));
    KVASIR_ASSIGN_OR_RETURN(read.format,
                            ReadGroupFormat(Fields(group["weights"], what), own_packing));
    KVASIR_ASSIGN_OR_RETURN(read.targets, of_group.Strings("targets"));
  }
  KVASIR_ASSIGN_OR_RETURN(out.left_alone, fields.Strings("ignore"));
  return out;
}

Result<Quantized> ReadQuantization(const json& quantization, const std::string& what) {
  const Fields fields(quantization, what);
  if (!quantization.is_object()) return fields.Wrong("", "an object", quantization);
  KVASIR_ASSIGN_OR_RETURN(const std::string method, fields.String("quant_method", "none"));
  if (method == "compressed-tensors") return ReadCompressed(fields, what);
  Quantized out;
  out.patterns_search = true;
  KVASIR_ASSIGN_OR_RETURN(out.left_alone, fields.Strings("modules_to_not_convert"));
  Group& all = out.groups.emplace_back();
  if (method == "fp8" || method == "fbgemm_fp8") {
    KVASIR_ASSIGN_OR_RETURN(all.format, ReadFp8(fields));
    // AutoFP8's name for them.
    KVASIR_ASSIGN_OR_RETURN(const auto ignored, fields.Strings("ignored_layers"));
    out.left_alone.insert(out.left_alone.end(), ignored.begin(), ignored.end());
    return out;
  }
  if (method == "mxfp4") {
    all.format = Known("mxfp4");
    out.experts_only = true;
    return out;
  }
  if (method != "gptq" && method != "awq") return fields.Unknown("quant_method", method);
  if (const json* head = fields.Value("lm_head"); head != nullptr) {
    if (!head->is_boolean()) return fields.Wrong("lm_head", "true or false", *head);
    out.head = *head;
  }
  // Formats module by module.
  for (const char* field : {"dynamic", "modules_in_block_to_quantize"}) {
    const json* value = fields.Value(field);
    if (value != nullptr && !value->empty()) return fields.Unknown(field, value->dump());
  }
  // AutoAWQ's first files have other names.
  const char* const bits_field = fields.Value("w_bit") != nullptr ? "w_bit" : "bits";
  const char* const group = fields.Value("q_group_size") != nullptr ? "q_group_size" : "group_size";
  KVASIR_ASSIGN_OR_RETURN(const int64_t bits, fields.Int(bits_field, 4));
  if (bits != 4 && bits != 8) return fields.Unknown(bits_field, std::to_string(bits));
  KVASIR_ASSIGN_OR_RETURN(all.format, fields.Int4(group, 128));
  if (bits == 8) {
    // The same groups, of codes twice as large.
    const NumberFormat codes4 = std::exchange(all.format, Known("int8"));
    if (codes4.tile_rows == 0) {
      all.format = codes4;
      all.format.name = fmt::format("int8-g{}", codes4.block_values);
      all.format.block_bytes = codes4.block_values + 2;
    }
  }
  return out;
}

// A matrix of each layer of a part, and how large it is beside the part's others.
struct Module {
  const char* name;
  double share;
  const char* fused = "";  ///< the matrix that may stand for it and its neighbours
};

std::vector<Module> AttentionModules(const ModelShape& shape) {
  std::vector<Module> out;
  for (const LayerShape& layer : shape.layers) {
    const auto layers = static_cast<double>(layer.layers_count);
    const double query = layers * static_cast<double>(layer.query_heads * layer.key_dim);
    const double kv = layers * static_cast<double>(layer.kv_heads * layer.key_dim);
    if (layer.kind == LayerKind::kLinear) {
      out.push_back({"linear_attn.in_proj_qkvz", 3 * query, "linear_attn.in_proj_qkv"});
      out.push_back({"linear_attn.out_proj", 2 * query});
    } else if (layer.kind == LayerKind::kLatent) {
      // Shares of DeepSeek-V3's, which the others are close to.
      out.insert(out.end(), {{"self_attn.o_proj", 0.63 * layers},
                             {"self_attn.q_b_proj", 0.2 * layers, "self_attn.q_proj"},
                             {"self_attn.kv_b_proj", 0.09 * layers},
                             {"self_attn.q_a_proj", 0.06 * layers},
                             {"self_attn.kv_a_proj_with_mqa", 0.02 * layers}});
    } else {
      out.insert(out.end(), {{"self_attn.q_proj", query, "self_attn.qkv_proj"},
                             {"self_attn.k_proj", kv, "self_attn.qkv_proj"},
                             {"self_attn.v_proj", kv, "self_attn.qkv_proj"},
                             {"self_attn.o_proj", query}});
    }
  }
  return out;
}

// What the modules of a part are called; families differ.
std::vector<Module> ModulesOf(Part part, const ModelShape& shape) {
  switch (part) {
    case Part::kAttention:
      return AttentionModules(shape);
    case Part::kFfn:
      return {{"mlp.gate_proj", 1, "mlp.gate_up_proj"},
              {"mlp.up_proj", 1, "mlp.gate_up_proj"},
              {"mlp.down_proj", 1}};
    case Part::kExperts:
      return {{"mlp.experts.0.gate_proj", 1, "block_sparse_moe.experts.0.w1"},
              {"mlp.experts.0.up_proj", 1, "block_sparse_moe.experts.0.w3"},
              {"mlp.experts.0.down_proj", 1, "block_sparse_moe.experts.0.w2"}};
    case Part::kSharedExpert:
      return {{"mlp.shared_expert.gate_proj", 1, "mlp.shared_experts.gate_proj"},
              {"mlp.shared_expert.up_proj", 1, "mlp.shared_experts.up_proj"},
              {"mlp.shared_expert.down_proj", 1, "mlp.shared_experts.down_proj"}};
    default:
      return {};
  }
}

// Whether an entry of a list names a module in layer `layer`. `search`: as transformers reads
// modules_to_not_convert, patterns of parts of names; else as compressed-tensors does.
bool Names(const std::string& entry, const Module& module, int64_t layer, bool search) {
  constexpr std::string_view kPattern = "re:";
  for (const std::string_view name : {module.name, module.fused}) {
    if (name.empty()) continue;
    // "v_proj" is found in "qkv_proj", which is not meant by it.
    const bool is_fused = name.ends_with("qkv_proj") || name.ends_with("gate_up_proj");
    if (is_fused && entry.find("qkv") == entry.npos && entry.find("gate_up") == entry.npos) {
      continue;
    }
    for (const char* start :
         {"model.layers", "model.language_model.layers", "language_model.model.layers"}) {
      const std::string whole = fmt::format("{}.{}.{}", start, layer, name);
      const bool named =
          search ? FindsPattern(fmt::format("(?:{})(?:\\.|$)", entry), whole, /*anchored=*/false)
          : entry.starts_with(kPattern)
              ? FindsPattern(entry.substr(kPattern.size()), whole, /*anchored=*/true)
              : entry == whole;
      if (named) return true;
    }
  }
  return false;
}

// The format of a module; none: it is left alone. The middle layer speaks for all, since the first
// and the last are those that a checkpoint may treat otherwise.
const NumberFormat* FormatOf(const Module& module, const Quantized& quantized, int64_t layer) {
  const auto named_in = [&](const std::vector<std::string>& entries, bool search) {
    return std::ranges::any_of(
        entries, [&](const std::string& entry) { return Names(entry, module, layer, search); });
  };
  if (named_in(quantized.left_alone, quantized.patterns_search)) return nullptr;
  // A name wins over a class.
  for (const Group& group : quantized.groups) {
    if (named_in(group.targets, /*search=*/false)) return &group.format;
  }
  for (const Group& group : quantized.groups) {
    const bool all =
        group.targets.empty() || std::ranges::find(group.targets, "Linear") != group.targets.end();
    if (all) return &group.format;
  }
  return nullptr;
}

// That most of a part has; none: as it was before.
const NumberFormat* FormatOf(Part part, const Quantized& quantized, const ModelShape& shape) {
  if (part == Part::kHead) return quantized.head ? &quantized.groups.front().format : nullptr;
  if (quantized.experts_only && part != Part::kExperts) return nullptr;
  std::map<const NumberFormat*, double> shares;
  for (const Module& module : ModulesOf(part, shape)) {
    shares[FormatOf(module, quantized, shape.layers_count / 2)] += module.share;
  }
  const auto most = std::ranges::max_element(
      shares, [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == shares.end() ? nullptr : most->first;
}

Result<NumberFormat> ReadPlain(const json& config, const std::string& what) {
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
  return ParseWeightFormat(dtype == "float32" ? "f32" : dtype == "float16" ? "f16" : "bf16");
}

}  // namespace

bool IsQuantized(const json& config) { return Find(config, kConfig) != nullptr; }

Status ReadShippedFormats(const json& config, const std::string& what, ModelShape& shape) {
  KVASIR_ASSIGN_OR_RETURN(const NumberFormat plain, ReadPlain(config, what));
  KVASIR_ASSIGN_OR_RETURN(shape.kv_format, ParseKvFormat(plain.name));
  shape.shipped.fill(plain);
  const json* quantization = Find(config, kConfig);
  if (quantization == nullptr) return Status::Ok();
  const auto quantized = ReadQuantization(*quantization, what);
  if (!quantized.ok()) {
    if (quantized.error().code != ErrorCode::kUnsupported) return quantized.error();
    shape.shipped_unknown = quantized.error();  // other formats can be planned all the same
    return Status::Ok();
  }
  for (const Part part :
       {Part::kAttention, Part::kFfn, Part::kSharedExpert, Part::kExperts, Part::kHead}) {
    const NumberFormat* format = FormatOf(part, *quantized, shape);
    if (format != nullptr) shape.shipped[static_cast<size_t>(part)] = *format;
  }
  return Status::Ok();
}

}  // namespace kvasir::plan
