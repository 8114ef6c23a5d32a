#include "kernels/cpu/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace kvasir::kernels::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kLine = 64;
// Address space, not memory: large enough that a mapping's ragged end is small beside it.
constexpr int64_t kMappingBytes = int64_t{64} << 20;

constexpr int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

class Arena::Mapping {
 public:
  explicit Mapping(int64_t bytes) : size(bytes), mapped_bytes_(bytes + kHugePage) {
    mapped_ = mmap(nullptr, static_cast<size_t>(mapped_bytes_), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    KVASIR_CHECK(mapped_ != MAP_FAILED, "mmap of {} bytes for weights: {}", mapped_bytes_,
                 std::strerror(errno));
    const auto address = reinterpret_cast<uintptr_t>(mapped_);
    const uintptr_t aligned = (address + kHugePage - 1) & ~static_cast<uintptr_t>(kHugePage - 1);
    data = static_cast<std::byte*>(mapped_) + (aligned - address);
    // Advice only: without huge pages the weights are as right, and slower to read.
    madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);
  }
  ~Mapping() { munmap(mapped_, static_cast<size_t>(mapped_bytes_)); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data = nullptr;
  int64_t size = 0;

 private:
  void* mapped_ = nullptr;
  int64_t mapped_bytes_ = 0;
};

Arena::Slice Arena::Allocate(int64_t bytes) {
  KVASIR_CHECK(bytes >= 0, "{} bytes", bytes);
  const int64_t wanted = RoundUp(bytes, kLine);
  if (current_ == nullptr || current_->size - used_ < wanted) {
    current_ = std::make_shared<Mapping>(std::max(kMappingBytes, RoundUp(wanted, kHugePage)));
    used_ = 0;
  }
  Slice slice;
  slice.mapping_ = current_;
  slice.data_ = current_->data + used_;
  used_ += wanted;
  return slice;
}

}  // namespace kvasir::kernels::cpu
