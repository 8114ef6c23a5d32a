#include "cache/node_table.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace kvasir::cache {

NodeTable::NodeTable(size_t nodes_expected) : slots_(std::bit_ceil(2 * nodes_expected + 2)) {}

void NodeTable::Clear() {
  std::ranges::fill(slots_, Slot{});
  used_count_ = 0;
}

void NodeTable::MakeRoom() {
  if (2 * (used_count_ + 1) <= slots_.size()) return;
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  used_count_ = 0;
  for (const Slot& slot : old) {
    if (slot.node != kNoNode) Insert(slot.tag, slot.node);
  }
}

void NodeTable::Insert(uint64_t hash, NodeId node) {
  MakeRoom();
  const auto tag = static_cast<uint32_t>(hash);
  size_t at = Home(tag);
  while (slots_[at].node != kNoNode) at = Next(at);
  slots_[at] = Slot{tag, node};
  ++used_count_;
}

void NodeTable::Erase(uint64_t hash, NodeId node) {
  size_t hole = Home(static_cast<uint32_t>(hash));
  while (slots_[hole].node != node) {
    KVASIR_CHECK(slots_[hole].node != kNoNode);
    hole = Next(hole);
  }
  // What was pushed past the hole by it moves back, so that no search ends too early.
  for (size_t at = Next(hole); slots_[at].node != kNoNode; at = Next(at)) {
    const size_t distance_home = (at - Home(slots_[at].tag)) & (slots_.size() - 1);
    const size_t distance_hole = (at - hole) & (slots_.size() - 1);
    if (distance_home < distance_hole) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = Slot{};
  --used_count_;
}

}  // namespace kvasir::cache
