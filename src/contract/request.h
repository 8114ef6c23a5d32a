// What crosses from the HTTP threads to the engine, and what comes back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "contract/sampling_params.h"
#include "contract/types.h"

namespace kvasir {

/// One prompt and the n choices to be drawn after it. Token ids only; text stays outside.
struct Request {
  std::vector<TokenId> prompt;  ///< at least one token
  SamplingParams sampling;
  int64_t max_tokens = 0;        ///< tokens to draw at most; 0 computes the prompt alone (echo)
  int32_t n = 1;                 ///< choices; they share the prompt's blocks
  int64_t priority = 0;          ///< lower runs first
  std::string cache_salt;        ///< requests with different salts never share blocks
  int32_t prompt_logprobs = -1;  ///< -1 none, else top k for each prompt position (no prefix reuse)
};

/// Log-probabilities at one position. Raw log-softmax, before temperature and penalties.
struct TokenLogprobs {
  TokenId token = 0;
  float logprob = 0;
  int32_t rank = 0;                                 ///< 1 = most probable
  std::vector<std::pair<TokenId, float>> top;       ///< the k most probable, descending
  std::vector<std::pair<TokenId, float>> selected;  ///< those of logprob_token_ids, in their order
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kAbort, kError };

/// What happened to one choice in one step: a token, the end, or both.
struct TokenEvent {
  int32_t index = 0;             ///< choice
  std::optional<TokenId> token;  ///< drawn in this step
  std::optional<TokenLogprobs> logprobs;
  FinishReason finish = FinishReason::kNone;
  std::optional<TokenId> stop_token;  ///< the member of stop_token_ids that ended it
  Error error;                        ///< where finish is kError

  // On the first event of a request alone:
  int64_t cached_tokens = 0;                   ///< prompt tokens whose KV was found, not computed
  std::vector<TokenLogprobs> prompt_logprobs;  ///< position i+1 given 0..i; size is prompt - 1
  // Engine clock. On the last event of a choice; the first two on a request's first event as well:
  TimeNs queue_ns = 0;    ///< arrival to first scheduled
  TimeNs prefill_ns = 0;  ///< first scheduled to first token
  TimeNs decode_ns = 0;   ///< first token to last
};

/// Receives a request's events in order, on the engine thread: must return at once, so it hands
/// them on (to the HTTP threads) and never blocks. Not called again after the last choice has
/// finished.
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  virtual void OnEvent(TokenEvent event) = 0;
};

}  // namespace kvasir
