// Memory for packed weights: huge pages where the machine gives them, touched only as it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kvasir::kernels::cpu {

/// Carves slices out of large anonymous mappings, so that small matrices share huge pages. A
/// mapping is returned to the system when its last slice is gone. For one thread at a time.
class Arena {
  class Mapping;

 public:
  /// Zeroed bytes, 64-byte aligned; freed with the last copy of the slice.
  class Slice {
   public:
    Slice() = default;
    [[nodiscard]] std::byte* data() const { return data_; }

   private:
    friend class Arena;
    std::shared_ptr<Mapping> mapping_;
    std::byte* data_ = nullptr;
  };

  /// Stops the process where the system has no memory left.
  [[nodiscard]] Slice Allocate(int64_t bytes);

 private:
  std::shared_ptr<Mapping> current_;
  int64_t used_ = 0;
};

}  // namespace kvasir::kernels::cpu
