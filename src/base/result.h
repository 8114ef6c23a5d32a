// A value or an error with a sentence: what was expected and what came. For everything that can be
// wrong from outside (files, requests, flags). Exceptions are left to libraries and broken
// promises.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace kvasir {

enum class ErrorCode {
  kInvalidArgument,    ///< the caller's value is wrong (HTTP 400)
  kNotFound,           ///< a thing named does not exist (404)
  kUnsupported,        ///< valid, but this build or model cannot do it (400)
  kResourceExhausted,  ///< a limit or a full queue; later may work (429)
  kUnavailable,        ///< loading, draining or shut down (503)
  kDataLoss,           ///< a file is broken or lies about itself
  kIo,                 ///< the operating system refused
  kInternal,           ///< ours (500)
};

/// One line for people. `param` names the request field or flag it is about, where there is one.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string param;
};

/// Builds an Error from an fmt format: MakeError(ErrorCode::kDataLoss, "{}: ...", path).
template <typename... Args>
[[nodiscard]] Error MakeError(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...), {}};
}

/// As MakeError, naming the field: MakeParamError(ErrorCode::kInvalidArgument, "top_p", "...", v).
template <typename... Args>
[[nodiscard]] Error MakeParamError(ErrorCode code, std::string param,
                                   fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...), std::move(param)};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }

  T& value() & {
    KVASIR_CHECK(ok(), "{}", std::get<Error>(state_).message);
    return std::get<T>(state_);
  }
  const T& value() const& {
    KVASIR_CHECK(ok(), "{}", std::get<Error>(state_).message);
    return std::get<T>(state_);
  }
  T&& value() && {
    KVASIR_CHECK(ok(), "{}", std::get<Error>(state_).message);
    return std::get<T>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  [[nodiscard]] const Error& error() const& {
    KVASIR_CHECK(!ok());
    return std::get<Error>(state_);
  }
  [[nodiscard]] Error error() && {
    KVASIR_CHECK(!ok());
    return std::get<Error>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

/// Success or an error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  static Status Ok() { return {}; }

  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Error& error() const& {
    KVASIR_CHECK(!ok());
    return *error_;
  }
  [[nodiscard]] Error error() && {
    KVASIR_CHECK(!ok());
    return *std::move(error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace kvasir

#define KVASIR_CONCAT_INNER(a, b) a##b
#define KVASIR_CONCAT(a, b) KVASIR_CONCAT_INNER(a, b)

/// Returns the error of a Status or Result expression from the enclosing function.
#define KVASIR_RETURN_IF_ERROR(expression)                          \
  do {                                                              \
    if (auto kvasir_status_ = (expression); !kvasir_status_.ok()) { \
      return std::move(kvasir_status_).error();                     \
    }                                                               \
  } while (false)

/// KVASIR_ASSIGN_OR_RETURN(auto x, MakeX()): declares or assigns, or returns the error.
#define KVASIR_ASSIGN_OR_RETURN(target, expression) \
  KVASIR_ASSIGN_OR_RETURN_INNER(KVASIR_CONCAT(kvasir_result_, __LINE__), target, expression)
#define KVASIR_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) return std::move(result).error();             \
  target = std::move(result).value()
