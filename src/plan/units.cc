#include "plan/units.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/strings.h"
#include "files/printable.h"

namespace kvasir::plan {
namespace {

constexpr size_t kShownMax = 40;

struct NumberAndUnit {
  double number = 0;
  std::string_view unit;
  bool ok = false;
};

NumberAndUnit Split(std::string_view text) {
  NumberAndUnit out;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), out.number, std::chars_format::fixed);
  out.ok = error == std::errc() && std::isfinite(out.number);
  out.unit = text.substr(static_cast<size_t>(end - text.data()));
  return out;
}

}  // namespace

Result<int64_t> ParseTokens(std::string_view text, std::string_view flag) {
  constexpr double kMost = 1e9;
  const NumberAndUnit split = Split(text);
  double factor = 0;
  if (split.unit.empty()) factor = 1;
  if (split.unit == "k" || split.unit == "K") factor = 1024;
  if (split.unit == "m" || split.unit == "M") factor = 1024 * 1024;
  const double tokens = split.number * factor;
  if (!split.ok || factor == 0 || !(tokens >= 1 && tokens <= kMost)) {
    return MakeParamError(ErrorCode::kInvalidArgument, std::string(flag),
                          "--{}: expected 1 to 1,000,000,000 tokens, such as 8192, 8k or 1m, "
                          "got '{}'",
                          flag, files::Printable(text, kShownMax));
  }
  return static_cast<int64_t>(tokens);
}

Result<double> ParseDuration(std::string_view text, std::string_view flag, bool zero_allowed) {
  const double least = zero_allowed ? 0 : 1e-9;
  constexpr double kMost = 1e8;
  const NumberAndUnit split = Split(text);
  double factor = 0;
  if (split.unit == "s") factor = 1;
  if (split.unit == "ms") factor = 1e-3;
  if (split.unit == "us") factor = 1e-6;
  const double seconds = split.number * factor;
  if (!split.ok || factor == 0 || !(seconds >= least && seconds <= kMost)) {
    const char* const range =
        zero_allowed ? "from 0s to 100000000s" : "above 0, at most 100000000s";
    return MakeParamError(ErrorCode::kInvalidArgument, std::string(flag),
                          "--{}: expected a time {}, as 50ms or 2s, got '{}'", flag,
                          split.ok && split.unit.empty() ? "with its unit" : range,
                          files::Printable(text, kShownMax));
  }
  return seconds;
}

std::string BytesText(double bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  const double sign = bytes < 0 ? -1.0 : 1.0;
  double value = std::abs(bytes);
  size_t unit = 0;
  // 999.95 would be shown as 1000.0.
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", sign * value)
                   : fmt::format("{:.{}f} {}", sign * value, value < 9.995 ? 2 : 1, kUnits[unit]);
}

std::string CountedText(int64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", CountText(count), thing, count == 1 ? "" : "s");
}

std::string ParametersText(int64_t count) {
  const auto value = static_cast<double>(count);
  if (value >= 999.5e6) return fmt::format("{:.3g} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.3g} M", value / 1e6);
  return CountText(count);
}

std::string SecondsText(double seconds) {
  if (seconds >= 1.0) return ShortText(seconds) + " s";
  if (seconds >= 1e-3) return ShortText(seconds * 1e3) + " ms";
  return ShortText(seconds * 1e6) + " us";
}

std::string ShortText(double value) {
  if (!std::isfinite(value)) return "unlimited";
  if (std::abs(value) >= 999.5) return CountText(static_cast<int64_t>(std::llround(value)));
  return fmt::format("{:.3g}", value);
}

std::string TokensText(int64_t tokens) {
  if (tokens >= 1024 && tokens % 1024 == 0) return CountText(tokens / 1024) + "k";
  return CountText(tokens);
}

std::string TokensWords(int64_t tokens) {
  return fmt::format("{} token{}", TokensText(tokens), tokens == 1 ? "" : "s");
}

}  // namespace kvasir::plan
