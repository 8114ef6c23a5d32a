#include "plan/json_fields.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace kvasir::plan {
namespace {

std::string Show(const nlohmann::json& value) {
  constexpr size_t kShownMax = 60;
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() > kShownMax ? text.substr(0, kShownMax) + "..." : text;
}

}  // namespace

JsonFields::JsonFields(const nlohmann::json& object, std::string what)
    : object_(object), what_(std::move(what)) {}

const nlohmann::json* JsonFields::Find(std::string_view key) {
  asked_.emplace(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::Has(std::string_view key) const { return object_.contains(key); }

double JsonFields::Required(std::string_view key, double least, double most) {
  if (Find(key) != nullptr) return Number(key, least, least, most);
  Fail(key, "expected a number, but the field is missing");
  return least;
}

double JsonFields::Number(std::string_view key, double otherwise, double least, double most) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return otherwise;
  // Written so that NaN fails.
  if (value->is_number() && value->get<double>() >= least && value->get<double>() <= most) {
    return value->get<double>();
  }
  Fail(key, fmt::format("expected a number from {:g} to {:g}, got {}", least, most, Show(*value)));
  return otherwise;
}

std::string JsonFields::String(std::string_view key, std::string_view otherwise) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return std::string(otherwise);
  if (value->is_string()) return value->get<std::string>();
  Fail(key, fmt::format("expected a string, got {}", Show(*value)));
  return std::string(otherwise);
}

std::string JsonFields::RequiredString(std::string_view key) {
  if (Find(key) == nullptr) Fail(key, "expected a string, but the field is missing");
  return String(key, "");
}

const nlohmann::json* JsonFields::Object(std::string_view key) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr || value->is_object()) return value;
  Fail(key, fmt::format("expected an object, got {}", Show(*value)));
  return nullptr;
}

void JsonFields::Fail(std::string_view key, std::string_view expected_and_came) {
  if (error_) return;
  error_ = MakeParamError(ErrorCode::kInvalidArgument, std::string(key), "{}: {}: {}", what_, key,
                          expected_and_came);
}

Status JsonFields::Finish() const {
  if (error_) return *error_;
  for (const auto& [key, value] : object_.items()) {
    if (!asked_.contains(key)) {
      return MakeParamError(ErrorCode::kInvalidArgument, key, "{}: {}: no such field", what_,
                            key.substr(0, 60));
    }
  }
  return Status::Ok();
}

}  // namespace kvasir::plan
