// Broken promises inside the program: stop the process and say where and why.
// Bad input from outside is never a check; it is a Result (result.h).
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace kvasir {

/// Prints `file:line: check failed: condition: message` to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);

inline std::string CheckMessage() { return {}; }
template <typename... Args>
std::string CheckMessage(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}

}  // namespace kvasir

/// Stops the process unless `condition` holds. Further arguments are an fmt format and its values.
#define KVASIR_CHECK(condition, ...)                                                              \
  do {                                                                                            \
    if (!(condition)) [[unlikely]] {                                                              \
      ::kvasir::CheckFailed(__FILE__, __LINE__, #condition, ::kvasir::CheckMessage(__VA_ARGS__)); \
    }                                                                                             \
  } while (false)
