// A trie over bytes, for longest matches and for every match at a place.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvasir::text {

/// Filled once, then read by any thread.
class ByteTrie {
 public:
  using Node = int32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNoNode = -1;
  /// Nodes that fit: the key of an edge is node << 8 | byte in 32 bits.
  static constexpr size_t kNodesMax = size_t{1} << 24;

  ByteTrie();
  /// `value` >= 0; a key that is there keeps its value. False where the trie is full.
  bool Add(std::string_view key, int32_t value);

  [[nodiscard]] Node Child(Node node, uint8_t byte) const {
    if (node == kRoot) return root_[byte];
    const uint32_t key = static_cast<uint32_t>(node) << 8 | byte;
    const size_t mask = edges_.size() - 1;
    for (size_t at = Hash(key) & mask;; at = (at + 1) & mask) {
      if (edges_[at].key == key) return edges_[at].child;
      if (edges_[at].key == kNoKey) return kNoNode;
    }
  }
  /// -1 where no key ends.
  [[nodiscard]] int32_t Value(Node node) const { return values_[static_cast<size_t>(node)]; }

 private:
  static constexpr uint32_t kNoKey = 0;  // no edge but one of the root, which has its own table
  struct Edge {
    uint32_t key = kNoKey;
    Node child = kNoNode;
  };

  [[nodiscard]] static size_t Hash(uint32_t key) {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15ull) >> 32);
  }
  Node NewNode();
  void Grow();

  Node root_[256];
  std::vector<Edge> edges_;
  std::vector<int32_t> values_;
};

}  // namespace kvasir::text
