#include "model/config_reader.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "files/model_files.h"
#include "files/printable.h"

namespace kvasir::model {
namespace {

constexpr int64_t kIntMax = std::numeric_limits<int32_t>::max();
constexpr size_t kShownMax = 60;

/// A value as a message shows it: one short line.
std::string Show(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kShownMax) text.replace(kShownMax, std::string::npos, "...");
  return text;
}

}  // namespace

ConfigReader::ConfigReader(const files::ModelFiles& files, int64_t max_model_len)
    : files_(files),
      weights_(*files.weights()),
      is_gguf_(files.kind == files::ModelFiles::Kind::kGguf),
      max_model_len_(max_model_len) {
  if (is_gguf()) {
    source_ = files::PrintablePath(files.path);
    architecture_ = std::string(
        files.gguf->metadata.String("general.architecture").value_or(std::string_view()));
    return;
  }
  source_ = files::PrintablePath(files.path / "config.json");
  config_ = &files.config;
  if (!config_->is_object()) {
    Fail(MakeError(ErrorCode::kDataLoss, "{}: expected a JSON object", source_));
    return;
  }
  const auto list = config_->find("architectures");
  const bool named = list != config_->end() && !list->is_null() &&
                     !(list->is_array() && list->empty());  // model_type names it, else
  if (named && list->is_array() && list->front().is_string()) {
    architecture_ = list->front().get<std::string>();
  } else if (named) {
    Fail({"architectures", {}},
         fmt::format("expected a list with the model's architecture, got {}",
                     files::Printable(
                         list->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), 60)));
  } else if (const auto type = config_->find("model_type");
             type != config_->end() && type->is_string()) {
    architecture_ = type->get<std::string>();
  }
  if (const auto text = config_->find("text_config"); text != config_->end() && text->is_object()) {
    config_ = &*text;
  }
}

std::string ConfigReader::GgufKey(const Key& key) const {
  return architecture_ + "." + std::string(key.gguf);
}

const nlohmann::json* ConfigReader::FindHf(std::string_view key) const {
  if (is_gguf() || key.empty()) return nullptr;
  for (const nlohmann::json* object : {config_, &files_.config}) {
    if (!object->is_object()) continue;
    if (const auto found = object->find(key); found != object->end()) return &*found;
  }
  return nullptr;
}

