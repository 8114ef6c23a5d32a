// What a recorded or published trace tells of its requests: times and lengths, and which of them
// begin alike. Never content.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvasir::plan {

struct TraceRequest {
  double arrival_s = 0;       ///< since the trace's beginning; ascending
  int64_t prompt_tokens = 1;  ///< at least 1
  int64_t output_tokens = 1;  ///< at least 1
  /// Names of the prompt's blocks of `hash_block_tokens` tokens, the first block's first: two
  /// requests whose first k names are equal begin with the same k blocks. May be shorter than the
  /// prompt, whose rest is then like no other's; a last name may stand for a partly filled block.
  std::vector<uint64_t> block_hashes = {};
  int64_t hash_block_tokens = 0;  ///< tokens a name stands for; 0 where there are none
  /// Requests with one session (0 or more) are the turns of one conversation, in their order: each
  /// prompt begins with the prompt before and its answer, as far as it is long enough. A turn comes
  /// at its time, or after the answer before, whichever is later. -1: a request by itself.
  int64_t session = -1;
  /// In a session: seconds between the answer before and this turn; where it is 0 or more it
  /// takes the place of `arrival_s` for every turn but the first.
  double think_s = -1;
};

struct Trace {
  std::string source;  ///< what it was read from, for the heading of a report
  std::vector<TraceRequest> requests;
};

}  // namespace kvasir::plan
