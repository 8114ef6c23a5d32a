// How many blocks a sequence needs: the arithmetic behind "can never fit" and behind admission.
#pragma once

#include <cstdint>

#include "contract/cache_spec.h"

namespace kvasir::cache {

[[nodiscard]] constexpr int64_t BlocksFor(int64_t tokens, int64_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

/// The most blocks of `group` that `positions` tokens can need at one moment, where a step computes
/// at most `chunk` of them: all of them, or for a window what covers window - 1 older positions and
/// the chunk, wherever the block borders fall.
[[nodiscard]] constexpr int64_t PeakBlocks(const CacheGroupSpec& group, int64_t block_tokens,
                                           int64_t positions, int64_t chunk) {
  const int64_t all = BlocksFor(positions, block_tokens);
  if (group.kind == CacheGroupSpec::Kind::kFull) return all;
  // k consecutive positions touch at most (k - 1 + B - 1) / B + 1 blocks.
  const int64_t consecutive = group.window_tokens - 1 + chunk;
  const int64_t behind_window = BlocksFor(consecutive - 1, block_tokens) + 1;
  return behind_window < all ? behind_window : all;
}

/// Of all groups together.
[[nodiscard]] constexpr int64_t PeakBlocks(const CacheSpec& spec, int64_t positions,
                                           int64_t chunk) {
  int64_t blocks = 0;
  for (const CacheGroupSpec& group : spec.groups) {
    blocks += PeakBlocks(group, spec.block_tokens, positions, chunk);
  }
  return blocks;
}

}  // namespace kvasir::cache
