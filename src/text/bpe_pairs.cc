#include "text/bpe_pairs.h"

#include <bit>

namespace kvasir::text {

void MergeTable::Reserve(size_t merges_count) {
  const size_t slots_count = std::bit_ceil(merges_count + merges_count / 2 + 16);
  if (slots_count <= slots_.size()) return;
  std::vector<Slot> old(slots_count);
  old.swap(slots_);
  used_ = 0;
  for (const Slot& slot : old) {
    if (slot.left != kEmpty) Set(slot.left, slot.right, slot.merge);
  }
}

void MergeTable::Set(int32_t left, int32_t right, Merge merge) {
  if (slots_.size() * 2 < (used_ + 1) * 3) Reserve(used_ * 2 + 16);
  const size_t mask = slots_.size() - 1;
  size_t at = Hash(left, right) & mask;
  while (slots_[at].left != kEmpty && !(slots_[at].left == left && slots_[at].right == right)) {
    at = (at + 1) & mask;
  }
  if (slots_[at].left == kEmpty) ++used_;
  slots_[at] = {left, right, merge};
}

void CharIds::Set(uint32_t code_point, int32_t id) {
  int32_t& page = pages_[code_point >> 8];
  if (page < 0) {
    page = static_cast<int32_t>(ids_.size());
    ids_.resize(ids_.size() + 256, -1);
  }
  ids_[static_cast<size_t>(page) + (code_point & 0xFF)] = id;
}

}  // namespace kvasir::text
