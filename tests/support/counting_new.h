// Replaces operator new and delete of a whole test program by ones that count
// (counted_allocations.h). Include in exactly one source file of an executable.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "support/counted_allocations.h"

namespace kvasir::test {

inline void* Counted(void* memory) {
  if (memory == nullptr) return nullptr;
  const auto bytes = static_cast<int64_t>(malloc_usable_size(memory));
  allocated_bytes += bytes;
  const int64_t live = live_bytes += bytes;
  int64_t peak = peak_bytes.load();
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return memory;
}

inline void CountedFree(void* memory) {
  if (memory != nullptr) live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

inline void* CountedNew(size_t bytes) {
  void* memory = Counted(std::malloc(std::max<size_t>(bytes, 1)));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

inline void* CountedNew(size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<size_t>(alignment);
  void* memory = Counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace kvasir::test

void* operator new(size_t bytes) { return kvasir::test::CountedNew(bytes); }
void* operator new[](size_t bytes) { return kvasir::test::CountedNew(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return kvasir::test::Counted(std::malloc(std::max<size_t>(bytes, 1)));
}
void* operator new[](size_t bytes, const std::nothrow_t& tag) noexcept {
  return operator new(bytes, tag);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return kvasir::test::CountedNew(bytes, alignment);
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return kvasir::test::CountedNew(bytes, alignment);
}
void operator delete(void* memory) noexcept { kvasir::test::CountedFree(memory); }
void operator delete[](void* memory) noexcept { kvasir::test::CountedFree(memory); }
void operator delete(void* memory, size_t) noexcept { kvasir::test::CountedFree(memory); }
void operator delete[](void* memory, size_t) noexcept { kvasir::test::CountedFree(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { kvasir::test::CountedFree(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept {
  kvasir::test::CountedFree(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  kvasir::test::CountedFree(memory);
}
void operator delete[](void* memory, size_t, std::align_val_t) noexcept {
  kvasir::test::CountedFree(memory);
}
