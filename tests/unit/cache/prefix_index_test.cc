#include "cache/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace kvasir::cache {
namespace {

uint64_t ConstantHash(uint64_t, std::span<const TokenId>) { return 42; }

using Tokens = std::vector<TokenId>;

TEST(HashBlock, DependsOnParentOrderAndEveryToken) {
  const Tokens tokens = {1, 2, 3, 4, 5};
  const uint64_t hash = HashBlock(7, tokens);
  EXPECT_EQ(hash, HashBlock(7, tokens));
  EXPECT_NE(hash, HashBlock(8, tokens));
  for (size_t i = 0; i < tokens.size(); ++i) {
    Tokens other = tokens;
    ++other[i];
    EXPECT_NE(hash, HashBlock(7, other)) << i;
    if (i == 0) continue;
    other = tokens;
    std::swap(other[i], other[i - 1]);
    EXPECT_NE(hash, HashBlock(7, other)) << i;
  }
}

TEST(PrefixIndex, FindsOnlyTheSameTokensAfterTheSameParent) {
  for (const BlockHash hash : {&HashBlock, &ConstantHash}) {
    PrefixIndex index(2, 1, 8, 0, hash);
    const NodeId root = index.PinRoot("");
    const NodeId a = index.FindOrAdd(root, Tokens{1, 2});
    index.SetBlock(a, 0, 10);
    const NodeId b = index.FindOrAdd(root, Tokens{3, 4});
    index.SetBlock(b, 0, 11);
    const NodeId ac = index.FindOrAdd(a, Tokens{5, 6});
    index.SetBlock(ac, 0, 12);
    EXPECT_EQ(index.Find(root, Tokens{1, 2}), a);
    EXPECT_EQ(index.Find(root, Tokens{3, 4}), b);
    EXPECT_EQ(index.Find(a, Tokens{5, 6}), ac);
    EXPECT_EQ(index.Find(b, Tokens{5, 6}), kNoNode);     // another parent
    EXPECT_EQ(index.Find(root, Tokens{5, 6}), kNoNode);  // not a first block
    EXPECT_EQ(index.Find(root, Tokens{1, 3}), kNoNode);
    EXPECT_EQ(index.FindOrAdd(root, Tokens{1, 2}), a);
    EXPECT_EQ(index.block(ac, 0), 12);
  }
}

TEST(PrefixIndex, SaltsAreDifferentTrees) {
  PrefixIndex index(1, 1, 8, 0, &ConstantHash);
  const NodeId mine = index.PinRoot("mine");
  const NodeId yours = index.PinRoot("yours");
  EXPECT_NE(mine, yours);
  EXPECT_EQ(index.PinRoot("mine"), mine);
  index.Unpin(mine);
  const NodeId node = index.FindOrAdd(mine, Tokens{1});
  index.SetBlock(node, 0, 5);
  EXPECT_EQ(index.Find(yours, Tokens{1}), kNoNode);
}

TEST(PrefixIndex, NodesLiveAsLongAsAnythingNeedsThem) {
  PrefixIndex index(1, 2, 8, 0, &HashBlock);
  const NodeId root = index.PinRoot("");
  const NodeId a = index.FindOrAdd(root, Tokens{1});
  index.SetBlock(a, 0, 0);
  index.SetBlock(a, 1, 1);
  const NodeId b = index.FindOrAdd(a, Tokens{2});
  index.SetBlock(b, 1, 2);
  index.Pin(b);
  EXPECT_EQ(index.nodes_count(), 3);
  index.ClearBlock(a, 0);
  index.ClearBlock(a, 1);
  EXPECT_EQ(index.Find(root, Tokens{1}), a);  // it has a child
  index.ClearBlock(b, 1);
  EXPECT_EQ(index.Find(a, Tokens{2}), b);  // it is pinned
  index.Unpin(b);
  EXPECT_EQ(index.Find(root, Tokens{1}), kNoNode);
  EXPECT_EQ(index.nodes_count(), 1);
  index.Unpin(root);
  EXPECT_EQ(index.nodes_count(), 0);
}

// Against a std::map, with a good hash, one of two bits, and none at all.
TEST(PrefixIndex, RandomTreesEqualAModel) {
  const BlockHash two_bits = [](uint64_t parent, std::span<const TokenId> tokens) {
    return HashBlock(parent, tokens) & 3;
  };
  for (const BlockHash hash : {&HashBlock, two_bits, &ConstantHash}) {
    Rng rng(3);
    PrefixIndex index(2, 1, 1, 99, hash);  // begins small, so that its table grows
    const NodeId root = index.PinRoot("salt");
    std::map<std::pair<NodeId, Tokens>, NodeId> model;
    std::vector<NodeId> nodes = {root};
    for (int i = 0; i < 600; ++i) {
      const NodeId parent = nodes[rng.Below(nodes.size())];
      const Tokens tokens = {static_cast<TokenId>(rng.Below(3)),
                             static_cast<TokenId>(rng.Below(3))};
      const auto found = model.find({parent, tokens});
      ASSERT_EQ(index.Find(parent, tokens), found == model.end() ? kNoNode : found->second);
      if (found != model.end()) continue;
      const NodeId node = index.FindOrAdd(parent, tokens);
      index.SetBlock(node, 0, i);
      model[{parent, tokens}] = node;
      nodes.push_back(node);
      // Now and then one goes that has no child.
      const NodeId gone = nodes[rng.Below(nodes.size())];
      const auto is_parent = [&](const auto& entry) { return entry.first.first == gone; };
      if (gone == root || std::ranges::any_of(model, is_parent)) continue;
      index.ClearBlock(gone, 0);
      std::erase_if(model, [&](const auto& entry) { return entry.second == gone; });
      std::erase(nodes, gone);
    }
    EXPECT_EQ(index.nodes_count(), static_cast<int64_t>(nodes.size()));
    EXPECT_GT(nodes.size(), 100u);
  }
}

}  // namespace
}  // namespace kvasir::cache
