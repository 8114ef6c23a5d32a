// A request while the engine has it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "contract/request.h"
#include "schedule/sequence.h"

namespace kvasir::engine {

/// A moment that has not come.
inline constexpr TimeNs kNotYet = -1;

struct RequestState;

/// A choice's sequence, which leads back to its request.
struct ChoiceSequence : schedule::Sequence {
  RequestState* request = nullptr;
  int32_t choice = 0;
};

struct Choice {
  std::unique_ptr<ChoiceSequence> sequence;  ///< null before its fork and after its end
  bool finished = false;
  int64_t output_count = 0;
  TimeNs last_token = 0;
};

/// Until the prompt is computed one choice, the lead, has a sequence; then the others fork from it.
struct RequestState {
  RequestId id = 0;
  Request request;
  std::shared_ptr<RequestListener> listener;
  std::vector<TokenId> stop_tokens;  ///< sorted
  std::vector<Choice> choices;       ///< n
  int64_t unfinished_count = 0;
  bool in_queue = true;  ///< counted by the queue's bounds: never admitted so far
  bool prompt_done = false;
  bool any_event = false;  ///< what only the first event carries has been sent
  bool ended = false;
  int64_t cached_tokens = 0;
  std::vector<TokenLogprobs> prompt_logprobs;
  TimeNs arrival = 0;
  TimeNs first_scheduled = kNotYet;
  TimeNs first_token = kNotYet;

  [[nodiscard]] int64_t prompt_count() const { return static_cast<int64_t>(request.prompt.size()); }
};

}  // namespace kvasir::engine
