#pragma once

#include <string>

#include "base/result.h"

namespace kvasir::app {

/// All bytes of `path`, or of standard input for "-".
[[nodiscard]] Result<std::string> ReadWholeFile(const std::string& path);

/// Makes `path` hold `bytes` and nothing else.
[[nodiscard]] Status WriteWholeFile(const std::string& path, const std::string& bytes);

/// Prints `kvasir: message` as one line to stderr and returns `exit_code`.
int Fail(const Error& error, int exit_code);

}  // namespace kvasir::app
