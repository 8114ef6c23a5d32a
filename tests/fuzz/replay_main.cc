// Runs stored inputs through a fuzz target without libFuzzer: `fuzz_replay TARGET FILE_OR_FOLDER…`.
// `fuzz_replay --list` prints the targets.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/log.h"
#include "fuzz/target.h"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> FilesOf(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  const auto& targets = kvasir::fuzz::Targets();
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const auto& [name, target] : targets) std::printf("%s\n", name.c_str());
    return 0;
  }
  const auto target = argc < 3 ? targets.end() : targets.find(argv[1]);
  if (target == targets.end()) {
    std::fprintf(stderr, "expected a target (see --list) and files or folders\n");
    return 2;
  }
  kvasir::SetLogLevel(kvasir::LogLevel::kOff);
  int replayed = 0;
  for (int i = 2; i < argc; ++i) {
    for (const fs::path& path : FilesOf(argv[i])) {
      // Said before it is run: a crash then names its input.
      std::printf("%s\n", path.filename().c_str());
      std::fflush(stdout);
      std::ifstream file(path, std::ios::binary);
      const std::string input{std::istreambuf_iterator<char>(file),
                              std::istreambuf_iterator<char>()};
      if (!file.good() && !file.eof()) {
        std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
        return 2;
      }
      target->second(input);
      ++replayed;
    }
  }
  if (replayed == 0) {
    std::fprintf(stderr, "expected at least one input, found none\n");
    return 2;
  }
  std::printf("%d inputs\n", replayed);
  // The servers of some targets still run: what they use must not be taken from under them.
  std::fflush(nullptr);
  std::_Exit(0);
}
