// Log lines to stderr: `time level message`. Never the content of a request.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace kvasir {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Sets what is printed from now on. Any thread.
void SetLogLevel(LogLevel level);
[[nodiscard]] bool LogEnabled(LogLevel level);
/// Writes one line; `message` is already formatted. Any thread.
void LogLine(LogLevel level, std::string_view message);
/// Writes `json` as a line of its own, without prefix (the access log). Any thread.
void LogJson(std::string_view json);

template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(LogLevel::kDebug)) {
    LogLine(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(LogLevel::kInfo)) {
    LogLine(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(LogLevel::kWarning)) {
    LogLine(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(LogLevel::kError)) {
    LogLine(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
  }
}

}  // namespace kvasir
