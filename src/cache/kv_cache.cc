#include "cache/kv_cache.h"

#include <algorithm>

#include "base/check.h"
#include "cache/capacity.h"

namespace kvasir::cache {

namespace {

using Kind = CacheGroupSpec::Kind;

}  // namespace

KvCache::KvCache(const CacheSpec& spec, const CacheOptions& options)
    : spec_(spec),
      options_(options),
      pool_(spec.blocks_count),
      index_(spec.block_tokens, groups_count(), spec.blocks_count, options.hash_seed, options.hash),
      owners_(static_cast<size_t>(spec.blocks_count)) {
  KVASIR_CHECK(spec.block_tokens > 0 && !spec.groups.empty());
  for (const CacheGroupSpec& group : spec.groups) {
    KVASIR_CHECK(group.kind == Kind::kFull || group.window_tokens > 0);
  }
}

void KvCache::Reset() {
  pool_.Reset();
  index_.Reset();
  std::ranges::fill(owners_, Owner{});
  copy_sources_.clear();
}

void KvCache::Open(SequenceBlocks& sequence, const std::string& salt) {
  KVASIR_CHECK(!sequence.open());
  sequence.tables.resize(spec_.groups.size());
  sequence.live_begin.assign(spec_.groups.size(), 0);
  if (options_.prefix_caching) sequence.tip = index_.PinRoot(salt);
}

int64_t KvCache::TakePrefix(SequenceBlocks& sequence, std::span<const TokenId> tokens) {
  if (!options_.prefix_caching || sequence.computed % spec_.block_tokens != 0) return 0;
  // Under reserved allocation a sequence keeps the blocks it took up front.
  if (options_.keep_behind_window && !sequence.tables[0].empty()) return 0;
  const int64_t begin = sequence.chained;
  const int64_t end = PrefixBlocks(sequence, tokens);
  if (end == begin) return 0;
  const int64_t computed = end * spec_.block_tokens;
  for (size_t g = 0; g < spec_.groups.size(); ++g) {
    std::vector<BlockId>& table = sequence.tables[g];
    const int64_t first = std::max(begin, FirstReadable(spec_.groups[g], computed));
    table.resize(Index(end), kNoBlock);
    for (int64_t j = first; j < end; ++j) {
      const BlockId block = index_.block(path_[Index(j - begin)], static_cast<int64_t>(g));
      pool_.AddReference(block);
      table[Index(j)] = block;
    }
  }
  index_.Pin(path_[Index(end - begin - 1)]);
  index_.Unpin(sequence.tip);
  sequence.tip = path_[Index(end - begin - 1)];
  sequence.chained = end;
  sequence.computed = computed;
  GiveBackBehindWindows(sequence);
  return (end - begin) * spec_.block_tokens;
}

int64_t KvCache::PrefixBlocks(const SequenceBlocks& sequence, std::span<const TokenId> tokens) {
  const int64_t block_tokens = spec_.block_tokens;
  const int64_t begin = sequence.chained;
  const int64_t limit = (static_cast<int64_t>(tokens.size()) - 1) / block_tokens;
  path_.clear();
  runs_.resize(spec_.groups.size());
  for (size_t g = 0; g < runs_.size(); ++g) runs_[g] = begin - sequence.live_begin[g];
  int64_t best = begin;
  NodeId node = sequence.tip;
  for (int64_t length = begin + 1; length <= limit; ++length) {
    node =
        index_.Find(node, tokens.subspan(Index((length - 1) * block_tokens), Index(block_tokens)));
    if (node == kNoNode) break;
    path_.push_back(node);
    bool all_satisfied = true;
    for (size_t g = 0; g < runs_.size(); ++g) {
      const bool present = index_.block(node, static_cast<int64_t>(g)) != kNoBlock;
      // Without one of its blocks, a group that sees everything has no longer prefix either.
      if (!present && spec_.groups[g].kind == Kind::kFull) return best;
      runs_[g] = present ? runs_[g] + 1 : 0;
      const int64_t needed = length - FirstReadable(spec_.groups[g], length * block_tokens);
      all_satisfied = all_satisfied && runs_[g] >= needed;
    }
    if (all_satisfied) best = length;
  }
  return best;
}

int64_t KvCache::FirstReadable(const CacheGroupSpec& group, int64_t next) const {
  if (group.kind == Kind::kFull) return 0;
  return std::max<int64_t>(0, next - group.window_tokens + 1) / spec_.block_tokens;
}

bool KvCache::Shared(BlockId block) const {
  const auto copies = std::ranges::count(copy_sources_, block);
  return pool_.references(block) - copies > 1;
}

int64_t KvCache::BlocksMissing(const SequenceBlocks& sequence, int64_t end) const {
  const int64_t held = static_cast<int64_t>(sequence.tables[0].size());
  int64_t missing =
      std::max<int64_t>(0, BlocksFor(end, spec_.block_tokens) - held) * groups_count();
  if (sequence.computed % spec_.block_tokens != 0) {
    const size_t last = Index(sequence.computed / spec_.block_tokens);
    for (const std::vector<BlockId>& table : sequence.tables) missing += Shared(table[last]);
  }
  return missing;
}

int64_t KvCache::BlocksWanted(const SequenceBlocks& sequence, int64_t end, int64_t chunk) const {
  const int64_t length = static_cast<int64_t>(sequence.tables[0].size());
  const int64_t more = std::max<int64_t>(0, BlocksFor(end, spec_.block_tokens) - length);
  int64_t wanted = 0;
  for (size_t g = 0; g < spec_.groups.size(); ++g) {
    const int64_t live = length - sequence.live_begin[g];
    const int64_t peak = PeakBlocks(spec_.groups[g], spec_.block_tokens, end, chunk);
    wanted += std::clamp<int64_t>(peak - live, 0, more);
  }
  return wanted;
}

int64_t KvCache::ReservableEnd(const SequenceBlocks& sequence, int64_t end) const {
  const int64_t held_end = static_cast<int64_t>(sequence.tables[0].size()) * spec_.block_tokens;
  // Blocks to copy come first: without them not one token can be written.
  const int64_t left = pool_.available_count() - BlocksMissing(sequence, std::min(end, held_end));
  if (left < 0) return sequence.computed;
  return std::min(end, held_end + left / groups_count() * spec_.block_tokens);
}

bool KvCache::Reserve(SequenceBlocks& sequence, int64_t end, std::vector<BlockCopy>* copies) {
  if (BlocksMissing(sequence, end) > pool_.available_count()) return false;
  const bool partly_filled = sequence.computed % spec_.block_tokens != 0;
  const size_t last = Index(sequence.computed / spec_.block_tokens);
  for (std::vector<BlockId>& table : sequence.tables) {
    if (partly_filled && Shared(table[last])) {
      // The reference moves from the table to copy_sources_, so that nobody else gets the block
      // before it has been copied.
      const BlockCopy copy{table[last], TakeBlock()};
      copy_sources_.push_back(copy.from);
      copies->push_back(copy);
      table[last] = copy.to;
    }
  }
  Extend(sequence, end);
  return true;
}

void KvCache::Extend(SequenceBlocks& sequence, int64_t end) {
  const size_t blocks = Index(BlocksFor(end, spec_.block_tokens));
  for (std::vector<BlockId>& table : sequence.tables) {
    while (table.size() < blocks) table.push_back(TakeBlock());
  }
}

void KvCache::ForgetCopy(const BlockCopy& copy) {
  const auto found = std::ranges::find(copy_sources_, copy.from);
  KVASIR_CHECK(found != copy_sources_.end());
  *found = copy_sources_.back();
  copy_sources_.pop_back();
  DropBlock(copy.from);
}

void KvCache::Commit(SequenceBlocks& sequence, std::span<const TokenId> tokens, int64_t count) {
  sequence.computed += count;
  KVASIR_CHECK(sequence.computed <= static_cast<int64_t>(tokens.size()));
  if (options_.prefix_caching) Publish(sequence, tokens);
  if (!options_.keep_behind_window) GiveBackBehindWindows(sequence);
}

void KvCache::Publish(SequenceBlocks& sequence, std::span<const TokenId> tokens) {
  const int64_t block_tokens = spec_.block_tokens;
  while ((sequence.chained + 1) * block_tokens <= sequence.computed) {
    const int64_t j = sequence.chained;
    const NodeId node = index_.FindOrAdd(
        sequence.tip, tokens.subspan(Index(j * block_tokens), Index(block_tokens)));
    index_.Pin(node);
    index_.Unpin(sequence.tip);
    sequence.tip = node;
    ++sequence.chained;
    for (size_t g = 0; g < sequence.tables.size(); ++g) {
      BlockId& mine = sequence.tables[g][Index(j)];
      const BlockId known = index_.block(node, static_cast<int64_t>(g));
      if (known == kNoBlock) {
        index_.SetBlock(node, static_cast<int64_t>(g), mine);
        owners_[Index(mine)] = Owner{node, static_cast<int32_t>(g)};
      } else if (known != mine) {
        pool_.AddReference(known);
        DropBlock(mine);
        mine = known;
      }
    }
  }
}

void KvCache::GiveBackBehindWindows(SequenceBlocks& sequence) {
  for (size_t g = 0; g < spec_.groups.size(); ++g) {
    const int64_t first = FirstReadable(spec_.groups[g], sequence.computed);
    for (int64_t& j = sequence.live_begin[g]; j < first; ++j) {
      BlockId& entry = sequence.tables[g][Index(j)];
      if (entry != kNoBlock) DropBlock(entry);
      entry = kNoBlock;
    }
  }
}

void KvCache::Fork(const SequenceBlocks& parent, SequenceBlocks& child) {
  KVASIR_CHECK(parent.open() && !child.open());
  child.live_begin = parent.live_begin;
  child.computed = parent.computed;
  child.chained = parent.chained;
  child.tip = parent.tip;
  if (child.tip != kNoNode) index_.Pin(child.tip);
  child.tables.resize(parent.tables.size());
  const int64_t blocks = BlocksFor(parent.computed, spec_.block_tokens);
  for (size_t g = 0; g < parent.tables.size(); ++g) {
    child.tables[g].assign(parent.tables[g].begin(), parent.tables[g].begin() + blocks);
    for (const BlockId block : child.tables[g]) {
      if (block != kNoBlock) pool_.AddReference(block);
    }
  }
}

void KvCache::Release(SequenceBlocks& sequence) {
  KVASIR_CHECK(sequence.open());
  for (size_t j = sequence.tables[0].size(); j-- > 0;) {
    for (const std::vector<BlockId>& table : sequence.tables) {
      if (table[j] != kNoBlock) DropBlock(table[j]);
    }
  }
  if (sequence.tip != kNoNode) index_.Unpin(sequence.tip);
  sequence = SequenceBlocks{};
}

BlockId KvCache::TakeBlock() {
  if (const BlockId block = pool_.TakeFree(); block != kNoBlock) return block;
  const BlockId block = pool_.TakeOldestCached();
  KVASIR_CHECK(block != kNoBlock, "no block, though the pool was counted before");
  Owner& owner = owners_[Index(block)];
  index_.ClearBlock(owner.node, owner.group);
  owner = Owner{};
  return block;
}

void KvCache::DropBlock(BlockId block) {
  pool_.DropReference(block, owners_[Index(block)].node != kNoNode);
}

}  // namespace kvasir::cache
