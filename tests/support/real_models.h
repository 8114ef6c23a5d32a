// The two real GGUF files, where this machine has them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace kvasir::test {

/// `file` in $KVASIR_MODEL_CACHE, or in .cache/models of the source tree; empty where it is not.
[[nodiscard]] inline std::filesystem::path RealModelPath(const std::string& file) {
  const char* cache = std::getenv("KVASIR_MODEL_CACHE");
  const std::filesystem::path folder =
      cache != nullptr ? std::filesystem::path(cache)
                       : std::filesystem::path(KVASIR_SOURCE_DIR) / ".cache" / "models";
  std::filesystem::path path = folder / file;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

}  // namespace kvasir::test

/// Declares `variable` as the path of a real model, or skips the test with a word (fails it in CI).
#define KVASIR_REAL_MODEL_OR_SKIP(variable, file)                             \
  const std::filesystem::path variable = ::kvasir::test::RealModelPath(file); \
  if (variable.empty()) {                                                     \
    if (std::getenv("CI") != nullptr) FAIL() << "model missing: " << (file);  \
    GTEST_SKIP() << "model missing: " << (file) << " (./test downloads it)";  \
  }                                                                           \
  static_assert(true)
