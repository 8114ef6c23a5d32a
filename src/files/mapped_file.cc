#include "files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "files/printable.h"

namespace kvasir::files {
namespace {

Error OsError(const std::filesystem::path& path, std::string_view action) {
  const int number = errno;
  const ErrorCode code = number == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return MakeError(code, "{}: cannot {}: {}", PrintablePath(path), action,
                   std::generic_category().message(number));
}

// Closes at the end of a scope; a mapping outlives its descriptor.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

}  // namespace

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  // Without O_NONBLOCK the open of a named pipe would wait for its writer.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) return OsError(path, "open");
  struct stat status {};
  if (fstat(file.number, &status) != 0) return OsError(path, "stat");
  if (!S_ISREG(status.st_mode)) {
    return MakeError(ErrorCode::kInvalidArgument, "{}: expected a regular file, found {}",
                     PrintablePath(path), S_ISDIR(status.st_mode) ? "a folder" : "a special file");
  }
  MappedFile mapped;
  mapped.path_ = path;
  if (status.st_size > 0) {
    const auto size = static_cast<size_t>(status.st_size);
    void* address = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number, 0);
    if (address == MAP_FAILED) return OsError(path, "map");
    mapped.data_ = static_cast<const std::byte*>(address);
    mapped.size_ = size;
  }
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::Release(const std::byte* data, int64_t bytes) const {
  if (bytes == 0) return;
  KVASIR_CHECK(data >= data_ && bytes > 0 && bytes <= static_cast<int64_t>(size_) - (data - data_),
               "release outside {}", path_.native());
  // Outward to whole pages: a neighbour on the first or last page is read in again if need be. The
  // page cache keeps its copy, so that the next start of the server is fast.
  const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  const int64_t begin = (data - data_) / page * page;  // the mapping begins on a page
  const int64_t end = (data - data_) + bytes;
  madvise(const_cast<std::byte*>(data_) + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

Result<std::string> ReadTextFile(const std::filesystem::path& path, int64_t max_bytes) {
  KVASIR_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const auto size = static_cast<int64_t>(file.text().size());
  if (size > max_bytes) {
    return MakeError(ErrorCode::kDataLoss, "{}: expected at most {} bytes, found {}",
                     PrintablePath(path), max_bytes, size);
  }
  return std::string(file.text());
}

}  // namespace kvasir::files
