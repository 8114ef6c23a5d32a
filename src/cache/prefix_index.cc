#include "cache/prefix_index.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/rng.h"

namespace kvasir::cache {

uint64_t HashBlock(uint64_t parent_hash, std::span<const TokenId> tokens) {
  uint64_t hash = parent_hash;
  size_t i = 0;
  for (; i + 1 < tokens.size(); i += 2) {
    const uint64_t low = static_cast<uint32_t>(tokens[i]);
    const uint64_t high = static_cast<uint32_t>(tokens[i + 1]);
    hash = Mix64(hash ^ (high << 32 | low));
  }
  if (i < tokens.size()) hash = Mix64(hash ^ static_cast<uint32_t>(tokens[i]));
  return hash;
}

PrefixIndex::PrefixIndex(int64_t block_tokens, int64_t groups_count, int64_t nodes_expected,
                         uint64_t seed, BlockHash hash)
    : block_tokens_(block_tokens),
      groups_count_(groups_count),
      seed_(seed),
      hash_(hash),
      table_(static_cast<size_t>(nodes_expected) + 16) {
  const auto nodes = static_cast<size_t>(nodes_expected) + 16;
  // Address space, not memory: it is touched as nodes are made, and nothing moves in mid-service.
  nodes_.reserve(nodes);
  tokens_.reserve(nodes * static_cast<size_t>(block_tokens));
  blocks_.reserve(nodes * static_cast<size_t>(groups_count));
}

void PrefixIndex::Reset() {
  nodes_.clear();
  tokens_.clear();
  blocks_.clear();
  unused_ = kNoNode;
  nodes_count_ = 0;
  table_.Clear();
  roots_.clear();
  salts_.clear();
}

NodeId PrefixIndex::PinRoot(const std::string& salt) {
  NodeId root = kNoNode;
  if (const auto found = roots_.find(salt); found != roots_.end()) {
    root = found->second;
  } else {
    root = NewNode();
    nodes_[Index(root)].hash = Mix64(seed_ ^ std::hash<std::string>{}(salt));
    roots_.emplace(salt, root);
    salts_.emplace(root, salt);
  }
  Pin(root);
  return root;
}

std::span<const TokenId> PrefixIndex::Tokens(NodeId node) const {
  return {tokens_.data() + node * block_tokens_, static_cast<size_t>(block_tokens_)};
}

NodeId PrefixIndex::FindHashed(NodeId parent, std::span<const TokenId> tokens,
                               uint64_t hash) const {
  return table_.Find(hash, [&](NodeId node) {
    const Node& candidate = nodes_[Index(node)];
    return candidate.hash == hash && candidate.parent == parent &&
           std::ranges::equal(Tokens(node), tokens);
  });
}

NodeId PrefixIndex::Find(NodeId parent, std::span<const TokenId> tokens) const {
  return FindHashed(parent, tokens, hash_(nodes_[Index(parent)].hash, tokens));
}

NodeId PrefixIndex::FindOrAdd(NodeId parent, std::span<const TokenId> tokens) {
  KVASIR_CHECK(static_cast<int64_t>(tokens.size()) == block_tokens_);
  const uint64_t hash = hash_(nodes_[Index(parent)].hash, tokens);
  if (const NodeId found = FindHashed(parent, tokens, hash); found != kNoNode) return found;
  table_.MakeRoom();
  const NodeId node = NewNode();
  nodes_[Index(node)].parent = parent;
  nodes_[Index(node)].hash = hash;
  table_.Insert(hash, node);
  std::ranges::copy(tokens, tokens_.begin() + node * block_tokens_);
  ++nodes_[Index(parent)].children_count;
  return node;
}

void PrefixIndex::Pin(NodeId node) { ++nodes_[Index(node)].pins_count; }

void PrefixIndex::Unpin(NodeId node) {
  KVASIR_CHECK(nodes_[Index(node)].pins_count > 0);
  --nodes_[Index(node)].pins_count;
  RemoveUnneeded(node);
}

void PrefixIndex::SetBlock(NodeId node, int64_t group, BlockId block) {
  BlockId& held = blocks_[static_cast<size_t>(node * groups_count_ + group)];
  KVASIR_CHECK(held == kNoBlock && block != kNoBlock);
  held = block;
  ++nodes_[Index(node)].blocks_count;
}

void PrefixIndex::ClearBlock(NodeId node, int64_t group) {
  BlockId& held = blocks_[static_cast<size_t>(node * groups_count_ + group)];
  KVASIR_CHECK(held != kNoBlock);
  held = kNoBlock;
  --nodes_[Index(node)].blocks_count;
  RemoveUnneeded(node);
}

NodeId PrefixIndex::NewNode() {
  ++nodes_count_;
  if (unused_ != kNoNode) {
    const NodeId node = unused_;
    unused_ = nodes_[Index(node)].next;
    nodes_[Index(node)] = Node{};
    return node;
  }
  const auto node = static_cast<NodeId>(nodes_.size());
  nodes_.emplace_back();
  tokens_.resize(tokens_.size() + static_cast<size_t>(block_tokens_));
  blocks_.resize(blocks_.size() + static_cast<size_t>(groups_count_), kNoBlock);
  return node;
}

void PrefixIndex::RemoveUnneeded(NodeId node) {
  while (node != kNoNode) {
    Node& gone = nodes_[Index(node)];
    if (gone.children_count > 0 || gone.pins_count > 0 || gone.blocks_count > 0) return;
    const NodeId parent = gone.parent;
    if (parent == kNoNode) {
      const auto salt = salts_.find(node);
      roots_.erase(salt->second);
      salts_.erase(salt);
    } else {
      table_.Erase(gone.hash, node);
      --nodes_[Index(parent)].children_count;
    }
    gone.next = unused_;
    unused_ = node;
    --nodes_count_;
    node = parent;
  }
}

}  // namespace kvasir::cache
