// How much of a machine's memory a model takes: weights, what a step needs, and the KV cache.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "contract/cache_spec.h"
#include "plan/hardware.h"
#include "plan/model_shape.h"
#include "plan/roofline.h"

namespace kvasir::plan {

/// The cache of `shape` with blocks_count left 0: what the server's scheduler and cache take. Of
/// models that the server runs it equals runner::MakeCacheSpec.
[[nodiscard]] CacheSpec MakeCacheSpec(const ModelShape& shape, const NumberFormat& kv,
                                      int64_t block_tokens);

/// What layers of one kind keep of a sequence.
struct KvKind {
  LayerKind kind = LayerKind::kFull;
  int64_t layers_count = 0;
  int64_t window_tokens = 0;
  int64_t bytes_per_token = 0;     ///< of all these layers together
  int64_t bytes_per_sequence = 0;  ///< states, whatever the length
  bool grows = true;               ///< with every token
};
[[nodiscard]] std::vector<KvKind> KvKinds(const ModelShape& shape, const NumberFormat& kv);

/// Bytes that a token leaves in all layers, none given back; and in those that keep every token.
[[nodiscard]] int64_t KvBytesPerToken(const ModelShape& shape, const NumberFormat& kv);
[[nodiscard]] int64_t KvBytesPerTokenGrowing(const ModelShape& shape, const NumberFormat& kv);

struct MemoryOptions {
  bool as_shipped = true;  ///< stored bytes of the files, where there are files
  WeightFormats weights;
  NumberFormat kv;
  int64_t block_tokens = 16;
  Parallel parallel;
  double utilization = 0.95;  ///< share of a device's memory that the server may fill
  int64_t step_tokens = 2048;
  int64_t logits_rows = 64;  ///< computed at a time
};

/// Values of a token's rows in the largest step: what model/workspace.h holds, the widest layer of
/// each kind.
struct RowValues {
  int64_t hidden = 0;  ///< three rows
  int64_t qkv = 0;
  int64_t heads = 0;
  int64_t ffn = 0;

  [[nodiscard]] int64_t Sum() const { return 3 * hidden + qkv + heads + ffn; }
};

/// Bytes, of one device where it says so, else of all together.
struct MemoryPlan {
  std::array<int64_t, kPartCount> part_bytes = {};
  int64_t weights_bytes = 0;
  /// In memory: on CPUs as the server packs the files, and what it reads where it lies mapped.
  int64_t weights_bytes_per_device = 0;
  std::optional<LoadedWeights> loaded;       ///< where the server on this CPU can load the files
  int64_t activations_bytes_per_device = 0;  ///< rows of the largest step
  int64_t workspace_bytes_per_device = 0;    ///< logits; on CPUs the process itself too
  RowValues row_values;                      ///< that activations are made of
  int64_t row_value_bytes = 2;
  int64_t process_bytes = 0;            ///< of the workspace, on CPUs
  int64_t usable_bytes_per_device = 0;  ///< memory x utilization
  int64_t left_bytes_per_device = 0;    ///< for the KV cache; negative: it does not fit
  CacheSpec cache;                      ///< blocks of one replica; blocks_count 0: no room
  /// Devices that hold a copy of the same part of the cache (more tensor devices than KV heads).
  int64_t kv_copies = 1;
  int64_t kv_budget_bytes = 0;  ///< of all replicas, copies counted once
  int64_t state_bytes_per_sequence = 0;
};

/// Errors: a parallel degree that the model or the machine cannot have; the message names the flag.
[[nodiscard]] Status CheckParallel(const Hardware& hardware, const ModelShape& shape,
                                   const Parallel& parallel);

/// `parallel` must have passed CheckParallel but for the devices linked.
[[nodiscard]] MemoryPlan PlanMemory(const Hardware& hardware, const ModelShape& shape,
                                    const MemoryOptions& options);

/// Of one sequence of `tokens` at its longest: whole blocks, windows' blocks given back, states.
[[nodiscard]] int64_t SequenceBytes(const MemoryPlan& plan, int64_t tokens);
/// As SequenceBytes, but windows keep all blocks: what Kvasir's --kv-allocation reserved takes.
[[nodiscard]] int64_t WholeSequenceBytes(const MemoryPlan& plan, int64_t tokens);
/// Of a prefix of `tokens` that several sequences share: whole blocks of layers that keep all.
[[nodiscard]] int64_t SharedBytes(const MemoryPlan& plan, int64_t tokens);

/// Sequences that the cache holds at once, all replicas together, each of `tokens` with the first
/// `shared_tokens` in common.
[[nodiscard]] int64_t UsersPaged(const MemoryPlan& plan, int64_t replicas, int64_t tokens,
                                 int64_t shared_tokens);
/// Where each takes room for `tokens` up front, whatever it uses.
[[nodiscard]] int64_t UsersReserved(const MemoryPlan& plan, int64_t replicas, int64_t tokens);
[[nodiscard]] int64_t UsersReservedWhole(const MemoryPlan& plan, int64_t replicas, int64_t tokens);

/// Devices that hold the weights, cut evenly in any number; 0: a million would not do.
[[nodiscard]] int64_t DevicesForWeights(const Hardware& hardware, const ModelShape& shape,
                                        const MemoryOptions& options);

}  // namespace kvasir::plan
