#include "engine/metrics.h"

#include <vector>

namespace kvasir::engine {

namespace {

// Bounds are vLLM's (vllm/v1/metrics/loggers.py), so that its dashboards read ours.
const std::vector<double> kFirstTokenSeconds = {.001, .005, .01, .02, .04, .06, .08, .1,
                                                .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                                20,   40,   80,  160, 640, 2560};
const std::vector<double> kTokenSeconds = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                           .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> kRequestSeconds = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                             30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kIterationTokens = {1,   8,    16,   32,   64,   128,  256,
                                              512, 1024, 2048, 4096, 8192, 16384};
const std::vector<double> kChoices = {1, 2, 5, 10, 20};
// Ours: a step's time, and the time of it that is not the runner's.
const std::vector<double> kStepSeconds = {.0005, .001, .002, .005, .01, .02, .05,
                                          .1,    .2,   .5,   1,    2,   5,   10};
const std::vector<double> kOverheadSeconds = {5e-6, 1e-5, 2e-5, 5e-5, 1e-4,
                                              2e-4, 5e-4, 1e-3, 5e-3, 2e-2};
const std::vector<double> kSequences = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

/// 1, 2, 5, 10, 20, 50, ... up to `limit`.
std::vector<double> OneTwoFive(int64_t limit) {
  std::vector<double> bounds;
  for (int64_t decade = 1; decade <= limit; decade *= 10) {
    for (const int64_t step : {1, 2, 5}) {
      if (step * decade <= limit) bounds.push_back(static_cast<double>(step * decade));
    }
    if (decade > limit / 10) break;
  }
  return bounds;
}

}  // namespace

EngineMetrics::EngineMetrics(int64_t max_model_len)
    : time_to_first_token_seconds(kFirstTokenSeconds),
      inter_token_latency_seconds(kTokenSeconds),
      request_time_per_output_token_seconds(kTokenSeconds),
      e2e_request_latency_seconds(kRequestSeconds),
      request_queue_time_seconds(kRequestSeconds),
      request_inference_time_seconds(kRequestSeconds),
      request_prefill_time_seconds(kRequestSeconds),
      request_decode_time_seconds(kRequestSeconds),
      request_prompt_tokens(OneTwoFive(max_model_len)),
      request_generation_tokens(OneTwoFive(max_model_len)),
      request_max_num_generation_tokens(OneTwoFive(max_model_len)),
      request_params_max_tokens(OneTwoFive(max_model_len)),
      request_params_n(kChoices),
      request_prefill_kv_computed_tokens(OneTwoFive(max_model_len)),
      iteration_tokens(kIterationTokens),
      step_seconds_prefill(kStepSeconds),
      step_seconds_decode(kStepSeconds),
      step_seconds_mixed(kStepSeconds),
      step_sequences(kSequences),
      step_overhead_seconds(kOverheadSeconds) {}

}  // namespace kvasir::engine
