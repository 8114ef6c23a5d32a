#include "cache/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace kvasir::cache {
namespace {

using Tokens = std::vector<TokenId>;

constexpr CacheGroupSpec kFull{};
constexpr CacheGroupSpec Window(int64_t tokens) {
  return {CacheGroupSpec::Kind::kSlidingWindow, tokens};
}

CacheSpec Spec(std::vector<CacheGroupSpec> groups, int64_t blocks_count = 100) {
  return CacheSpec{.block_tokens = 4,
                   .block_bytes = 0,
                   .blocks_count = blocks_count,
                   .groups = std::move(groups)};
}

/// first, first + 1, ...
Tokens Range(int64_t count, TokenId first = 0) {
  Tokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

Tokens Concat(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A cache and the sequences in it; verifies the accounting after each action.
class Cache {
 public:
  explicit Cache(const CacheSpec& spec, const CacheOptions& options = {}) : kv_(spec, options) {}
  ~Cache() {
    for (SequenceBlocks& sequence : sequences_) {
      if (sequence.open()) kv_.Release(sequence);
    }
    EXPECT_EQ(kv_.pool().used_count(), 0);
  }

  SequenceBlocks& Open(const std::string& salt = "") {
    sequences_.reserve(16);  // keeps references valid
    SequenceBlocks& sequence = sequences_.emplace_back();
    kv_.Open(sequence, salt);
    return sequence;
  }
  SequenceBlocks& Fork(const SequenceBlocks& parent) {
    SequenceBlocks& child = sequences_.emplace_back();
    kv_.Fork(parent, child);
    Check();
    return child;
  }
  /// Computes all of `tokens`, `chunk` at a time.
  void Compute(SequenceBlocks& sequence, const Tokens& tokens, int64_t chunk = 1000) {
    const auto known = static_cast<int64_t>(tokens.size());
    while (sequence.computed < known) {
      const int64_t count = std::min(chunk, known - sequence.computed);
      ASSERT_TRUE(kv_.Reserve(sequence, sequence.computed + count, &copies_));
      Check();
      ForgetCopies();
      kv_.Commit(sequence, tokens, count);
      Check();
    }
  }
  void Release(SequenceBlocks& sequence) {
    kv_.Release(sequence);
    Check();
  }
  /// Computes `tokens` once and lets go of them.
  void Warm(const Tokens& tokens, int64_t chunk = 1000, const std::string& salt = "") {
    SequenceBlocks& sequence = Open(salt);
    kv_.TakePrefix(sequence, tokens);
    Compute(sequence, tokens, chunk);
    Release(sequence);
    sequences_.pop_back();
  }
  /// What a new sequence with these tokens finds.
  int64_t Hit(const Tokens& tokens, const std::string& salt = "") {
    SequenceBlocks& sequence = Open(salt);
    const int64_t gained = kv_.TakePrefix(sequence, tokens);
    EXPECT_EQ(gained, sequence.computed);
    Check();
    Release(sequence);
    sequences_.pop_back();
    return gained;
  }
  void ForgetCopies() {
    for (const BlockCopy& copy : copies_) kv_.ForgetCopy(copy);
    copies_.clear();
  }
  void Check() {
    if (!copies_.empty()) return;  // copies hold references beyond the tables'
    std::vector<const SequenceBlocks*> open;
    for (const SequenceBlocks& sequence : sequences_) {
      if (sequence.open()) open.push_back(&sequence);
    }
    ASSERT_EQ(FindBrokenInvariant(kv_, open), "");
  }

  KvCache& kv() { return kv_; }
  const BlockPool& pool() const { return kv_.pool(); }
  std::vector<BlockCopy>& copies() { return copies_; }

 private:
  KvCache kv_;
  std::vector<SequenceBlocks> sequences_;
  std::vector<BlockCopy> copies_;
};

TEST(KvCache, WholeBlocksOfAPrefixAreFoundAndTheLastTokenIsComputed) {
  Cache cache(Spec({kFull}));
  EXPECT_EQ(cache.Hit(Range(10)), 0);
  cache.Warm(Range(10));
  EXPECT_EQ(cache.Hit(Range(10)), 8);  // two full blocks; the partly filled third stands aside
  EXPECT_EQ(cache.Hit(Range(9)), 8);
  EXPECT_EQ(cache.Hit(Range(8)), 4);  // the last prompt token must be computed
  EXPECT_EQ(cache.Hit(Range(4)), 0);
  EXPECT_EQ(cache.Hit(Range(30)), 8);
  EXPECT_EQ(cache.Hit(Concat(Range(6), Range(6, 50))), 4);  // parts in the second block
  EXPECT_EQ(cache.Hit(Range(10, 4)), 0);                    // the second block is no first block
}

TEST(KvCache, NothingIsVisibleBeforeItsCommit) {
  Cache cache(Spec({kFull}));
  SequenceBlocks& sequence = cache.Open();
  ASSERT_TRUE(cache.kv().Reserve(sequence, 9, &cache.copies()));
  EXPECT_EQ(cache.Hit(Range(9)), 0);
  cache.kv().Commit(sequence, Range(9), 5);
  EXPECT_EQ(cache.Hit(Range(9)), 4);
  cache.kv().Commit(sequence, Range(9), 4);
  EXPECT_EQ(cache.Hit(Range(9)), 8);  // of a live sequence too
}

TEST(KvCache, ADroppedReservationGivesAllBack) {
  Cache cache(Spec({kFull, Window(4)}, 10));
  SequenceBlocks& sequence = cache.Open();
  ASSERT_TRUE(cache.kv().Reserve(sequence, 20, &cache.copies()));
  EXPECT_EQ(cache.pool().used_count(), 10);
  cache.Release(sequence);
  EXPECT_EQ(cache.pool().free_count(), 10);
  EXPECT_EQ(cache.pool().cached_count(), 0);
  EXPECT_EQ(cache.Hit(Range(20)), 0);
}

TEST(KvCache, ReserveTakesAllOrNothing) {
  Cache cache(Spec({kFull, kFull}, 7));
  SequenceBlocks& sequence = cache.Open();
  EXPECT_EQ(cache.kv().ReservableEnd(sequence, 100), 12);  // three blocks a group, one left over
  EXPECT_EQ(cache.kv().BlocksMissing(sequence, 13), 8);
  EXPECT_FALSE(cache.kv().Reserve(sequence, 13, &cache.copies()));
  EXPECT_EQ(cache.pool().used_count(), 0);
  EXPECT_TRUE(cache.kv().Reserve(sequence, 12, &cache.copies()));
  EXPECT_EQ(cache.pool().used_count(), 6);
  EXPECT_EQ(cache.kv().ReservableEnd(sequence, 100), 12);
  EXPECT_EQ(cache.kv().ReservableEnd(sequence, 7), 7);
}

TEST(KvCache, SaltsNeverShare) {
  Cache cache(Spec({kFull}));
  cache.Warm(Range(12), 1000, "a");
  EXPECT_EQ(cache.Hit(Range(12), "a"), 8);
  EXPECT_EQ(cache.Hit(Range(12), "b"), 0);
  EXPECT_EQ(cache.Hit(Range(12)), 0);
}

TEST(KvCache, CollidingHashesFindOnlyWhatIsEqual) {
  const BlockHash collide = [](uint64_t, std::span<const TokenId>) { return uint64_t{0}; };
  Cache cache(Spec({kFull}), CacheOptions{.hash = collide});
  cache.Warm(Range(13));
  cache.Warm(Range(13, 100));
  cache.Warm(Range(13), 1000, "salt");
  EXPECT_EQ(cache.Hit(Range(13)), 12);
  EXPECT_EQ(cache.Hit(Range(13, 100)), 12);
  EXPECT_EQ(cache.Hit(Range(13, 200)), 0);
  EXPECT_EQ(cache.Hit(Concat(Range(4, 100), Range(9, 4))), 4);  // a block, after another parent
  EXPECT_EQ(cache.Hit(Range(13), "other"), 0);
}

TEST(KvCache, WithoutPrefixCachingNothingIsKept) {
  Cache cache(Spec({kFull}), CacheOptions{.prefix_caching = false});
  cache.Warm(Range(20));
  EXPECT_EQ(cache.pool().cached_count(), 0);
  EXPECT_EQ(cache.Hit(Range(20)), 0);
}

TEST(KvCache, EvictsTheTailOfAChainBeforeItsHead) {
  Cache cache(Spec({kFull}, 8));
  cache.Warm(Range(16));       // 4 blocks, all cached
  cache.Warm(Range(16, 100));  // 4 more
  for (int64_t left = 4; left >= 1; --left) {
    EXPECT_EQ(cache.Hit(Range(17)), left * 4);
    // Look at the other chain, so that this one is the older.
    EXPECT_EQ(cache.Hit(Range(17, 100)), 16);
    SequenceBlocks& other = cache.Open();
    ASSERT_TRUE(cache.kv().Reserve(other, 4, &cache.copies()));  // evicts one
    cache.kv().Commit(other, Range(3, static_cast<TokenId>(1000 * left)), 3);
  }
  EXPECT_EQ(cache.Hit(Range(17)), 0);
  EXPECT_EQ(cache.Hit(Range(17, 100)), 16);
}

TEST(KvCache, WindowsGiveBackWhatNoTokenCanRead) {
  Cache cache(Spec({Window(6)}), CacheOptions{.prefix_caching = false});
  SequenceBlocks& sequence = cache.Open();
  cache.Compute(sequence, Range(8), 1);
  // The next token, at 8, reads 3 ... 8.
  EXPECT_NE(sequence.tables[0][0], kNoBlock);
  cache.Compute(sequence, Range(9), 1);
  // At 9: 4 ... 9.
  EXPECT_EQ(sequence.tables[0][0], kNoBlock);
  EXPECT_NE(sequence.tables[0][1], kNoBlock);
  cache.Compute(sequence, Range(40), 1);
  EXPECT_EQ(cache.pool().used_count(), 2);
}

TEST(KvCache, OutlivedWindowBlocksStayCachedUntilTheirRoomIsNeeded) {
  Cache cache(Spec({Window(4)}, 8));
  SequenceBlocks& sequence = cache.Open();
  cache.Compute(sequence, Range(24));
  EXPECT_EQ(cache.pool().used_count(), 1);
  EXPECT_EQ(cache.pool().cached_count(), 5);
  // A shorter prefix ends where those blocks are.
  EXPECT_EQ(cache.Hit(Concat(Range(8), Range(4, 500))), 8);
}

TEST(KvCache, AWindowNeedsOnlyTheBlocksThatTheNextTokenReads) {
  // Of a prompt of 40, the full group has all. The window has only blocks 3 and 4 in the end.
  Cache cache(Spec({kFull, Window(6)}, 16));
  cache.Warm(Range(20));
  // Full: 5 blocks. Window: 5 blocks, the outlived ones the oldest in the LRU order.
  EXPECT_EQ(cache.pool().cached_count(), 10);
  EXPECT_EQ(cache.Hit(Range(21)), 20);
  SequenceBlocks& hit = cache.Open();
  EXPECT_EQ(cache.kv().TakePrefix(hit, Range(30)), 20);
  // The token at 20 reads 15 ... 20, which begins in block 3.
  EXPECT_EQ(hit.tables[1][2], kNoBlock);
  EXPECT_NE(hit.tables[1][3], kNoBlock);
  EXPECT_NE(hit.tables[0][0], kNoBlock);
  cache.Check();
}

TEST(KvCache, TheLongestPrefixThatAllGroupsHaveIsTaken) {
  Cache cache(Spec({kFull, Window(6)}, 10));
  cache.Warm(Range(20), 4);  // in chunks: window blocks 0, 1, 2 are outlived, so the oldest
  EXPECT_EQ(cache.pool().cached_count(), 10);
  SequenceBlocks& other = cache.Open();
  ASSERT_TRUE(cache.kv().Reserve(other, 4, &cache.copies()));  // evicts two: window blocks 0, 1
  // At 20 the window needs blocks 3, 4; at 12 it would need 1, 2.
  EXPECT_EQ(cache.Hit(Range(21)), 20);
  EXPECT_EQ(cache.Hit(Range(20)), 16);  // needs 2 and 3
  EXPECT_EQ(cache.Hit(Range(16)), 0);   // would need 1 and 2, or with 8: 0 and 1
  EXPECT_EQ(cache.Hit(Concat(Range(12), Range(9, 300))), 0);
}

TEST(KvCache, ForksShareAndTheFirstWriterCopies) {
  Cache cache(Spec({kFull, Window(100)}));
  SequenceBlocks& a = cache.Open();
  cache.Compute(a, Range(6));
  SequenceBlocks& b = cache.Fork(a);
  SequenceBlocks& c = cache.Fork(a);
  EXPECT_EQ(cache.pool().used_count(), 4);
  EXPECT_EQ(a.tables, c.tables);
  const BlockId shared = a.tables[0][1];
  ASSERT_TRUE(cache.kv().Reserve(a, 7, &cache.copies()));
  ASSERT_TRUE(cache.kv().Reserve(b, 7, &cache.copies()));
  ASSERT_TRUE(cache.kv().Reserve(c, 7, &cache.copies()));
  ASSERT_EQ(cache.copies().size(), 4u);  // two copy, in both groups; the third writes in place
  EXPECT_EQ(cache.copies()[0].from, shared);
  EXPECT_EQ(cache.copies()[0].to, a.tables[0][1]);
  EXPECT_EQ(c.tables[0][1], shared);
  EXPECT_EQ(a.tables[0][0], b.tables[0][0]);
  EXPECT_EQ(cache.pool().used_count(), 8);
  cache.ForgetCopies();
  cache.Check();
  // Each ends its block in its own way.
  for (SequenceBlocks* sequence : {&a, &b, &c}) {
    const auto own = static_cast<TokenId>(sequence->tables[0][1] + 1000);
    cache.Compute(*sequence, Concat(Range(6), Range(4, own)));
  }
}

TEST(KvCache, TheSourceOfACopyIsNobodysUntilItIsCopied) {
  Cache cache(Spec({kFull}, 4));
  SequenceBlocks& a = cache.Open();
  cache.Compute(a, Range(2));
  SequenceBlocks& b = cache.Fork(a);
  const BlockId shared = a.tables[0][0];
  ASSERT_TRUE(cache.kv().Reserve(a, 3, &cache.copies()));
  cache.kv().Release(b);  // the last table that refers to it
  SequenceBlocks& other = cache.Open();
  ASSERT_TRUE(cache.kv().Reserve(other, 8, &cache.copies()));
  EXPECT_NE(other.tables[0][0], shared);
  EXPECT_NE(other.tables[0][1], shared);
  EXPECT_EQ(cache.pool().available_count(), 0);
  cache.ForgetCopies();
  EXPECT_EQ(cache.pool().free_count(), 1);
}

TEST(KvCache, AtABlockBorderForksNeedNoCopy) {
  Cache cache(Spec({kFull}));
  SequenceBlocks& a = cache.Open();
  cache.Compute(a, Range(8));
  SequenceBlocks& b = cache.Fork(a);
  ASSERT_TRUE(cache.kv().Reserve(a, 9, &cache.copies()));
  ASSERT_TRUE(cache.kv().Reserve(b, 9, &cache.copies()));
  EXPECT_TRUE(cache.copies().empty());
  EXPECT_NE(a.tables[0][2], b.tables[0][2]);
}

TEST(KvCache, EqualHistoriesComputedTwiceShareAfterCommit) {
  Cache cache(Spec({kFull}));
  SequenceBlocks& a = cache.Open();
  SequenceBlocks& b = cache.Open();
  ASSERT_TRUE(cache.kv().Reserve(a, 10, &cache.copies()));
  ASSERT_TRUE(cache.kv().Reserve(b, 10, &cache.copies()));
  EXPECT_EQ(cache.pool().used_count(), 6);
  cache.kv().Commit(a, Range(10), 10);
  cache.kv().Commit(b, Range(10), 10);
  cache.Check();
  EXPECT_EQ(cache.pool().used_count(), 4);  // two shared, and each has its last
  EXPECT_EQ(a.tables[0][1], b.tables[0][1]);
  EXPECT_NE(a.tables[0][2], b.tables[0][2]);
}

TEST(KvCache, ARunningSequenceTakesWhatOthersHavePublishedMeanwhile) {
  Cache cache(Spec({kFull, Window(6)}));
  SequenceBlocks& slow = cache.Open();
  cache.Compute(slow, Range(4));
  SequenceBlocks& fast = cache.Open();
  EXPECT_EQ(cache.kv().TakePrefix(fast, Range(30)), 4);
  cache.Compute(fast, Range(30));
  EXPECT_EQ(cache.kv().TakePrefix(slow, Range(30)), 24);
  EXPECT_EQ(slow.computed, 28);
  cache.Check();
  cache.Compute(slow, Concat(Range(29), Range(5, 900)));
  // In the middle of a block nothing can be taken.
  EXPECT_EQ(cache.kv().TakePrefix(slow, Range(60)), 0);
}

TEST(KvCache, ReservedSequencesKeepTheirBlocks) {
  Cache cache(Spec({kFull, Window(4)}, 20), CacheOptions{.keep_behind_window = true});
  SequenceBlocks& sequence = cache.Open();
  cache.kv().Extend(sequence, 40);
  EXPECT_EQ(cache.pool().used_count(), 20);
  cache.Compute(sequence, Range(30), 1);
  EXPECT_EQ(cache.pool().used_count(), 20);
  cache.Release(sequence);
  EXPECT_EQ(cache.pool().cached_count(), 14);  // what is full may be found again
  EXPECT_EQ(cache.Hit(Range(30)), 28);
}

TEST(KvCache, HitsLeaveNoTraceWhenGivenBack) {
  Cache cache(Spec({kFull}, 4));
  cache.Warm(Range(16));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(cache.Hit(Range(40)), 16);
  EXPECT_EQ(cache.pool().cached_count(), 4);
  EXPECT_EQ(cache.kv().index().nodes_count(), 5);
}

}  // namespace
}  // namespace kvasir::cache
