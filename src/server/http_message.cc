#include "server/http_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/strings.h"

namespace kvasir::server {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// RFC 9110 §5.6.7, made once a second at most.
const std::string& DateNow() {
  thread_local std::time_t made_at = 0;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now != made_at || text.empty()) {
    std::tm parts{};
    gmtime_r(&now, &parts);
    char buffer[64];
    const size_t size = std::strftime(buffer, sizeof(buffer), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    text.assign(buffer, size);
    made_at = now;
  }
  return text;
}

bool IsDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

const std::string* HttpRequest::Header(std::string_view lower_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_name) return &value;
  }
  return nullptr;
}

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return std::nullopt;
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return out;
}

Result<HttpTarget> ParseTarget(std::string_view target) {
  if (target == "*") return HttpTarget{"*", ""};
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() >= scheme.size() &&
        EqualsIgnoreCase(target.substr(0, scheme.size()), scheme)) {
      target.remove_prefix(scheme.size());
      const size_t slash = target.find('/');
      target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
      break;
    }
  }
  if (target.empty() || target[0] != '/') {
    return MakeError(ErrorCode::kInvalidArgument, "The request target must begin with '/'.");
  }
  target = target.substr(0, target.find('#'));
  const size_t question = target.find('?');
  HttpTarget parsed;
  std::optional<std::string> path = PercentDecode(target.substr(0, question));
  if (!path) {
    return MakeError(ErrorCode::kInvalidArgument, "The request target has a broken % escape.");
  }
  parsed.path = *std::move(path);
  if (question != std::string_view::npos) parsed.query = std::string(target.substr(question + 1));
  return parsed;
}

std::optional<std::string> QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (PercentDecode(pair.substr(0, equals)) != name) continue;
    if (equals == std::string_view::npos) return std::string();
    // What is no escape is taken as it stands.
    return PercentDecode(pair.substr(equals + 1)).value_or(std::string(pair.substr(equals + 1)));
  }
  return std::nullopt;
}

Status CheckFraming(const HttpHeaders& headers, int minor_version) {
  int lengths_count = 0;
  int codings_count = 0;
  int hosts_count = 0;
  int keys_count = 0;
  int types_count = 0;
  for (const auto& [name, value] : headers) {
    if (name == "content-length") {
      ++lengths_count;
      if (!IsDigits(value)) {
        return MakeError(ErrorCode::kInvalidArgument, "Content-Length must be one decimal number.");
      }
    } else if (name == "transfer-encoding") {
      ++codings_count;
      if (!EqualsIgnoreCase(value, "chunked")) {
        return MakeError(ErrorCode::kInvalidArgument,
                         "Transfer-Encoding must be 'chunked' alone, where it is used.");
      }
    } else if (name == "host") {
      ++hosts_count;
    } else if (name == "authorization") {
      ++keys_count;
    } else if (name == "content-type") {
      ++types_count;
    }
  }
  if (lengths_count + codings_count > 1) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "A request has at most one Content-Length or Transfer-Encoding header.");
  }
  if (keys_count > 1 || types_count > 1) {
    return MakeError(ErrorCode::kInvalidArgument, "A request has at most one {} header.",
                     keys_count > 1 ? "Authorization" : "Content-Type");
  }
  if (codings_count > 0 && minor_version == 0) {
    return MakeError(ErrorCode::kInvalidArgument, "HTTP/1.0 has no Transfer-Encoding.");
  }
  if (hosts_count > 1 || (hosts_count == 0 && minor_version >= 1)) {
    return MakeError(ErrorCode::kInvalidArgument, "A request has exactly one Host header, got {}.",
                     hosts_count);
  }
  return Status::Ok();
}

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && LowerCase(a) == LowerCase(b);
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

std::string FormatHead(const HttpResponse& response, std::optional<uint64_t> length,
                       int minor_version, bool keep_alive) {
  std::string head;
  head.reserve(384);
  fmt::format_to(std::back_inserter(head), "HTTP/1.1 {} {}\r\nDate: {}\r\nServer: kvasir\r\n",
                 response.status, ReasonPhrase(response.status), DateNow());
  if (!response.content_type.empty()) {
    fmt::format_to(std::back_inserter(head), "Content-Type: {}\r\n", response.content_type);
  }
  if (length) {
    if (response.status != 204) {
      fmt::format_to(std::back_inserter(head), "Content-Length: {}\r\n", *length);
    }
  } else if (minor_version > 0) {
    head += "Transfer-Encoding: chunked\r\n";
  }
  for (const auto& [name, value] : response.headers) {
    fmt::format_to(std::back_inserter(head), "{}: {}\r\n", name, value);
  }
  if (!keep_alive) {
    head += "Connection: close\r\n";
  } else if (minor_version == 0) {
    head += "Connection: keep-alive\r\n";
  }
  head += "\r\n";
  return head;
}

}  // namespace kvasir::server
