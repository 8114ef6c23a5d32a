#include "engine/observe.h"

#include <algorithm>

namespace kvasir::engine {

void ObserveChoice(EngineMetrics& metrics, const RequestState& request, const Choice& choice,
                   FinishReason reason, TimeNs now) {
  switch (reason) {
    case FinishReason::kNone:
      return;
    case FinishReason::kAbort:
      metrics.finished_abort.Add();
      return;
    case FinishReason::kError:
      metrics.finished_error.Add();
      return;
    case FinishReason::kStop:
      metrics.finished_stop.Add();
      break;
    case FinishReason::kLength:
      metrics.finished_length.Add();
      break;
  }
  // Stopped from outside before its first token.
  if (!request.prompt_done) return;
  const TimeNs last = choice.output_count > 0 ? choice.last_token : request.first_token;
  metrics.e2e_request_latency_seconds.Observe(ToSeconds(now - request.arrival));
  metrics.request_queue_time_seconds.Observe(ToSeconds(request.first_scheduled - request.arrival));
  metrics.request_inference_time_seconds.Observe(ToSeconds(last - request.first_scheduled));
  metrics.request_prefill_time_seconds.Observe(
      ToSeconds(request.first_token - request.first_scheduled));
  metrics.request_decode_time_seconds.Observe(ToSeconds(last - request.first_token));
  metrics.request_generation_tokens.Observe(static_cast<double>(choice.output_count));
  if (choice.output_count > 1) {
    metrics.request_time_per_output_token_seconds.Observe(
        ToSeconds(last - request.first_token) / static_cast<double>(choice.output_count - 1));
  }
}

void ObserveRequest(EngineMetrics& metrics, const RequestState& request) {
  if (!request.prompt_done) return;
  int64_t output_count_max = 0;
  for (const Choice& choice : request.choices) {
    output_count_max = std::max(output_count_max, choice.output_count);
  }
  metrics.request_prompt_tokens.Observe(static_cast<double>(request.prompt_count()));
  metrics.request_prefill_kv_computed_tokens.Observe(
      static_cast<double>(request.prompt_count() - request.cached_tokens));
  metrics.request_max_num_generation_tokens.Observe(static_cast<double>(output_count_max));
  metrics.request_params_max_tokens.Observe(static_cast<double>(request.request.max_tokens));
  metrics.request_params_n.Observe(request.request.n);
}

}  // namespace kvasir::engine
