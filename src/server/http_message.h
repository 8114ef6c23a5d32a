// The parts of HTTP that are text work alone: targets, and the rules that keep two parsers in a row
// from seeing two different requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http.h"

namespace kvasir::server {

struct HttpTarget {
  std::string path;   ///< percent-decoded, begins with "/"
  std::string query;  ///< as sent
};

/// Splits an origin-form ("/a?b"), absolute-form ("http://host/a") or asterisk target. Nothing is
/// normalized: "/a/../b" stays so, and no route has such a name.
[[nodiscard]] Result<HttpTarget> ParseTarget(std::string_view target);

/// The first value of `name` in a query of name=value pairs, percent-decoded; empty for a name
/// alone, none where it is missing.
[[nodiscard]] std::optional<std::string> QueryValue(std::string_view query, std::string_view name);

/// "%41" → "A"; nullopt for broken escapes and for NUL.
[[nodiscard]] std::optional<std::string> PercentDecode(std::string_view text);

/// Refuses what proxies and servers read in different ways: several or malformed lengths, a length
/// beside Transfer-Encoding, codings other than "chunked", several hosts, none in HTTP/1.1.
/// `minor_version`: 0 or 1.
[[nodiscard]] Status CheckFraming(const HttpHeaders& headers, int minor_version);

[[nodiscard]] bool EqualsIgnoreCase(std::string_view a, std::string_view b);

/// "OK", "Not Found", …
[[nodiscard]] std::string_view ReasonPhrase(int status);

/// Status line and headers, with the empty line. `length`: of the body; nullopt: a stream, chunked
/// unless `minor_version` is 0.
[[nodiscard]] std::string FormatHead(const HttpResponse& response, std::optional<uint64_t> length,
                                     int minor_version, bool keep_alive);

}  // namespace kvasir::server
