#include <fmt/format.h>

#include "cache/capacity.h"
#include "cache/kv_cache.h"

namespace kvasir::cache {

namespace {

std::string CheckTables(const KvCache& cache, std::span<const SequenceBlocks* const> sequences,
                        std::vector<int32_t>& references) {
  for (const SequenceBlocks* sequence : sequences) {
    for (size_t g = 0; g < sequence->tables.size(); ++g) {
      const std::vector<BlockId>& table = sequence->tables[g];
      if (table.size() != sequence->tables[0].size()) return "tables of different lengths";
      const int64_t held = static_cast<int64_t>(table.size());
      if (held < BlocksFor(sequence->computed, cache.spec().block_tokens)) {
        return fmt::format("a table of {} blocks for {} computed tokens", held, sequence->computed);
      }
      for (int64_t j = 0; j < held; ++j) {
        const BlockId block = table[static_cast<size_t>(j)];
        if ((block == kNoBlock) != (j < sequence->live_begin[g])) {
          return fmt::format("entry {} is {}, but live entries begin at {}", j, block,
                             sequence->live_begin[g]);
        }
        if (block == kNoBlock) continue;
        ++references[static_cast<size_t>(block)];
        const NodeId node = cache.NodeOf(block);
        if (node != kNoNode && cache.GroupOf(block) != static_cast<int64_t>(g)) {
          return fmt::format("block {} of group {} is in a table of group {}", block,
                             cache.GroupOf(block), g);
        }
      }
    }
  }
  return {};
}

std::string CheckPublished(const KvCache& cache, BlockId block) {
  const NodeId node = cache.NodeOf(block);
  const int64_t group = cache.GroupOf(block);
  if (cache.index().block(node, group) != block) {
    return fmt::format("block {} is published, but its node holds block {}", block,
                       cache.index().block(node, group));
  }
  const CacheGroupSpec& spec = cache.spec().groups[static_cast<size_t>(group)];
  const NodeId parent = cache.index().parent(node);
  if (spec.kind == CacheGroupSpec::Kind::kFull && cache.index().parent(parent) != kNoNode &&
      cache.index().block(parent, group) == kNoBlock) {
    return fmt::format("block {} has outlived its parent", block);
  }
  return {};
}

}  // namespace

std::string FindBrokenInvariant(const KvCache& cache,
                                std::span<const SequenceBlocks* const> sequences) {
  enum class State : uint8_t { kUsed, kCached, kFree };
  const BlockPool& pool = cache.pool();
  const size_t blocks = static_cast<size_t>(pool.blocks_count());
  std::vector<int32_t> references(blocks, 0);
  if (std::string wrong = CheckTables(cache, sequences, references); !wrong.empty()) return wrong;
  std::vector<State> states(blocks, State::kUsed);
  for (const BlockId block : pool.free_blocks()) {
    State& state = states[static_cast<size_t>(block)];
    if (state != State::kUsed) return fmt::format("block {} is free twice", block);
    state = State::kFree;
  }
  for (const BlockId block : pool.CachedBlocks()) {
    State& state = states[static_cast<size_t>(block)];
    if (state != State::kUsed) return fmt::format("block {} is cached and free or twice", block);
    state = State::kCached;
  }
  for (size_t i = 0; i < blocks; ++i) {
    const auto block = static_cast<BlockId>(i);
    const bool published = cache.NodeOf(block) != kNoNode;
    if (pool.references(block) != references[i]) {
      return fmt::format("block {} counts {} references, tables hold {}", block,
                         pool.references(block), references[i]);
    }
    if ((references[i] > 0) != (states[i] == State::kUsed)) {
      return fmt::format("block {} has {} references and lies in the wrong list", block,
                         references[i]);
    }
    if (states[i] == State::kFree && published) {
      return fmt::format("block {} is free and published", block);
    }
    if (states[i] == State::kCached && !published) {
      return fmt::format("block {} is cached but not published", block);
    }
    if (published) {
      if (std::string wrong = CheckPublished(cache, block); !wrong.empty()) return wrong;
    }
  }
  return {};
}

}  // namespace kvasir::cache
