// The bytes of the KV cache: one reservation of address space for all blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "contract/types.h"

namespace kvasir::runner {

/// The system gives a page only when it is first written, so the process holds about as much memory
/// as blocks were ever used, not as many as there are. Huge pages are asked for: all layers of a
/// block lie together, so few are taken in vain, and a new prompt waits for one page where it would
/// for 512 (a tenth of a prefill was measured). Engine thread only.
class KvStorage {
 public:
  static Result<std::unique_ptr<KvStorage>> Create(int64_t blocks_count, int64_t block_bytes);
  ~KvStorage();
  KvStorage(const KvStorage&) = delete;
  KvStorage& operator=(const KvStorage&) = delete;

  /// Block 0; block b begins b * block_bytes() later. On a page's border.
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] int64_t blocks_count() const { return blocks_count_; }
  [[nodiscard]] int64_t block_bytes() const { return block_bytes_; }

  void CopyBlock(BlockId from, BlockId to);

 private:
  KvStorage(std::byte* base, int64_t blocks_count, int64_t block_bytes)
      : base_(base), blocks_count_(blocks_count), block_bytes_(block_bytes) {}
  [[nodiscard]] std::byte* Block(BlockId block) const;

  std::byte* const base_;
  const int64_t blocks_count_;
  const int64_t block_bytes_;
};

}  // namespace kvasir::runner
