// The flags that say which model to load and how its engine runs: shared by serve, chat and
// complete.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace kvasir::engine {
struct EngineConfig;
}

namespace kvasir::app {

struct EngineFlags {
  std::string model;
  std::string chat_template;  ///< a file; empty: the model's own
  std::string content_format = "auto";
  std::string kernels = "auto";
  int threads = 0;  ///< 0: usable physical cores
  std::string kv_cache_dtype = "auto";
  std::string kv_cache_memory;  ///< bytes with a unit; empty: worked out
  int64_t num_kv_blocks = 0;    ///< 0: worked out
  int64_t block_size = 16;
  int64_t max_model_len = 0;  ///< 0: the model's, or what the cache holds
  int64_t max_num_seqs = 64;
  int64_t max_num_batched_tokens = 0;  ///< 0: worked out
  int64_t max_num_queued_reqs = 1024;
  int64_t max_num_queued_tokens = 1'000'000;
  double max_queue_wait_s = 0;
  std::string kv_allocation = "paged";
  std::string batching = "continuous";
  bool enable_prefix_caching = true;
  bool enable_chunked_prefill = true;
};

/// Accepts a finite number of seconds, 0 to three years.
[[nodiscard]] const CLI::Validator& Seconds();

/// Flags of the model itself, for every command that loads one.
void AddModelFlags(CLI::App& command, EngineFlags& flags);
/// Flags of queue, batch and cache.
void AddEngineFlags(CLI::App& command, EngineFlags& flags);

/// What the flags say of seats, queue and switches; sizes that are worked out are left alone.
void ApplyEngineFlags(const EngineFlags& flags, engine::EngineConfig& config);

}  // namespace kvasir::app
