// Who owns which KV block, as integers. A block is exactly one of
//   used    at least one block table refers to it
//   cached  nobody refers to it, but it still holds a prefix that a later request may want
//   free    it holds nothing
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/types.h"

namespace kvasir::cache {

/// Reference counts, the free list and the LRU order of cached blocks. All operations are O(1).
/// Knows nothing of what a block holds: whoever drops the last reference says whether to keep it.
class BlockPool {
 public:
  explicit BlockPool(int64_t blocks_count);
  /// All blocks free again, whatever happened to them. Takes no memory.
  void Reset();

  /// A free block with one reference, or kNoBlock where none is free (there may be cached ones).
  /// The block given back last comes first, so that a lightly used pool touches little memory.
  [[nodiscard]] BlockId TakeFree();
  /// The least recently used cached block, now with one reference, or kNoBlock. Its old content is
  /// void: the caller takes it out of the prefix index.
  [[nodiscard]] BlockId TakeOldestCached();

  /// One more reference to a used or cached block.
  void AddReference(BlockId block);
  /// One reference less. With the last one, the block becomes the most recently used cached block
  /// where `keep`, else free.
  void DropReference(BlockId block, bool keep);

  [[nodiscard]] int32_t references(BlockId block) const { return links_[Index(block)].references; }
  [[nodiscard]] int64_t blocks_count() const { return static_cast<int64_t>(links_.size()) - 1; }
  [[nodiscard]] int64_t free_count() const { return static_cast<int64_t>(free_.size()); }
  [[nodiscard]] int64_t cached_count() const { return cached_count_; }
  [[nodiscard]] int64_t used_count() const {
    return blocks_count() - free_count() - cached_count();
  }
  /// What can be taken now: free and cached.
  [[nodiscard]] int64_t available_count() const { return free_count() + cached_count(); }

  /// For checks: the free blocks, and the cached ones from the least to the most recently used.
  [[nodiscard]] const std::vector<BlockId>& free_blocks() const { return free_; }
  [[nodiscard]] std::vector<BlockId> CachedBlocks() const;

 private:
  struct Link {
    int32_t references = 0;
    BlockId older = kNoBlock;  ///< neighbours in the LRU ring while cached
    BlockId newer = kNoBlock;
  };

  static size_t Index(BlockId block) { return static_cast<size_t>(block); }
  void Unlink(BlockId block);

  std::vector<Link> links_;  ///< one a block, and the ring's head behind them
  BlockId head_;             ///< head_.newer is the oldest cached block, head_.older the newest
  std::vector<BlockId> free_;
  int64_t cached_count_ = 0;
};

}  // namespace kvasir::cache
