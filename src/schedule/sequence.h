// One choice of one request, as the scheduler sees it: tokens known and tokens computed.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cache/kv_cache.h"
#include "contract/types.h"

namespace kvasir::schedule {

/// Who comes before whom: a total order that never changes, smaller first. `due` is arrival plus
/// priority * aging, which orders any two requests as their aged priorities (priority minus waited
/// / aging) would at every moment.
struct Rank {
  TimeNs due = 0;
  int64_t priority = 0;
  uint64_t order = 0;  ///< of arrival
  int32_t choice = 0;
  auto operator<=>(const Rank&) const = default;
};

/// `aging` 0 means that priority is never outweighed by waiting.
[[nodiscard]] Rank MakeRank(int64_t priority, TimeNs arrival, uint64_t order, TimeNs aging);

struct Sequence {
  enum class State : uint8_t { kIdle, kWaiting, kRunning };

  Rank rank;
  int64_t prompt_count = 0;
  std::string salt;
  bool reuse_prefix =
      true;  ///< false: all of the prompt must be computed (its logprobs are wanted)
  std::vector<TokenId> tokens;  ///< known: prompt and output

  // The scheduler's own.
  State state = State::kIdle;
  cache::SequenceBlocks kv;
  int64_t scheduled = 0;      ///< tokens in the present step
  int64_t cached_tokens = 0;  ///< found instead of computed, before any preemption
  int64_t preemptions_count = 0;

  [[nodiscard]] int64_t known() const { return static_cast<int64_t>(tokens.size()); }
  [[nodiscard]] int64_t remaining() const { return known() - kv.computed; }
  /// One drawn token away from the next one.
  [[nodiscard]] bool decoding() const { return known() > prompt_count && remaining() == 1; }
};

}  // namespace kvasir::schedule
