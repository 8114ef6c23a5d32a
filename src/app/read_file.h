#pragma once

#include <string>

#include "base/result.h"

namespace kvasir::app {

/// All bytes of `path`, or of standard input for "-".
[[nodiscard]] Result<std::string> ReadWholeFile(const std::string& path);

/// Makes `path` hold `bytes` and nothing else.
[[nodiscard]] Status WriteWholeFile(const std::string& path, const std::string& bytes);

/// Whether `path` can be written, asked before long work whose result it shall hold. What it holds
/// now stays, and no file is left behind.
[[nodiscard]] Status CheckWritable(const std::string& path);

/// Of an error about a flag: kExitModel where the file that it names cannot be used, else
/// kExitUsage.
[[nodiscard]] int ExitCodeOf(const Error& error);

/// Names --hardware where its value is no machine; a file's errors name the file.
[[nodiscard]] Error OfHardware(Error error);

/// Prints `kvasir: message` as one line to stderr and returns `exit_code`.
int Fail(const Error& error, int exit_code);

}  // namespace kvasir::app
