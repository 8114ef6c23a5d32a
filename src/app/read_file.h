#pragma once

#include <string>

#include "base/result.h"

namespace kvasir::app {

/// All bytes of `path`, or of standard input for "-".
[[nodiscard]] Result<std::string> ReadWholeFile(const std::string& path);

/// Prints `kvasir: message` as one line to stderr and returns `exit_code`.
int Fail(const Error& error, int exit_code);

}  // namespace kvasir::app
