#include "cache/block_pool.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace kvasir::cache {

BlockPool::BlockPool(int64_t blocks_count) : head_(static_cast<BlockId>(blocks_count)) {
  KVASIR_CHECK(blocks_count > 0 && blocks_count < std::numeric_limits<BlockId>::max(),
               "a pool of {} blocks", blocks_count);
  links_.resize(static_cast<size_t>(blocks_count) + 1);
  free_.reserve(static_cast<size_t>(blocks_count));
  Reset();
}

void BlockPool::Reset() {
  std::ranges::fill(links_, Link{});
  links_[Index(head_)].older = head_;
  links_[Index(head_)].newer = head_;
  free_.clear();
  for (BlockId block = head_ - 1; block >= 0; --block) free_.push_back(block);
  cached_count_ = 0;
}

BlockId BlockPool::TakeFree() {
  if (free_.empty()) return kNoBlock;
  const BlockId block = free_.back();
  free_.pop_back();
  links_[Index(block)].references = 1;
  return block;
}

BlockId BlockPool::TakeOldestCached() {
  if (cached_count_ == 0) return kNoBlock;
  const BlockId block = links_[Index(head_)].newer;
  Unlink(block);
  links_[Index(block)].references = 1;
  return block;
}

void BlockPool::AddReference(BlockId block) {
  Link& link = links_[Index(block)];
  if (link.references == 0) {
    KVASIR_CHECK(link.newer != kNoBlock, "block {} is free and cannot be shared", block);
    Unlink(block);
  }
  ++link.references;
}

void BlockPool::DropReference(BlockId block, bool keep) {
  Link& link = links_[Index(block)];
  KVASIR_CHECK(link.references > 0, "block {} has no reference to drop", block);
  if (--link.references > 0) return;
  if (!keep) {
    free_.push_back(block);
    return;
  }
  Link& head = links_[Index(head_)];
  link.older = head.older;
  link.newer = head_;
  links_[Index(head.older)].newer = block;
  head.older = block;
  ++cached_count_;
}

void BlockPool::Unlink(BlockId block) {
  Link& link = links_[Index(block)];
  links_[Index(link.older)].newer = link.newer;
  links_[Index(link.newer)].older = link.older;
  link.older = kNoBlock;
  link.newer = kNoBlock;
  --cached_count_;
}

std::vector<BlockId> BlockPool::CachedBlocks() const {
  std::vector<BlockId> blocks;
  for (BlockId block = links_[Index(head_)].newer; block != head_;
       block = links_[Index(block)].newer) {
    blocks.push_back(block);
  }
  return blocks;
}

}  // namespace kvasir::cache
