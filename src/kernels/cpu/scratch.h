// Memory that an op needs for the length of a call and keeps for the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace kvasir::kernels::cpu {

/// Grows to the largest size ever asked for; contents do not outlive the next call of Get.
class Scratch {
 public:
  /// At least `count` values of T, 64-byte aligned, not initialized.
  template <typename T>
  [[nodiscard]] T* Get(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    if (bytes > bytes_) {
      bytes_ = bytes + bytes / 2;
      memory_.reset();
      memory_.reset(static_cast<std::byte*>(::operator new(bytes_, kAlignment)));
    }
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t bytes_ = 0;
};

}  // namespace kvasir::kernels::cpu
