// The KV cache as integers: which block of which group holds which tokens of which sequence.
//
// A sequence's life: Open, TakePrefix (what others have computed already), then for each step
// Reserve -> the runner computes -> Commit, and in the end Release. Blocks become visible to others
// at Commit alone, when their KV is there; Release gives back all, committed or only reserved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/block_pool.h"
#include "cache/prefix_index.h"
#include "contract/cache_spec.h"
#include "contract/step.h"
#include "contract/types.h"

namespace kvasir::cache {

struct CacheOptions {
  bool prefix_caching = true;
  /// Whether blocks behind a window stay with their sequence (reserved allocation).
  bool keep_behind_window = false;
  uint64_t hash_seed = 0;
  BlockHash hash = &HashBlock;
};

/// What one sequence holds. Changed by KvCache alone.
struct SequenceBlocks {
  /// One table a group, all of one length; entry p / block_tokens holds position p's KV.
  std::vector<std::vector<BlockId>> tables;
  std::vector<int64_t> live_begin;  ///< of each group: entries before it are kNoBlock
  int64_t computed = 0;             ///< positions whose KV is there
  int64_t chained = 0;              ///< full blocks on the index's path from the root to `tip`
  NodeId tip = kNoNode;             ///< pinned; kNoNode without prefix caching

  [[nodiscard]] bool open() const { return !tables.empty(); }
};

class KvCache {
 public:
  KvCache(const CacheSpec& spec, const CacheOptions& options);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  /// All blocks free, nothing known; for when the accounting is in doubt. Takes no memory. No
  /// sequence that was open before may be shown to the cache again until it is emptied.
  void Reset();

  /// Begins a sequence that holds nothing yet and shares only within `salt`.
  void Open(SequenceBlocks& sequence, const std::string& salt);

  /// Appends what the index has of `tokens` (all that the sequence knows) after what is computed,
  /// in whole blocks, leaving at least the last token to compute. Groups that see everything need
  /// every block; a window needs those that the next token can read. Does nothing in the middle of
  /// a block. Returns the tokens gained.
  int64_t TakePrefix(SequenceBlocks& sequence, std::span<const TokenId> tokens);

  /// How many blocks Reserve(sequence, end) would take from the pool.
  [[nodiscard]] int64_t BlocksMissing(const SequenceBlocks& sequence, int64_t end) const;
  /// How many more blocks the sequence will hold at its peak on the way to `end`, computing at most
  /// `chunk` tokens a step.
  [[nodiscard]] int64_t BlocksWanted(const SequenceBlocks& sequence, int64_t end,
                                     int64_t chunk) const;
  /// The largest end <= `end` that Reserve can grant now; `computed` where not one token fits.
  [[nodiscard]] int64_t ReservableEnd(const SequenceBlocks& sequence, int64_t end) const;

  /// Makes positions computed ... end - 1 writable: takes blocks, and where the partly filled last
  /// block is shared, a copy of it (appended to `copies`). All or nothing: false where the pool is
  /// short. The source of a copy stays untouched until ForgetCopy.
  [[nodiscard]] bool Reserve(SequenceBlocks& sequence, int64_t end, std::vector<BlockCopy>* copies);
  /// Takes blocks for all positions up to `end`, without making the shared last block writable. The
  /// caller has asked BlocksMissing before.
  void Extend(SequenceBlocks& sequence, int64_t end);
  /// The copy has been made, or will not be.
  void ForgetCopy(const BlockCopy& copy);

  /// `count` more positions have their KV. Publishes the blocks that became full, and gives back
  /// those that no later token can read. Where the index knows such a block already, the sequence
  /// takes that one and frees its own: equal histories have equal KV.
  void Commit(SequenceBlocks& sequence, std::span<const TokenId> tokens, int64_t count);

  /// `child`, not open, begins with everything that `parent` has computed, shared.
  void Fork(const SequenceBlocks& parent, SequenceBlocks& child);

  /// Gives back everything and closes the sequence. The tail goes first, so that of a chain the
  /// least recently used block is its tail.
  void Release(SequenceBlocks& sequence);

  [[nodiscard]] const CacheSpec& spec() const { return spec_; }
  [[nodiscard]] int64_t groups_count() const { return static_cast<int64_t>(spec_.groups.size()); }
  [[nodiscard]] const BlockPool& pool() const { return pool_; }
  [[nodiscard]] const PrefixIndex& index() const { return index_; }
  /// The node under which a block is published, or kNoNode.
  [[nodiscard]] NodeId NodeOf(BlockId block) const { return owners_[Index(block)].node; }
  [[nodiscard]] int64_t GroupOf(BlockId block) const { return owners_[Index(block)].group; }

 private:
  struct Owner {
    NodeId node = kNoNode;
    int32_t group = 0;
  };

  static size_t Index(int64_t at) { return static_cast<size_t>(at); }
  [[nodiscard]] BlockId TakeBlock();
  void DropBlock(BlockId block);
  [[nodiscard]] bool Shared(BlockId block) const;
  /// First entry that the token at position `next` can read.
  [[nodiscard]] int64_t FirstReadable(const CacheGroupSpec& group, int64_t next) const;
  [[nodiscard]] int64_t PrefixBlocks(const SequenceBlocks& sequence,
                                     std::span<const TokenId> tokens);
  void Publish(SequenceBlocks& sequence, std::span<const TokenId> tokens);
  void GiveBackBehindWindows(SequenceBlocks& sequence);

  CacheSpec spec_;
  CacheOptions options_;
  BlockPool pool_;
  PrefixIndex index_;
  std::vector<Owner> owners_;          ///< of each block
  std::vector<BlockId> copy_sources_;  ///< each holds one reference beyond the tables'
  std::vector<NodeId> path_;           ///< scratch of TakePrefix
  std::vector<int64_t> runs_;          ///< scratch: blocks in a row that end here, of each group
};

/// Verifies the accounting against all open sequences: each block is exactly one of free, cached
/// and used; references equal the tables' entries; cached blocks are published and published ones
/// are where the index says; of cached blocks with full attention a parent outlives its children.
/// Returns an empty string, or what is wrong. O(pool): for tests and simulations.
[[nodiscard]] std::string FindBrokenInvariant(const KvCache& cache,
                                              std::span<const SequenceBlocks* const> sequences);

}  // namespace kvasir::cache
