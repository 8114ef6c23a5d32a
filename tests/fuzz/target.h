// A fuzz target: a function that feeds any bytes to one parser of outside bytes. The same targets
// are run by libFuzzer (fuzzer_main.cc, scripts/fuzz) and, on stored inputs, by ./test
// (replay_main.cc).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::fuzz {

/// Returns whatever the bytes are; a broken promise stops the process.
using Target = void (*)(std::string_view input);

/// By name.
[[nodiscard]] std::map<std::string, Target, std::less<>>& Targets();

/// Fills the list of targets before main.
struct Registration {
  Registration(const char* name, Target target) { Targets().emplace(name, target); }
};

/// What every error from outside is: one short line of UTF-8 for people.
void ExpectOneLine(const Error& error);

/// Texts that go to a client or a terminal.
void ExpectUtf8(std::string_view text);

/// Cuts `input` at the first `separator`; `rest` is empty where there is none.
[[nodiscard]] std::string_view TakeUntil(char separator, std::string_view& rest);

/// A file that lives in memory alone, for parsers that open a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] std::string path() const;

 private:
  int descriptor_;
};

/// Takes small numbers from the front of an input; zeros behind its end.
class Numbers {
 public:
  explicit Numbers(std::string_view input) : rest_(input) {}
  [[nodiscard]] uint8_t Byte();
  [[nodiscard]] uint16_t Short() { return static_cast<uint16_t>(Byte() | Byte() << 8); }
  [[nodiscard]] uint32_t Word() { return Short() | static_cast<uint32_t>(Short()) << 16; }
  /// Any float but NaN.
  [[nodiscard]] float Float();
  [[nodiscard]] std::string_view Text(size_t bytes);
  [[nodiscard]] std::string_view rest() const { return rest_; }
  [[nodiscard]] bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace kvasir::fuzz

/// KVASIR_FUZZ_TARGET(name) { ... `input` ... }
#define KVASIR_FUZZ_TARGET(name)                                                      \
  static void Fuzz_##name(std::string_view input);                                    \
  static const ::kvasir::fuzz::Registration registration_##name(#name, &Fuzz_##name); \
  static void Fuzz_##name([[maybe_unused]] std::string_view input)
