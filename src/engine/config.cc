#include "engine/config.h"

namespace kvasir::engine {

namespace {

Status AtLeast(const char* name, int64_t value, int64_t least) {
  if (value >= least) return Status::Ok();
  return MakeParamError(ErrorCode::kInvalidArgument, name, "{} must be at least {}, got {}", name,
                        least, value);
}

}  // namespace

Status ValidateEngineConfig(const EngineConfig& config) {
  KVASIR_RETURN_IF_ERROR(AtLeast("block_size", config.cache.block_tokens, 1));
  KVASIR_RETURN_IF_ERROR(AtLeast("num_kv_blocks", config.cache.blocks_count, 1));
  KVASIR_RETURN_IF_ERROR(AtLeast("vocab_size", config.vocab_size, 1));
  KVASIR_RETURN_IF_ERROR(AtLeast("max_model_len", config.max_model_len, 1));
  KVASIR_RETURN_IF_ERROR(AtLeast("max_num_seqs", config.max_num_seqs, 1));
  KVASIR_RETURN_IF_ERROR(AtLeast("max_num_batched_tokens", config.max_num_batched_tokens, 1));
  KVASIR_RETURN_IF_ERROR(AtLeast("max_num_queued_reqs", config.max_num_queued_reqs, 1));
  KVASIR_RETURN_IF_ERROR(AtLeast("max_num_queued_tokens", config.max_num_queued_tokens, 1));
  KVASIR_RETURN_IF_ERROR(AtLeast("max_queue_wait", config.max_queue_wait_ns, 0));
  KVASIR_RETURN_IF_ERROR(AtLeast("priority_aging", config.priority_aging_ns, 0));
  if (config.max_num_batched_tokens < config.max_num_seqs) {
    // Each running sequence draws one token a step.
    return MakeParamError(ErrorCode::kInvalidArgument, "max_num_batched_tokens",
                          "max_num_batched_tokens ({}) must be at least max_num_seqs ({})",
                          config.max_num_batched_tokens, config.max_num_seqs);
  }
  if (config.cache.groups.empty()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "the KV cache needs at least one group of layers");
  }
  for (const CacheGroupSpec& group : config.cache.groups) {
    if (group.kind == CacheGroupSpec::Kind::kSlidingWindow) {
      KVASIR_RETURN_IF_ERROR(AtLeast("sliding window", group.window_tokens, 1));
    }
  }
  return Status::Ok();
}

}  // namespace kvasir::engine
