// libFuzzer's entry: one binary for all targets. `kvasir_fuzz --target=NAME [libFuzzer flags]`.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "fuzz/target.h"

namespace {
kvasir::fuzz::Target chosen = nullptr;
}  // namespace

// The names that libFuzzer looks for.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr char kFlag[] = "--target=";
  for (int i = 1; i < *argc; ++i) {
    if (std::strncmp((*argv)[i], kFlag, sizeof(kFlag) - 1) != 0) continue;
    const auto found = kvasir::fuzz::Targets().find((*argv)[i] + sizeof(kFlag) - 1);
    if (found != kvasir::fuzz::Targets().end()) chosen = found->second;
  }
  if (chosen == nullptr) {
    std::fprintf(stderr, "expected --target=NAME, one of:\n");
    for (const auto& [name, target] : kvasir::fuzz::Targets()) {
      std::fprintf(stderr, "  %s\n", name.c_str());
    }
    std::exit(2);
  }
  kvasir::SetLogLevel(kvasir::LogLevel::kOff);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen({reinterpret_cast<const char*>(data), size});
  return 0;
}
