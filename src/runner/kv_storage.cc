#include "runner/kv_storage.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace kvasir::runner {

Result<std::unique_ptr<KvStorage>> KvStorage::Create(int64_t blocks_count, int64_t block_bytes) {
  KVASIR_CHECK(blocks_count > 0 && block_bytes > 0, "{} blocks of {} bytes", blocks_count,
               block_bytes);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(blocks_count, block_bytes, &bytes)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "a KV cache of {} blocks of {} bytes is too large", blocks_count, block_bytes);
  }
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return MakeError(ErrorCode::kResourceExhausted,
                     "cannot reserve {} bytes of address space for the KV cache: {}", bytes,
                     std::strerror(errno));
  }
  // Only a hint: kernels without huge pages refuse it.
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return std::unique_ptr<KvStorage>(
      new KvStorage(static_cast<std::byte*>(memory), blocks_count, block_bytes));
}

KvStorage::~KvStorage() { munmap(base_, static_cast<size_t>(blocks_count_ * block_bytes_)); }

void KvStorage::CopyBlock(BlockId from, BlockId to) {
  std::memcpy(Block(to), Block(from), static_cast<size_t>(block_bytes_));
}

std::byte* KvStorage::Block(BlockId block) const {
  KVASIR_CHECK(block >= 0 && block < blocks_count_, "block {} of {}", block, blocks_count_);
  return base_ + block * block_bytes_;
}

}  // namespace kvasir::runner
