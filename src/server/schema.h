// A strict reader of request objects: every field has a path, a type and a range, and what is wrong
// is collected, so that one answer names all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/errors.h"
#include "server/json_text.h"

namespace kvasir::server {

/// What is wrong with a request's types. Values out of range are reported alone, in vLLM's words.
class Problems {
 public:
  /// `path`: "body.messages[0].role".
  void Add(std::string path, std::string what);
  /// The first value that cannot be used wins over later ones.
  void AddSemantic(ApiError error);

  [[nodiscard]] bool empty() const { return count_ == 0 && !semantic_; }
  /// "N validation error(s): …", or the semantic error where the types are right.
  [[nodiscard]] std::optional<ApiError> ToError() const;

 private:
  int64_t count_ = 0;
  std::vector<std::pair<std::string, std::string>> shown_;  ///< the first few
  std::optional<ApiError> semantic_;
};

/// An object's members by name. null counts as absent everywhere.
class Fields {
 public:
  /// `object` must be an object and outlive this, as must `problems`.
  Fields(const Json& object, std::string path, Problems& problems);

  /// Null where absent or null.
  [[nodiscard]] const Json* Find(std::string_view name) const;
  [[nodiscard]] bool Has(std::string_view name) const { return Find(name) != nullptr; }
  [[nodiscard]] std::string PathOf(std::string_view name) const;

  [[nodiscard]] std::optional<bool> Bool(std::string_view name) const;
  /// Whole numbers; 3.0 counts as one.
  [[nodiscard]] std::optional<int64_t> Int(std::string_view name) const;
  [[nodiscard]] std::optional<double> Number(std::string_view name) const;
  [[nodiscard]] std::optional<std::string> String(std::string_view name) const;
  [[nodiscard]] const Json* Object(std::string_view name) const;
  [[nodiscard]] const Json* Array(std::string_view name) const;
  /// A list of whole numbers within [low, high], at most `count_max`.
  [[nodiscard]] std::optional<std::vector<int64_t>> Ints(std::string_view name, int64_t low,
                                                         int64_t high, int64_t count_max) const;
  /// A list of strings.
  [[nodiscard]] std::optional<std::vector<std::string>> Strings(std::string_view name,
                                                                int64_t count_max) const;

  /// Number, or a semantic problem "NAME must be RANGE, got X." where `good` is false.
  [[nodiscard]] std::optional<double> NumberIn(std::string_view name, std::string_view range,
                                               const std::function<bool(double)>& good) const;
  [[nodiscard]] std::optional<int64_t> IntIn(std::string_view name, std::string_view range,
                                             const std::function<bool(int64_t)>& good) const;

  void Problem(std::string_view name, std::string what) const;
  void Semantic(std::string_view name, std::string message) const;
  [[nodiscard]] Problems& problems() const { return problems_; }
  [[nodiscard]] const Json& object() const { return object_; }

 private:
  const Json& object_;
  std::string path_;
  Problems& problems_;
};

/// "string", "integer", "number", …, for messages.
[[nodiscard]] std::string TypeName(const Json& value);
/// The value as JSON, short, for messages.
[[nodiscard]] std::string ValueText(const Json& value);
/// A whole number that fits; nullopt for anything else.
[[nodiscard]] std::optional<int64_t> AsInt(const Json& value);

}  // namespace kvasir::server
