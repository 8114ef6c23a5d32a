// What an operator can set about queueing, batching and the cache. Names follow vLLM's flags.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "contract/cache_spec.h"

namespace kvasir::engine {

enum class KvAllocation : uint8_t { kPaged, kReserved };
enum class Batching : uint8_t { kContinuous, kStatic };

struct EngineConfig {
  CacheSpec cache;
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;             ///< prompt and output together, tokens
  int64_t max_num_seqs = 64;             ///< sequences that run at once
  int64_t max_num_batched_tokens = 256;  ///< budget of one step, tokens
  int64_t max_num_queued_reqs = 1024;
  int64_t max_num_queued_tokens = 1'000'000;
  TimeNs max_queue_wait_ns = 0;  ///< 0 = no limit; else waiting requests end with an error
  TimeNs priority_aging_ns =
      10 * kNsPerSecond;  ///< waiting this long lowers (betters) priority by one
  KvAllocation kv_allocation = KvAllocation::kPaged;
  Batching batching = Batching::kContinuous;
  bool enable_prefix_caching = true;
  bool enable_chunked_prefill = true;
};

/// Whether the parts are sane by themselves and fit each other; Engine expects a config that is.
Status ValidateEngineConfig(const EngineConfig& config);

}  // namespace kvasir::engine
