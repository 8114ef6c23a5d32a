// Where test data lies: tests/data in the tree, and the shared oracles beside it where present.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace kvasir::test {

/// tests/data/<relative>.
[[nodiscard]] std::filesystem::path DataPath(const std::string& relative);

/// ../shared/data/<relative> (or $KVASIR_SHARED_DATA/<relative>); empty where it is not there.
[[nodiscard]] std::filesystem::path SharedPath(const std::string& relative);

/// The whole file. Unpacks `.xz`. Fails the test where it cannot be read.
[[nodiscard]] std::string ReadFile(const std::filesystem::path& path);

}  // namespace kvasir::test

/// Declares `variable` as the shared path, or skips the test with a word (fails it in CI).
#define KVASIR_SHARED_OR_SKIP(variable, relative)                                      \
  const std::filesystem::path variable = ::kvasir::test::SharedPath(relative);         \
  if (variable.empty()) {                                                              \
    if (std::getenv("CI") != nullptr) FAIL() << "shared data missing: " << (relative); \
    GTEST_SKIP() << "shared data missing: " << (relative);                             \
  }                                                                                    \
  static_assert(true)
