#include "files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "files/json.h"
#include "files/mapped_file.h"
#include "files/printable.h"
#include "files/safetensors_header.h"
#include "files/tensor_table.h"

namespace kvasir::files {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLengthBytes = 8;
// The format's own limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
// 256 bytes a tensor for a million tensors.
constexpr int64_t kMaxIndexBytes = 256'000'000;

// The tensors of one mapped file, which becomes number `file_number`.
Result<std::vector<TableEntry>> ReadFileEntries(const MappedFile& file, size_t file_number) {
  const std::string what = PrintablePath(file.path());
  const auto size = static_cast<int64_t>(file.bytes().size());
  if (size < kLengthBytes) {
    return MakeError(ErrorCode::kDataLoss,
                     "{}: expected a safetensors file, which begins with 8 bytes of header length, "
                     "found {} bytes in all: cut short (incomplete download?)",
                     what, size);
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.bytes().data(), sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes) {
    return MakeError(
        ErrorCode::kDataLoss,
        "{}: expected a safetensors header of at most {} bytes, its length says {}: {}", what,
        kMaxHeaderBytes, header_bytes, "not a safetensors file?");
  }
  const int64_t left = size - kLengthBytes;
  if (static_cast<int64_t>(header_bytes) > left) {
    return MakeError(
        ErrorCode::kDataLoss,
        "{}: expected a safetensors header of {} bytes, only {} follow its length: cut "
        "short (incomplete download?)",
        what, header_bytes, left);
  }
  const std::string_view header = file.text().substr(kLengthBytes, header_bytes);
  KVASIR_ASSIGN_OR_RETURN(
      std::vector<HeaderTensor> tensors,
      ParseSafetensorsHeader(header, left - static_cast<int64_t>(header_bytes), what));
  const std::byte* data = file.bytes().data() + kLengthBytes + header_bytes;
  std::vector<TableEntry> entries;
  entries.reserve(tensors.size());
  for (HeaderTensor& tensor : tensors) {
    entries.push_back(
        {std::move(tensor.name),
         {tensor.dtype, std::move(tensor.shape), data + tensor.begin, tensor.end - tensor.begin},
         file_number});
  }
  return entries;
}

Result<std::unique_ptr<Weights>> OpenFile(const fs::path& path) {
  std::vector<MappedFile> files;
  KVASIR_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  KVASIR_ASSIGN_OR_RETURN(std::vector<TableEntry> entries, ReadFileEntries(file, 0));
  files.push_back(std::move(file));
  KVASIR_ASSIGN_OR_RETURN(std::unique_ptr<TensorTable> table,
                          TensorTable::Make(path, std::move(files), std::move(entries)));
  return std::unique_ptr<Weights>(std::move(table));
}

// The index's weight_map as shard file -> tensors it gives.
Result<std::map<std::string, std::set<std::string>>> ReadIndex(const fs::path& path) {
  const std::string what = PrintablePath(path);
  KVASIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxIndexBytes));
  KVASIR_ASSIGN_OR_RETURN(const nlohmann::json index, ParseJson(text, path.native()));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object()) {
    return MakeError(ErrorCode::kDataLoss,
                     "{}: expected an object 'weight_map' from tensor names to files", what);
  }
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      return MakeError(ErrorCode::kDataLoss, "{}: tensor '{}' expected the name of a file, came {}",
                       what, Printable(tensor), file.type_name());
    }
    const auto& name = file.get_ref<const std::string&>();
    // The index may come from anywhere: it must not reach outside its folder.
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      return MakeError(ErrorCode::kDataLoss,
                       "{}: tensor '{}' expected the plain name of a file beside the index, came "
                       "'{}'",
                       what, Printable(tensor), Printable(name));
    }
    shards[name].insert(tensor);
  }
  return shards;
}

Result<std::unique_ptr<Weights>> OpenIndex(const fs::path& path) {
  KVASIR_ASSIGN_OR_RETURN(const auto shards, ReadIndex(path));
  const fs::path folder = path.parent_path();
  std::vector<std::string> missing;
  for (const auto& [name, tensors] : shards) {
    std::error_code ignored;
    if (!fs::exists(folder / name, ignored)) missing.push_back(Printable(name, 60));
  }
  if (!missing.empty()) {
    const size_t shown = std::min<size_t>(missing.size(), 4);
    return MakeError(
        ErrorCode::kDataLoss, "{}: expected {} files, missing {}: {}{} (incomplete download?)",
        PrintablePath(path), shards.size(), missing.size(),
        fmt::join(missing.begin(), missing.begin() + static_cast<ptrdiff_t>(shown), ", "),
        shown < missing.size() ? ", ..." : "");
  }
  std::vector<MappedFile> files;
  std::vector<TableEntry> entries;
  for (const auto& [name, expected] : shards) {
    KVASIR_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(folder / name));
    KVASIR_ASSIGN_OR_RETURN(std::vector<TableEntry> found, ReadFileEntries(file, files.size()));
    std::set<std::string> absent = expected;
    for (TableEntry& entry : found) {
      // The index decides which file gives a tensor: a shard may hold stale copies of others'.
      if (!expected.contains(entry.name)) continue;
      absent.erase(entry.name);
      entries.push_back(std::move(entry));
    }
    if (!absent.empty()) {
      return MakeError(ErrorCode::kDataLoss,
                       "{}: expected tensor '{}' here by {}, found it not among {} tensors",
                       PrintablePath(file.path()), Printable(*absent.begin()),
                       PrintablePath(path.filename()), found.size());
    }
    files.push_back(std::move(file));
  }
  KVASIR_ASSIGN_OR_RETURN(std::unique_ptr<TensorTable> table,
                          TensorTable::Make(path, std::move(files), std::move(entries)));
  return std::unique_ptr<Weights>(std::move(table));
}

Result<std::unique_ptr<Weights>> OpenFolder(const fs::path& folder) {
  const fs::path single = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  std::error_code ignored;
  if (fs::exists(single, ignored)) {
    if (fs::exists(index, ignored)) {
      LogInfo("{}: both model.safetensors and an index of shards: reading model.safetensors",
              PrintablePath(folder));
    }
    return OpenFile(single);
  }
  if (fs::exists(index, ignored)) return OpenIndex(index);

  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") found.push_back(it->path());
  }
  if (error) {
    return MakeError(ErrorCode::kIo, "{}: cannot list: {}", PrintablePath(folder), error.message());
  }
  if (found.size() == 1) return OpenFile(found[0]);
  return MakeError(ErrorCode::kNotFound,
                   "{}: expected model.safetensors, model.safetensors.index.json or exactly one "
                   ".safetensors file, found {} .safetensors files and no index",
                   PrintablePath(folder), found.size());
}

}  // namespace

Result<std::unique_ptr<Weights>> OpenSafetensors(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return OpenFolder(path);
  if (path.extension() == ".json") return OpenIndex(path);
  return OpenFile(path);
}

}  // namespace kvasir::files
