// What the engine counts as it goes. Written by the engine thread, read by anyone without waiting.
#pragma once

#include "base/metrics.h"

namespace kvasir::engine {

/// Names in the comments are those of the metrics page; bucket bounds are vLLM's.
struct EngineMetrics {
  explicit EngineMetrics(int64_t max_model_len);

  Gauge requests_running;         // vllm:num_requests_running
  Gauge requests_waiting;         // vllm:num_requests_waiting
  Gauge requests_waiting_tokens;  // kvasir:queue_tokens
  Gauge queue_age_seconds_max;    // kvasir:queue_age_seconds_max
  Gauge kv_blocks_used;           // kvasir:kv_blocks{state="used"}
  Gauge kv_blocks_cached;         // kvasir:kv_blocks{state="cached"}: free but still hold a prefix
  Gauge kv_blocks_free;           // kvasir:kv_blocks{state="free"}
  Gauge kv_cache_usage;           // vllm:kv_cache_usage_perc, 0..1
  Counter prompt_tokens;          // vllm:prompt_tokens_total
  Counter prompt_tokens_cached;   // vllm:prompt_tokens_cached_total
  Counter generation_tokens;      // vllm:generation_tokens_total
  Counter preemptions;            // vllm:num_preemptions_total
  Counter prefix_cache_queries;   // vllm:prefix_cache_queries_total, tokens
  Counter prefix_cache_hits;      // vllm:prefix_cache_hits_total, tokens
  Counter finished_stop;          // vllm:request_success_total{finished_reason="stop"}
  Counter finished_length;
  Counter finished_abort;
  Counter finished_error;
  Counter rejected_queue_full;  // kvasir:requests_rejected_total{reason="queue_full"}
  Counter steps;                // kvasir:steps_total
  Histogram time_to_first_token_seconds;
  Histogram inter_token_latency_seconds;
  Histogram request_time_per_output_token_seconds;
  Histogram e2e_request_latency_seconds;
  Histogram request_queue_time_seconds;
  Histogram request_inference_time_seconds;
  Histogram request_prefill_time_seconds;
  Histogram request_decode_time_seconds;
  Histogram request_prompt_tokens;
  Histogram request_generation_tokens;
  Histogram request_max_num_generation_tokens;
  Histogram request_params_max_tokens;
  Histogram request_params_n;
  Histogram request_prefill_kv_computed_tokens;
  Histogram iteration_tokens;      // vllm:iteration_tokens_total
  Histogram step_seconds_prefill;  // kvasir:step_seconds{kind="prefill"}: items with prompts alone
  Histogram step_seconds_decode;   // kind="decode"
  Histogram step_seconds_mixed;    // kind="mixed"
  Histogram step_sequences;        // kvasir:step_sequences: batch occupancy
  Histogram
      step_overhead_seconds;  // kvasir:step_overhead_seconds: a step's time outside the runner
};

}  // namespace kvasir::engine
