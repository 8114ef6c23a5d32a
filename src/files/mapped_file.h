// A whole file mapped for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::files {

/// Owns the mapping; moving keeps its address. Read-only, any thread. The file must not shrink
/// while it is mapped: the kernel answers a read beyond its end with SIGBUS.
class MappedFile {
 public:
  /// Refuses what is not a regular file. An empty file maps to no bytes.
  [[nodiscard]] static Result<MappedFile> Open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(data_), size_};
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Takes the pages of [data, data + bytes) out of this process's resident set. They stay valid:
  /// a later read faults them in again from the page cache or the disk.
  void Release(const std::byte* data, int64_t bytes) const;

 private:
  MappedFile() = default;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// The whole of a text file of at most `max_bytes`.
[[nodiscard]] Result<std::string> ReadTextFile(const std::filesystem::path& path,
                                               int64_t max_bytes);

}  // namespace kvasir::files
