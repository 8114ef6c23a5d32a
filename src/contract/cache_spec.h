// The shape of the KV cache, as the runner tells it to the cache: how many groups of layers there
// are, how far each looks back, and how large a block is. Integers only.
#pragma once

#include <cstdint>
#include <vector>

#include "contract/types.h"

namespace kvasir {

/// Layers that share a block table. All groups hold the same number of bytes a block, so that one
/// pool serves them all: a model whose layers alternate is cut into groups of equal size.
struct CacheGroupSpec {
  enum class Kind : uint8_t {
    kFull,           ///< every position stays readable
    kSlidingWindow,  ///< position t reads t - window + 1 ... t; older blocks can be given back
  };
  Kind kind = Kind::kFull;
  int64_t window_tokens = 0;  ///< for kSlidingWindow; the token itself included
};

struct CacheSpec {
  int64_t block_tokens = 16;  ///< B: positions a block holds
  int64_t block_bytes = 0;    ///< bytes of one block of one group
  int64_t blocks_count = 0;   ///< in the pool, for all groups together
  std::vector<CacheGroupSpec> groups;
};

}  // namespace kvasir
