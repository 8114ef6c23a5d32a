#include "app/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/strings.h"

namespace kvasir::app {

Result<int64_t> ParseBytes(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  static constexpr std::array<std::pair<std::string_view, double>, 11> kUnits = {{
      {"", 1.0},
      {"B", 1.0},
      {"KB", 1e3},
      {"MB", 1e6},
      {"GB", 1e9},
      {"TB", 1e12},
      {"KiB", 1024.0},
      {"MiB", 1024.0 * 1024},
      {"GiB", 1024.0 * 1024 * 1024},
      {"TiB", 1024.0 * 1024 * 1024 * 1024},
      {"G", 1024.0 * 1024 * 1024},
  }};
  const auto* found = std::find_if(kUnits.begin(), kUnits.end(),
                                   [unit](const auto& known) { return known.first == unit; });
  const double bytes = found == kUnits.end() ? -1.0 : number * found->second;
  if (error != std::errc() || !(bytes >= 0.0) || bytes > 9e18) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "expected a number of bytes such as 2147483648, 512MiB or 2GiB, got '{}'",
                     text);
  }
  return static_cast<int64_t>(std::llround(bytes));
}

std::string FormatBytes(int64_t bytes) {
  static constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kNames.size()) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kNames[unit]);
}

std::string Nearest(std::string_view word, const std::vector<std::string>& words) {
  std::string best;
  size_t best_distance = std::min<size_t>(3, (word.size() - 1) / 2) + 1;
  for (const std::string& candidate : words) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace kvasir::app
