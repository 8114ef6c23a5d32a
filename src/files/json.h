// JSON from outside: limited in depth, errors as one line.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace kvasir::files {

/// Deep enough for every config, tokenizer and index; shallow enough for any recursive walk.
inline constexpr int kMaxJsonDepth = 64;

/// Parses one JSON value. `what` (a file's name) starts the message of an error, which gives line
/// and column. More than `max_depth` levels of [ and { are refused before anything is built. Of two
/// equal keys in an object the later wins, as in Python.
[[nodiscard]] Result<nlohmann::json> ParseJson(std::string_view text, std::string_view what,
                                               int max_depth = kMaxJsonDepth);

/// "line 3, column 7" of byte `at` in `text`, both from 1. Columns count bytes.
[[nodiscard]] std::string LineAndColumn(std::string_view text, size_t at);

/// A parser's own words about what is wrong, without its prefix and with its quote of the text cut.
[[nodiscard]] std::string JsonReason(const nlohmann::json::exception& exception);

}  // namespace kvasir::files
