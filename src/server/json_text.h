// JSON as text: written by hand where it is hot, read with limits where it comes from outside.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/errors.h"

namespace kvasir::server {

using Json = nlohmann::ordered_json;

/// Appends `text` (valid UTF-8) in quotes. Beside what JSON demands, U+0085, U+2028 and U+2029 are
/// escaped: clients that split event streams into lines by Unicode's rules break on them.
void AppendJsonString(std::string_view text, std::string& out);

/// The same without the quotes.
void AppendJsonEscaped(std::string_view text, std::string& out);

/// Shortest text that reads back as the same float, always with a point or exponent; NaN and
/// infinities, and what lies below, become -9999.0.
void AppendLogprob(float value, std::string& out);

void AppendInt(int64_t value, std::string& out);

/// What a request body may hold.
struct JsonLimits {
  int depth = 100;
  int64_t values_count = 4'000'000;  ///< token-id prompts are the largest honest case
};

/// Reads one JSON text. Refuses, with a 400: what is no JSON, invalid UTF-8, a byte order mark,
/// lone surrogates, numbers beyond a double, the same key twice in one object, and more than the
/// limits.
[[nodiscard]] std::optional<ApiError> ParseJson(std::string_view text, Json& out,
                                                const JsonLimits& limits = {});

/// A request's body: as ParseJson, and it must be an object, sent as application/json.
[[nodiscard]] std::optional<ApiError> ParseBody(const HttpRequest& request, Json& out);

}  // namespace kvasir::server
