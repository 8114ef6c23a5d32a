// Azure's and BurstGPT's traces: rows of numbers under a line of names.
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/simulate/trace_rows.h"

namespace kvasir::plan {
namespace {

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    text = text.substr(1, text.size() - 2);
  }
  return text;
}

// Fields between commas; a comma inside of quotes separates nothing.
std::vector<std::string_view> Split(std::string_view line) {
  std::vector<std::string_view> fields;
  size_t begin = 0;
  bool quoted = false;
  for (size_t at = 0; at <= line.size(); ++at) {
    if (at < line.size() && line[at] == '"') quoted = !quoted;
    if (at < line.size() && (line[at] != ',' || quoted)) continue;
    fields.push_back(Trimmed(line.substr(begin, at - begin)));
    begin = at + 1;
  }
  return fields;
}

bool EqualNames(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return lower(x) == lower(y);
  });
}

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<double> ParseSeconds(std::string_view text) {
  const auto value = ParseNumber(text);
  return value && std::abs(*value) <= kTraceSecondsMax ? value : std::nullopt;
}

// "123" and what pandas makes of it, "123.0".
std::optional<int64_t> ParseCount(std::string_view text) {
  const auto value = ParseNumber(text);
  if (!value || *value < 0 || *value > static_cast<double>(kTraceTokensMax) ||
      std::floor(*value) != *value) {
    return std::nullopt;
  }
  return static_cast<int64_t>(*value);
}

// Two digits (or `digits`) as a number, from `text`'s front.
std::optional<int> TakeDigits(std::string_view& text, size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int value = 0;
  for (size_t i = 0; i < digits; ++i) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return value;
}

bool TakeChar(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

// "2023-11-16 18:17:03.9799600", with a T in between and a zone (+00:00, Z) behind where there is
// one: seconds since 1970.
std::optional<double> ParseDateTime(std::string_view text) {
  const auto year = TakeDigits(text, 4);
  if (!year || !TakeChar(text, "-")) return std::nullopt;
  const auto month = TakeDigits(text, 2);
  if (!month || !TakeChar(text, "-")) return std::nullopt;
  const auto day = TakeDigits(text, 2);
  if (!day || !TakeChar(text, " T")) return std::nullopt;
  const auto hour = TakeDigits(text, 2);
  if (!hour || !TakeChar(text, ":")) return std::nullopt;
  const auto minute = TakeDigits(text, 2);
  if (!minute || !TakeChar(text, ":")) return std::nullopt;
  const auto second = TakeDigits(text, 2);
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!second || !date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  double fraction = 0;
  if (TakeChar(text, ".")) {
    double unit = 0.1;
    while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
      fraction += unit * (text.front() - '0');
      unit /= 10;
      text.remove_prefix(1);
    }
  }
  int zone_minutes = 0;
  if (!TakeChar(text, "Z") && !text.empty()) {
    const int sign = text.front() == '-' ? -1 : 1;
    if (!TakeChar(text, "+-")) return std::nullopt;
    const auto zone_hour = TakeDigits(text, 2);
    TakeChar(text, ":");
    const auto zone_minute = zone_hour ? TakeDigits(text, 2) : std::nullopt;
    if (!zone_minute) return std::nullopt;
    zone_minutes = sign * (*zone_hour * 60 + *zone_minute);
  }
  if (!text.empty()) return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  const int64_t seconds =
      ((days * 24 + *hour) * 60 + *minute - zone_minutes) * 60 + static_cast<int64_t>(*second);
  return static_cast<double>(seconds) + fraction;
}

// What the two kinds differ in.
struct CsvKind {
  std::string_view time;
  std::string_view prompt;
  std::string_view output;
  std::optional<double> (*parse_time)(std::string_view);
  std::string_view time_expected;
  bool zero_output_failed = false;
};

std::optional<size_t> FindColumn(const std::vector<std::string_view>& names,
                                 std::string_view name) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (EqualNames(names[i], name)) return i;
  }
  return std::nullopt;
}

Status ReadCsv(std::string_view header, const CsvKind& kind, TraceRows& rows) {
  const std::vector<std::string_view> names = Split(header);
  std::vector<size_t> columns;
  for (const std::string_view wanted : {kind.time, kind.prompt, kind.output}) {
    const auto column = FindColumn(names, wanted);
    if (!column) {
      return MakeError(ErrorCode::kDataLoss, "{}, line 1: expected a column '{}', got {}",
                       rows.name(), wanted, Quoted(header));
    }
    columns.push_back(*column);
  }
  while (const auto line = rows.Next()) {
    rows.CountRow();
    const std::vector<std::string_view> fields = Split(*line);
    if (fields.size() != names.size()) {
      rows.Complain(fmt::format("expected {} fields, got {}: {}", names.size(), fields.size(),
                                Quoted(*line)));
      continue;
    }
    const auto time = kind.parse_time(fields[columns[0]]);
    if (!time) {
      rows.Complain(fmt::format("{}: expected {}, got {}", kind.time, kind.time_expected,
                                Quoted(fields[columns[0]])));
      continue;
    }
    const auto prompt = ParseCount(fields[columns[1]]);
    if (!prompt || *prompt < 1) {
      rows.Complain(fmt::format("{}: expected tokens, 1 to {}, got {}", kind.prompt,
                                kTraceTokensMax, Quoted(fields[columns[1]])));
      continue;
    }
    const auto output = ParseCount(fields[columns[2]]);
    if (!output || (*output < 1 && !kind.zero_output_failed)) {
      rows.Complain(fmt::format("{}: expected tokens, 1 to {}, got {}", kind.output,
                                kTraceTokensMax, Quoted(fields[columns[2]])));
      continue;
    }
    if (*output == 0) {
      rows.NoteFailed();
      continue;
    }
    TraceRequest request;
    request.arrival_s = *time;
    request.prompt_tokens = *prompt;
    request.output_tokens = *output;
    rows.Take(std::move(request));
  }
  return Status::Ok();
}

}  // namespace

Status ReadAzure(std::string_view header, TraceRows& rows) {
  return ReadCsv(header,
                 {.time = "TIMESTAMP",
                  .prompt = "ContextTokens",
                  .output = "GeneratedTokens",
                  .parse_time = ParseDateTime,
                  .time_expected = "a time such as 2023-11-16 18:17:03.979"},
                 rows);
}

Status ReadBurstGpt(std::string_view header, TraceRows& rows) {
  return ReadCsv(header,
                 {.time = "Timestamp",
                  .prompt = "Request tokens",
                  .output = "Response tokens",
                  .parse_time = ParseSeconds,
                  .time_expected = "seconds",
                  .zero_output_failed = true},
                 rows);
}

}  // namespace kvasir::plan
