#include "plan/json_fields.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "files/printable.h"

namespace kvasir::plan {
namespace {

std::string Show(const nlohmann::json& value) {
  constexpr size_t kShownMax = 60;
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() > kShownMax ? text.substr(0, kShownMax) + "..." : text;
}

}  // namespace

bool HasControlCharacter(std::string_view text) {
  return std::ranges::any_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7F;
  });
}

std::optional<std::string> RepeatedKey(std::string_view text) {
  std::optional<std::string> repeated;
  std::vector<std::set<std::string>> open;  // the keys of each object that is being read
  const auto look = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(value.get<std::string>()).second && !repeated) {
      repeated = value.get<std::string>();
    }
    return true;
  };
  const nlohmann::json ignored =
      nlohmann::json::parse(text.begin(), text.end(), look, /*allow_exceptions=*/false);
  return repeated;
}

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

int64_t JsonFields::Integer(std::string_view key, int64_t otherwise, int64_t least, int64_t most) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return otherwise;
  const double number = value->is_number() ? value->get<double>() : -1.0;
  if (number >= static_cast<double>(least) && number <= static_cast<double>(most) &&
      number == std::floor(number)) {
    return static_cast<int64_t>(number);
  }
  Fail(key,
       fmt::format("expected a whole number from {} to {}, got {}", least, most, Show(*value)));
  return otherwise;
}

int64_t JsonFields::RequiredInteger(std::string_view key, int64_t least, int64_t most) {
  if (Find(key) != nullptr) return Integer(key, least, least, most);
  Fail(key, "expected a whole number, but the field is missing");
  return least;
}

std::string JsonFields::String(std::string_view key, std::string_view otherwise) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return std::string(otherwise);
  if (value->is_string() && !HasControlCharacter(value->get_ref<const std::string&>())) {
    return value->get<std::string>();
  }
  Fail(key, fmt::format("expected a string{}, got {}",
                        value->is_string() ? " without control characters" : "", Show(*value)));
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
  error_ = MakeParamError(ErrorCode::kDataLoss, std::string(key), "{}: {}: {}", what_, key,
                          expected_and_came);
}

void JsonFields::Fail(Error error) {
  if (!error_) error_ = std::move(error);
}

Status JsonFields::Finish() const {
  if (error_) return *error_;
  for (const auto& [key, value] : object_.items()) {
    if (!asked_.contains(key)) {
      return MakeParamError(ErrorCode::kDataLoss, key, "{}: {}: no such field", what_,
                            files::Printable(key, 60));
    }
  }
  return Status::Ok();
}

}  // namespace kvasir::plan
