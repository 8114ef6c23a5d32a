// The figures of a simulation, as people compare them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "plan/simulate/result.h"

namespace kvasir::plan {

/// Seconds. 0 where there was nothing to measure.
struct Percentiles {
  double mean_s = 0;
  double p50_s = 0;
  double p90_s = 0;
  double p99_s = 0;
  double max_s = 0;
};

struct Summary {
  std::string variant;

  int64_t requests_count = 0;  ///< that came
  int64_t finished_count = 0;
  int64_t queue_full_count = 0;
  int64_t never_fits_count = 0;
  int64_t waited_out_count = 0;
  int64_t unfinished_count = 0;

  int64_t prompt_tokens = 0;  ///< of finished prompts
  int64_t cached_tokens = 0;  ///< of those, found in the cache
  int64_t output_tokens = 0;
  double duration_s = 0;
  double requests_per_s = 0;       ///< finished
  double output_tokens_per_s = 0;  ///< drawn
  double prompt_tokens_per_s = 0;  ///< of finished prompts, cached ones included
  Percentiles ttft;                ///< of finished requests, as all that follow
  Percentiles itl;                 ///< of single tokens
  Percentiles end_to_end;
  Percentiles queue;

  bool has_slo = false;
  double slo_share = 0;      ///< of all that came, those for which the promise was kept
  double goodput_per_s = 0;  ///< requests a second for which it was kept

  double sequences_per_step = 0;
  double tokens_per_step = 0;
  double running_mean = 0;  ///< over the time in steps, as all means that follow
  int64_t running_max = 0;
  double waiting_mean = 0;
  int64_t waiting_max = 0;
  double busy_share = 0;  ///< of the duration
  int64_t steps_count = 0;

  int64_t kv_bytes = 0;     ///< of the whole pool
  int64_t kv_tokens = 0;    ///< that the pool holds in all its groups
  double kv_used_mean = 0;  ///< share of the pool that sequences held
  double kv_used_max = 0;
  double kv_filled_mean = 0;  ///< share of the pool with keys and values that can be read
  double kv_wasted_mean = 0;  ///< share of the pool held in vain
  double fragmentation = 0;   ///< of what was held, the share held in vain
  double hit_rate = 0;        ///< of prompt tokens, the share found in the cache
  int64_t preemptions = 0;
  int64_t recomputed_tokens = 0;  ///< computed more than once
};

/// Times and the promise leave out the first `warm_up` requests, which may have met an empty server
/// or all come at once; totals and means over time do not.
[[nodiscard]] Summary Summarize(const SimulationResult& result, int64_t warm_up = 0);

/// One column a summary, one line a figure with its unit.
[[nodiscard]] std::string FormatTable(std::span<const Summary> summaries);

[[nodiscard]] nlohmann::json ToJson(const Summary& summary);

/// "1.23 s", "45.6 ms", "78 us": three digits.
[[nodiscard]] std::string FormatSeconds(double seconds);

}  // namespace kvasir::plan
