#include "app/model_path.h"

#include <cstdlib>
#include <system_error>
#include <vector>

namespace kvasir::app {
namespace {

constexpr const char* kDefaultFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

}  // namespace

Result<std::filesystem::path> ResolveModel(const std::string& model) {
  namespace fs = std::filesystem;
  if (model != "default") return fs::path(model);
  std::vector<fs::path> folders;
  if (const char* cache = std::getenv("KVASIR_MODEL_CACHE")) folders.emplace_back(cache);
  std::error_code ignored;
  const fs::path binary = fs::read_symlink("/proc/self/exe", ignored);
  // build/release/kvasir lies two folders below the tree's root.
  if (!ignored) {
    folders.push_back(binary.parent_path().parent_path().parent_path() / ".cache/models");
  }
  if (const char* home = std::getenv("HOME")) {
    folders.push_back(fs::path(home) / ".cache/kvasir/models");
  }
  std::string tried;
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / kDefaultFile, ignored)) return folder / kDefaultFile;
    tried += (tried.empty() ? "" : ", ") + folder.string();
  }
  return MakeError(ErrorCode::kNotFound,
                   "the default model {} was looked for in {} and is not there; ./run fetches it",
                   kDefaultFile, tried);
}

}  // namespace kvasir::app
