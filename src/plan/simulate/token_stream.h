// Token ids for requests that have no text: cheap, and equal where prompts shall begin alike, so
// that the real prefix index finds what they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "contract/types.h"

namespace kvasir::plan {

/// A stream is an endless text; its token at a position is a function of the two. Two streams agree
/// at a position by chance alone, once in vocab_size.
[[nodiscard]] constexpr TokenId TokenAt(uint64_t stream, int64_t position, int64_t vocab_size) {
  // A word of 64 random bits makes two tokens.
  const uint64_t word = Mix64(stream + static_cast<uint64_t>(position >> 1));
  const uint64_t half = (position & 1) == 0 ? word & 0xFFFFFFFFu : word >> 32;
  return static_cast<TokenId>((half * static_cast<uint64_t>(vocab_size)) >> 32);
}

/// A piece of a stream.
struct PromptPart {
  uint64_t stream = 0;
  int64_t begin = 0;  ///< first position in the stream
  int64_t count = 0;
};

inline void AppendPart(const PromptPart& part, int64_t vocab_size, std::vector<TokenId>& tokens) {
  size_t at = tokens.size();
  tokens.resize(at + static_cast<size_t>(part.count));
  for (int64_t position = part.begin; position < part.begin + part.count; ++position) {
    tokens[at++] = TokenAt(part.stream, position, vocab_size);
  }
}

}  // namespace kvasir::plan
