// What a request leaves in the metrics when it ends. Meanings are vLLM's: queue = first scheduled -
// arrival, prefill = first token - first scheduled, decode = last - first token, inference = last
// token - first scheduled; what failed or was aborted counts in finished_* alone.
#pragma once

#include "base/clock.h"
#include "contract/request.h"
#include "engine/metrics.h"
#include "engine/request_state.h"

namespace kvasir::engine {

/// Once for each choice, when it ends.
void ObserveChoice(EngineMetrics& metrics, const RequestState& request, const Choice& choice,
                   FinishReason reason, TimeNs now);

/// Once for each request, when its last choice has ended.
void ObserveRequest(EngineMetrics& metrics, const RequestState& request);

}  // namespace kvasir::engine
