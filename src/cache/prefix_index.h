// Which prefixes of token ids have their KV in which blocks.
//
// A tree: a node stands for one full block of tokens after the prefix that its parent stands for,
// and tells for each cache group the block that holds those tokens' KV there (or kNoBlock). A root
// stands for a salt. The hash only finds candidates; a node is the wanted one if its parent *is*
// the wanted parent and its token ids are equal, so no collision can hand out somebody else's KV. A
// node lives as long as it holds a block, has a child, or is pinned, so a parent's identity never
// dangles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/node_table.h"
#include "contract/types.h"

namespace kvasir::cache {

/// Hash of a block's tokens, chained on the hash of its parent.
using BlockHash = uint64_t (*)(uint64_t parent_hash, std::span<const TokenId> tokens);

/// SplitMix64 over pairs of ids. Needs no cryptographic strength, because hits are confirmed.
[[nodiscard]] uint64_t HashBlock(uint64_t parent_hash, std::span<const TokenId> tokens);

class PrefixIndex {
 public:
  /// `seed` should be unknown to clients, so that nobody can make searches in the table long.
  PrefixIndex(int64_t block_tokens, int64_t groups_count, int64_t nodes_expected, uint64_t seed,
              BlockHash hash);
  /// Forgets everything, pins included. Takes no memory.
  void Reset();

  /// The root of `salt`, pinned once more.
  [[nodiscard]] NodeId PinRoot(const std::string& salt);
  /// The child of `parent` with exactly these block_tokens ids, or kNoNode.
  [[nodiscard]] NodeId Find(NodeId parent, std::span<const TokenId> tokens) const;
  /// As Find, adding the node where there is none. The caller must pin it or give it a block.
  [[nodiscard]] NodeId FindOrAdd(NodeId parent, std::span<const TokenId> tokens);

  /// While pinned, a node and its ancestors stay.
  void Pin(NodeId node);
  void Unpin(NodeId node);

  [[nodiscard]] BlockId block(NodeId node, int64_t group) const {
    return blocks_[static_cast<size_t>(node * groups_count_ + group)];
  }
  /// Declares that `block` holds the node's tokens in `group`; none must be there yet.
  void SetBlock(NodeId node, int64_t group, BlockId block);
  /// Forgets the block; the node goes too once nothing needs it.
  void ClearBlock(NodeId node, int64_t group);

  [[nodiscard]] NodeId parent(NodeId node) const { return nodes_[Index(node)].parent; }
  [[nodiscard]] int64_t nodes_count() const { return nodes_count_; }

 private:
  struct Node {
    NodeId parent = kNoNode;
    NodeId next = kNoNode;  ///< in the list of unused nodes
    uint64_t hash = 0;
    int32_t children_count = 0;
    int32_t pins_count = 0;
    int32_t blocks_count = 0;
  };

  static size_t Index(NodeId node) { return static_cast<size_t>(node); }
  [[nodiscard]] std::span<const TokenId> Tokens(NodeId node) const;
  [[nodiscard]] NodeId FindHashed(NodeId parent, std::span<const TokenId> tokens,
                                  uint64_t hash) const;
  NodeId NewNode();
  void RemoveUnneeded(NodeId node);

  int64_t block_tokens_;
  int64_t groups_count_;
  uint64_t seed_;
  BlockHash hash_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;  ///< block_tokens a node
  std::vector<BlockId> blocks_;  ///< groups_count a node
  NodeId unused_ = kNoNode;
  int64_t nodes_count_ = 0;
  NodeTable table_;  ///< all nodes but roots
  std::unordered_map<std::string, NodeId> roots_;
  std::unordered_map<NodeId, std::string> salts_;
};

}  // namespace kvasir::cache
