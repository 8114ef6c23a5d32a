// Errors as the OpenAI-compatible endpoints send them (vLLM's shape).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http.h"

namespace kvasir::server {

/// {"error":{"message","type","param","code"}}; `code` is the status unless a name is given.
struct ApiError {
  int status = 400;
  std::string type = "BadRequestError";
  std::string message;
  std::optional<std::string> param;
  std::string code;       ///< e.g. "context_length_exceeded"; empty: the status as a number
  int retry_after_s = 0;  ///< > 0: a Retry-After header
};

/// A value that cannot be used: 400 BadRequestError.
[[nodiscard]] ApiError BadRequest(std::string message, std::optional<std::string> param = {});
/// A field of a feature that this server does not have: 400, names the field.
[[nodiscard]] ApiError Unsupported(const std::string& field, const std::string& why);
/// 404 "The model `x` does not exist."
[[nodiscard]] ApiError UnknownModel(std::string_view name);
/// 503 with Retry-After, while draining.
[[nodiscard]] ApiError Draining();
/// 429 with Retry-After.
[[nodiscard]] ApiError QueueFull(std::string message);
/// By the code of an Error of another room. Only kInternal hides its message.
[[nodiscard]] ApiError FromError(const Error& error);

[[nodiscard]] std::string ErrorBody(const ApiError& error);
/// The event with which a stream breaks off, and the one that ends it.
[[nodiscard]] std::string StreamError(const ApiError& error);
[[nodiscard]] HttpResponse ErrorResponse(const ApiError& error);

/// Shortens `text` for a message: at most `bytes_max` bytes, cut at a character, with "...".
[[nodiscard]] std::string Shortened(std::string_view text, size_t bytes_max);

}  // namespace kvasir::server
