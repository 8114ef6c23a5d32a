// Finds nodes by hash.
//
// Open addressing with linear probing, at most half full. A slot keeps 32 bits of its node's hash,
// so a search that finds nothing reads one line of memory as a rule, and no node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvasir::cache {

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

class NodeTable {
 public:
  /// Takes memory for `nodes_expected` nodes at once; more make it grow.
  explicit NodeTable(size_t nodes_expected);

  void Clear();
  /// Takes the memory that the next Insert needs, if it needs any.
  void MakeRoom();
  /// Several nodes may have the same hash; a node must not be in the table yet.
  void Insert(uint64_t hash, NodeId node);
  /// The node must be in the table, with this hash.
  void Erase(uint64_t hash, NodeId node);

  /// The first node of this hash (of the part that is kept) for which `matches(node)`, or kNoNode.
  template <typename Matches>
  [[nodiscard]] NodeId Find(uint64_t hash, Matches matches) const {
    const auto tag = static_cast<uint32_t>(hash);
    for (size_t at = Home(tag); slots_[at].node != kNoNode; at = Next(at)) {
      if (slots_[at].tag == tag && matches(slots_[at].node)) return slots_[at].node;
    }
    return kNoNode;
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    NodeId node = kNoNode;
  };

  [[nodiscard]] size_t Home(uint32_t tag) const { return tag & (slots_.size() - 1); }
  [[nodiscard]] size_t Next(size_t at) const { return (at + 1) & (slots_.size() - 1); }

  std::vector<Slot> slots_;  ///< a power of two
  size_t used_count_ = 0;
};

}  // namespace kvasir::cache
