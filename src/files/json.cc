#include "files/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "files/printable.h"

namespace kvasir::files {
namespace {

// Linux's PATH_MAX: `what` is mostly a path.
constexpr size_t kMaxWhatBytes = 4096;

// The byte at which [ and { are nested deeper than `max_depth`, or npos. Brackets inside strings do
// not count; what is not JSON at all is left to the parser.
size_t FindTooDeep(std::string_view text, int max_depth) {
  int depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') {
        ++at;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth) return at;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::string LineAndColumn(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  const size_t column =
      newline == std::string_view::npos ? before.size() : before.size() - newline - 1;
  return fmt::format("line {}, column {}", line, column + 1);
}

std::string JsonReason(const nlohmann::json::exception& exception) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..."
  std::string_view reason = exception.what();
  if (const size_t end = reason.find("] "); end != std::string_view::npos) {
    reason.remove_prefix(end + 2);
  }
  if (reason.starts_with("parse error")) {
    if (const size_t end = reason.find(": "); end != std::string_view::npos) {
      reason.remove_prefix(end + 2);
    }
  }
  return Printable(reason, 160);
}

Result<nlohmann::json> ParseJson(std::string_view text, std::string_view what, int max_depth) {
  if (const size_t at = FindTooDeep(text, max_depth); at != std::string_view::npos) {
    return MakeError(ErrorCode::kDataLoss, "{}: expected JSON of at most {} levels, more at {}",
                     Printable(what, kMaxWhatBytes), max_depth, LineAndColumn(text, at));
  }
  // The parser takes a NUL for the text's end, whatever follows it.
  if (const size_t at = text.find('\0'); at != std::string_view::npos) {
    return MakeError(ErrorCode::kDataLoss, "{}: expected valid JSON, at {} came: a NUL",
                     Printable(what, kMaxWhatBytes), LineAndColumn(text, at));
  }
  try {
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& error) {
    const size_t at = error.byte > 0 ? error.byte - 1 : 0;
    return MakeError(ErrorCode::kDataLoss, "{}: expected valid JSON, at {} came: {}",
                     Printable(what, kMaxWhatBytes), LineAndColumn(text, std::min(at, text.size())),
                     JsonReason(error));
  } catch (const nlohmann::json::exception& error) {
    return MakeError(ErrorCode::kDataLoss, "{}: expected valid JSON, came: {}",
                     Printable(what, kMaxWhatBytes), JsonReason(error));
  }
}

}  // namespace kvasir::files