const nlohmann::json* ConfigReader::HfValue(std::string_view key) const {
  const nlohmann::json* value = FindHf(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigReader::Has(const Key& key) const {
  if (is_gguf()) {
    return !key.gguf.empty() && files_.gguf->metadata.Find(GgufKey(key)) != nullptr;
  }
  return FindHf(key.hf) != nullptr;
}

void ConfigReader::Fail(Error error) {
  if (!error_) error_ = std::move(error);
}

void ConfigReader::Fail(const Key& key, std::string_view expected_and_came) {
  Fail(MakeError(ErrorCode::kDataLoss, "{}: {}: {}", source_,
                 is_gguf() ? files::Printable(GgufKey(key)) : std::string(key.hf),
                 expected_and_came));
}

Status ConfigReader::status() const { return error_ ? Status(*error_) : Status::Ok(); }

std::optional<double> ConfigReader::Number(const Key& key, bool integer) {
  const std::string_view wanted = integer ? "an integer" : "a number";
  if (!is_gguf()) {
    const nlohmann::json* value = HfValue(key.hf);
    if (value == nullptr) return std::nullopt;
    if (integer ? !value->is_number_integer() : !value->is_number()) {
      Fail(key, fmt::format("expected {}, got {}", wanted, Show(*value)));
      return std::nullopt;
    }
    return value->get<double>();
  }
  if (key.gguf.empty()) return std::nullopt;
  const files::GgufMetadata& metadata = files_.gguf->metadata;
  const std::string name = GgufKey(key);
  if (metadata.Find(name) == nullptr) return std::nullopt;
  if (const auto value = metadata.Int(name)) return static_cast<double>(*value);
  if (const auto value = metadata.Float(name); value && !integer) return *value;
  if (const auto* values = metadata.Ints(name); values != nullptr && !values->empty()) {
    for (const int64_t value : *values) {
      if (value != values->front()) {
        Fail(key, "differs from layer to layer, which is not supported");
        return std::nullopt;
      }
    }
    return static_cast<double>(values->front());
  }
  Fail(key, fmt::format("expected {}, got another type", wanted));
  return std::nullopt;
}

int64_t ConfigReader::Int(const Key& key, int64_t otherwise) {
  const std::optional<double> value = Number(key, true);
  if (!value) return otherwise;
  if (*value < 0 || *value > static_cast<double>(kIntMax)) {
    Fail(key, fmt::format("expected 0 to {}, got {}", kIntMax, *value));
    return otherwise;
  }
  return static_cast<int64_t>(*value);
}

int64_t ConfigReader::RequiredInt(const Key& key) {
  const std::optional<double> value = Number(key, true);
  if (!value || *value < 1 || *value > static_cast<double>(kIntMax)) {
    Fail(key, value ? fmt::format("expected 1 to {}, got {}", kIntMax, *value)
                    : "expected an integer, but the key is missing");
    return 1;
  }
  return static_cast<int64_t>(*value);
}

double ConfigReader::Float(const Key& key, double otherwise) {
  const double value = Number(key, false).value_or(otherwise);
  if (std::isfinite(value)) return value;
  Fail(key, fmt::format("expected a finite number, got {}", value));
  return otherwise;
}

double ConfigReader::RequiredFloat(const Key& key) {
  if (!Number(key, false)) Fail(key, "expected a number, but the key is missing");
  return Float(key, 1.0);
}

bool ConfigReader::Bool(const Key& key, bool otherwise) {
  if (is_gguf()) {
    if (key.gguf.empty()) return otherwise;
    return files_.gguf->metadata.Bool(GgufKey(key)).value_or(otherwise);
  }
  const nlohmann::json* value = HfValue(key.hf);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) {
    Fail(key, fmt::format("expected true or false, got {}", Show(*value)));
    return otherwise;
  }
  return value->get<bool>();
}

std::string ConfigReader::String(const Key& key, std::string_view otherwise) {
  if (is_gguf()) {
    if (key.gguf.empty()) return std::string(otherwise);
    return std::string(files_.gguf->metadata.String(GgufKey(key)).value_or(otherwise));
  }
  const nlohmann::json* value = HfValue(key.hf);
  if (value == nullptr) return std::string(otherwise);
  if (!value->is_string()) {
    Fail(key, fmt::format("expected a string, got {}", Show(*value)));
    return std::string(otherwise);
  }
  return value->get<std::string>();
}

std::vector<int64_t> ConfigReader::Ints(const Key& key) {
  std::vector<int64_t> out;
  if (is_gguf()) {
    if (key.gguf.empty()) return out;
    const files::GgufValue* value = files_.gguf->metadata.Find(GgufKey(key));
    if (value == nullptr) return out;
    if (const auto* ints = std::get_if<std::vector<int64_t>>(value)) return *ints;
    if (const auto* bools = std::get_if<std::vector<bool>>(value)) {
      out.assign(bools->begin(), bools->end());
    }
    return out;
  }
  const nlohmann::json* value = HfValue(key.hf);
  if (value == nullptr) return out;
  if (!value->is_array()) {
    Fail(key, fmt::format("expected a list of integers, got {}", Show(*value)));
    return out;
  }
  for (const nlohmann::json& item : *value) {
    if (item.is_boolean()) {
      out.push_back(item.get<bool>() ? 1 : 0);
    } else if (item.is_number_integer()) {
      out.push_back(item.get<int64_t>());
    } else {
      Fail(key, fmt::format("expected a list of integers, got an item {}", Show(item)));
      return out;
    }
  }
  return out;
}

}  // namespace kvasir::model
