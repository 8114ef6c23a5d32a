// The small words that every room of the engine shares.
#pragma once

#include <cstdint>

namespace kvasir {

using TokenId = int32_t;
using RequestId = uint64_t;

/// Index of a KV block in the pool. All cache groups share one pool of equal blocks.
using BlockId = int32_t;
/// An entry of a block table that holds nothing: never allocated, or given back behind a window.
inline constexpr BlockId kNoBlock = -1;

}  // namespace kvasir
