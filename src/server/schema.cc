#include "server/schema.h"

#include <fmt/format.h>

#include <cmath>

namespace kvasir::server {
namespace {

constexpr size_t kShownMax = 5;
constexpr size_t kValueBytesMax = 64;

}  // namespace

void Problems::Add(std::string path, std::string what) {
  ++count_;
  if (shown_.size() < kShownMax) shown_.emplace_back(std::move(path), std::move(what));
}

void Problems::AddSemantic(ApiError error) {
  if (!semantic_) semantic_ = std::move(error);
}

std::optional<ApiError> Problems::ToError() const {
  if (count_ == 0) return semantic_;
  ApiError error;
  error.type = "Bad Request";
  error.message = fmt::format("{} validation error{}:", count_, count_ == 1 ? "" : "s");
  for (const auto& [path, what] : shown_) {
    error.message += fmt::format("\n  {}: {}", path, what);
  }
  error.param = shown_.front().first;
  return error;
}

Fields::Fields(const Json& object, std::string path, Problems& problems)
    : object_(object), path_(std::move(path)), problems_(problems) {}

const Json* Fields::Find(std::string_view name) const {
  for (const auto& [key, value] : object_.get_ref<const Json::object_t&>()) {
    if (key == name) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

std::string Fields::PathOf(std::string_view name) const {
  return fmt::format("{}.{}", path_, name);
}

void Fields::Problem(std::string_view name, std::string what) const {
  problems_.Add(PathOf(name), std::move(what));
}

void Fields::Semantic(std::string_view name, std::string message) const {
  problems_.AddSemantic(BadRequest(std::move(message), std::string(name)));
}

std::optional<bool> Fields::Bool(std::string_view name) const {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    Problem(name, fmt::format("expected a boolean, got {}", TypeName(*value)));
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<int64_t> Fields::Int(std::string_view name) const {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> number = AsInt(*value);
  if (!number) {
    Problem(name, value->is_number()
                      ? fmt::format("expected a 64-bit integer, got {}", ValueText(*value))
                      : fmt::format("expected an integer, got {}", TypeName(*value)));
  }
  return number;
}

std::optional<double> Fields::Number(std::string_view name) const {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    Problem(name, fmt::format("expected a number, got {}", TypeName(*value)));
    return std::nullopt;
  }
  return value->get<double>();
}

std::optional<std::string> Fields::String(std::string_view name) const {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    Problem(name, fmt::format("expected a string, got {}", TypeName(*value)));
    return std::nullopt;
  }
  return value->get_ref<const std::string&>();
}

const Json* Fields::Object(std::string_view name) const {
  const Json* value = Find(name);
  if (value == nullptr || value->is_object()) return value;
  Problem(name, fmt::format("expected an object, got {}", TypeName(*value)));
  return nullptr;
}

const Json* Fields::Array(std::string_view name) const {
  const Json* value = Find(name);
  if (value == nullptr || value->is_array()) return value;
  Problem(name, fmt::format("expected a list, got {}", TypeName(*value)));
  return nullptr;
}

std::optional<std::vector<int64_t>> Fields::Ints(std::string_view name, int64_t low, int64_t high,
                                                 int64_t count_max) const {
  const Json* list = Array(name);
  if (list == nullptr) return std::nullopt;
  if (static_cast<int64_t>(list->size()) > count_max) {
    Semantic(name,
             fmt::format("{} can have at most {} entries, got {}.", name, count_max, list->size()));
    return std::nullopt;
  }
  std::vector<int64_t> numbers;
  numbers.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const std::optional<int64_t> number = AsInt((*list)[i]);
    if (!number) {
      problems_.Add(fmt::format("{}[{}]", PathOf(name), i),
                    fmt::format("expected an integer, got {}", ValueText((*list)[i])));
      return std::nullopt;
    }
    if (*number < low || *number > high) {
      Semantic(name,
               fmt::format("{}[{}] must be in [{}, {}], got {}.", name, i, low, high, *number));
      return std::nullopt;
    }
    numbers.push_back(*number);
  }
  return numbers;
}

std::optional<std::vector<std::string>> Fields::Strings(std::string_view name,
                                                        int64_t count_max) const {
  const Json* list = Array(name);
  if (list == nullptr) return std::nullopt;
  if (static_cast<int64_t>(list->size()) > count_max) {
    Semantic(name,
             fmt::format("{} can have at most {} entries, got {}.", name, count_max, list->size()));
    return std::nullopt;
  }
  std::vector<std::string> strings;
  strings.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_string()) {
      problems_.Add(fmt::format("{}[{}]", PathOf(name), i),
                    fmt::format("expected a string, got {}", TypeName((*list)[i])));
      return std::nullopt;
    }
    strings.push_back((*list)[i].get_ref<const std::string&>());
  }
  return strings;
}

std::optional<double> Fields::NumberIn(std::string_view name, std::string_view range,
                                       const std::function<bool(double)>& good) const {
  const std::optional<double> number = Number(name);
  if (number && !good(*number)) {
    Semantic(name, fmt::format("{} must be {}, got {}.", name, range, ValueText(*Find(name))));
    return std::nullopt;
  }
  return number;
}

std::optional<int64_t> Fields::IntIn(std::string_view name, std::string_view range,
                                     const std::function<bool(int64_t)>& good) const {
  const std::optional<int64_t> number = Int(name);
  if (number && !good(*number)) {
    Semantic(name, fmt::format("{} must be {}, got {}.", name, range, *number));
    return std::nullopt;
  }
  return number;
}

std::string TypeName(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number";
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return "something else";
}

std::string ValueText(const Json& value) {
  if (value.is_structured()) return TypeName(value);
  return Shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace), kValueBytesMax);
}

std::optional<int64_t> AsInt(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    // Beyond 2^53 a double no longer tells which integer was meant.
    if (std::trunc(number) == number && std::abs(number) <= 0x1p53) {
      return static_cast<int64_t>(number);
    }
  }
  return std::nullopt;
}

}  // namespace kvasir::server
