#include "server/errors.h"

#include <fmt/format.h>

#include "base/log.h"
#include "server/json_text.h"
#include "text/unicode_utf8.h"

namespace kvasir::server {
namespace {

constexpr size_t kNameBytesMax = 128;

}  // namespace

ApiError BadRequest(std::string message, std::optional<std::string> param) {
  ApiError error;
  error.message = std::move(message);
  error.param = std::move(param);
  return error;
}

ApiError Unsupported(const std::string& field, const std::string& why) {
  return BadRequest(fmt::format("`{}` is not supported: {}", field, why), field);
}

ApiError UnknownModel(std::string_view name) {
  ApiError error;
  error.status = 404;
  error.type = "NotFoundError";
  error.message = fmt::format("The model `{}` does not exist.", Shortened(name, kNameBytesMax));
  error.param = "model";
  return error;
}

ApiError Draining() {
  ApiError error;
  error.status = 503;
  error.type = "ServiceUnavailableError";
  error.message = "The server is shutting down and takes no new work.";
  error.retry_after_s = 1;
  return error;
}

ApiError QueueFull(std::string message) {
  ApiError error;
  error.status = 429;
  error.type = "rate_limit_error";
  error.message = std::move(message);
  error.retry_after_s = 1;
  return error;
}

ApiError FromError(const Error& error) {
  ApiError made;
  made.message = error.message;
  if (!error.param.empty()) made.param = error.param;
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
      break;
    case ErrorCode::kNotFound:
      made.status = 404;
      made.type = "NotFoundError";
      break;
    case ErrorCode::kResourceExhausted:
      return QueueFull(error.message);
    case ErrorCode::kUnavailable:
      made.status = 503;
      made.type = "ServiceUnavailableError";
      made.retry_after_s = 1;
      break;
    case ErrorCode::kDataLoss:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      LogError("internal error while answering: {}", error.message);
      made.status = 500;
      made.type = "InternalServerError";
      made.message = "The server failed while it worked on this request; its log tells more.";
      made.param.reset();
      break;
  }
  return made;
}

namespace {

// Errors quote what came, which may be no UTF-8: paths, names of headers.
void AppendQuoted(std::string_view text, std::string& out) {
  std::string valid;
  text::AppendLossy(text, valid);
  AppendJsonString(valid, out);
}

}  // namespace

std::string ErrorBody(const ApiError& error) {
  std::string body = "{\"error\":{\"message\":";
  AppendQuoted(error.message, body);
  body += ",\"type\":";
  AppendJsonString(error.type, body);
  body += ",\"param\":";
  if (error.param) {
    AppendQuoted(*error.param, body);
  } else {
    body += "null";
  }
  body += ",\"code\":";
  if (error.code.empty()) {
    body += std::to_string(error.status);
  } else {
    AppendJsonString(error.code, body);
  }
  body += "}}";
  return body;
}

std::string StreamError(const ApiError& error) {
  return "data: " + ErrorBody(error) + "\n\ndata: [DONE]\n\n";
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = ErrorBody(error);
  if (error.retry_after_s > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  }
  return response;
}

std::string Shortened(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace kvasir::server
