// Fields of a small JSON object from outside: checked, and named in what is said about them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::plan {

[[nodiscard]] bool HasControlCharacter(std::string_view text);

/// The first key that an object in `text`, which is valid JSON, has twice.
[[nodiscard]] std::optional<std::string> RepeatedKey(std::string_view text);

/// Reads typed fields. The first thing found wrong is remembered and later reads give defaults.
/// `object` must outlive the reader and be an object.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string what);

  [[nodiscard]] bool Has(std::string_view key) const;
  double Required(std::string_view key, double least, double most);
  double Number(std::string_view key, double otherwise, double least, double most);
  int64_t Integer(std::string_view key, int64_t otherwise, int64_t least, int64_t most);
  int64_t RequiredInteger(std::string_view key, int64_t least, int64_t most);
  /// Without control characters: it will be printed.
  std::string String(std::string_view key, std::string_view otherwise);
  std::string RequiredString(std::string_view key);
  /// An object; null where it is absent.
  const nlohmann::json* Object(std::string_view key);
  void Fail(std::string_view key, std::string_view expected_and_came);
  /// Of an object inside, whose own reader has named the field.
  void Fail(Error error);
  /// The first error; else one about a field that nobody asked for.
  [[nodiscard]] Status Finish() const;

 private:
  const nlohmann::json* Find(std::string_view key);

  const nlohmann::json& object_;
  std::string what_;
  std::set<std::string, std::less<>> asked_;
  std::optional<Error> error_;
};

}  // namespace kvasir::plan
