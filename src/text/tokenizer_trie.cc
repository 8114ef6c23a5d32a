#include "text/tokenizer_trie.h"

#include <algorithm>

namespace kvasir::text {
namespace {

constexpr size_t kEdgesMin = 64;

}  // namespace

ByteTrie::ByteTrie() : edges_(kEdgesMin), values_(1, -1) {
  std::fill(std::begin(root_), std::end(root_), kNoNode);
}

bool ByteTrie::Add(std::string_view key, int32_t value) {
  if (values_.size() + key.size() >= kNodesMax) return false;
  Node node = kRoot;
  for (const char c : key) {
    const auto byte = static_cast<uint8_t>(c);
    Node child = Child(node, byte);
    if (child == kNoNode) {
      if (edges_.size() < values_.size() * 2) Grow();
      child = NewNode();
      if (node == kRoot) {
        root_[byte] = child;
      } else {
        const uint32_t edge = static_cast<uint32_t>(node) << 8 | byte;
        const size_t mask = edges_.size() - 1;
        size_t at = Hash(edge) & mask;
        while (edges_[at].key != kNoKey) at = (at + 1) & mask;
        edges_[at] = {edge, child};
      }
    }
    node = child;
  }
  int32_t& slot = values_[static_cast<size_t>(node)];
  if (slot < 0) slot = value;
  return true;
}

ByteTrie::Node ByteTrie::NewNode() {
  values_.push_back(-1);
  return static_cast<Node>(values_.size() - 1);
}

void ByteTrie::Grow() {
  std::vector<Edge> old(edges_.size() * 2);
  old.swap(edges_);
  const size_t mask = edges_.size() - 1;
  for (const Edge& edge : old) {
    if (edge.key == kNoKey) continue;
    size_t at = Hash(edge.key) & mask;
    while (edges_[at].key != kNoKey) at = (at + 1) & mask;
    edges_[at] = edge;
  }
}

}  // namespace kvasir::text
