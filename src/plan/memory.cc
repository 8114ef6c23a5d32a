#include "plan/memory.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "cache/capacity.h"

namespace kvasir::plan {
namespace {

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What a server process takes before it loads anything: program, libraries, threads' stacks, HTTP.
constexpr int64_t kProcessBytes = int64_t{20} << 20;
// Of the tokenizer, an entry of the vocabulary: its text, and its places in two tables.
constexpr int64_t kVocabEntryBytes = 160;

int64_t PartBytesOf(const ModelShape& shape, Part part, const MemoryOptions& options) {
  if (options.as_shipped && shape.stored) {
    return shape.stored->part_bytes[static_cast<size_t>(part)];
  }
  return PartBytes(shape, part, options.weights);
}

RowValues RowValuesOf(const ModelShape& shape) {
  RowValues out;
  out.hidden = shape.hidden_size;
  for (const LayerShape& layer : shape.layers) {
    const int64_t query_cols = layer.query_heads * layer.key_dim;
    out.qkv = std::max(out.qkv, query_cols + layer.cached_values);
    out.heads = std::max(out.heads, layer.query_heads * layer.value_dim);
  }
  for (const WeightShape& weight : shape.weights) {
    const bool expert = weight.part == Part::kExperts;
    if (!expert && weight.part != Part::kFfn && weight.part != Part::kSharedExpert) continue;
    // Gate and up side by side; fused ones have both in their rows.
    const int64_t wide = weight.cols == shape.hidden_size ? 2 * weight.rows : weight.cols;
    out.ffn =
        std::max(out.ffn, wide * (expert ? std::max<int64_t>(1, shape.experts.used_count) : 1));
  }
  return out;
}

int64_t Blocks(const MemoryPlan& plan, int64_t tokens) {
  return cache::PeakBlocks(plan.cache, tokens, 1);
}

int64_t GroupsOf(const CacheSpec& cache, CacheGroupSpec::Kind kind) {
  return std::count_if(cache.groups.begin(), cache.groups.end(),
                       [kind](const CacheGroupSpec& group) { return group.kind == kind; });
}

int64_t UsersOf(const MemoryPlan& plan, int64_t replicas, int64_t bytes_each, int64_t shared) {
  KVASIR_CHECK(replicas > 0 && bytes_each >= 0);
  const int64_t budget = plan.kv_budget_bytes / replicas;
  if (budget < shared + bytes_each) return 0;
  // A sequence that adds nothing of its own still takes a block.
  const int64_t each = std::max(bytes_each, plan.cache.block_bytes);
  return replicas * ((budget - shared) / each);
}

}  // namespace

CacheSpec MakeCacheSpec(const ModelShape& shape, const NumberFormat& kv, int64_t block_tokens) {
  KVASIR_CHECK(block_tokens > 0 && !shape.cache_groups.empty());
  CacheSpec cache;
  cache.block_tokens = block_tokens;
  cache.block_bytes =
      block_tokens * shape.layers_per_group * kv.Bytes(1, shape.cached_values_per_slot);
  for (const CacheGroupShape& group : shape.cache_groups) {
    cache.groups.push_back(
        group.window_tokens > 0
            ? CacheGroupSpec{CacheGroupSpec::Kind::kSlidingWindow, group.window_tokens}
            : CacheGroupSpec{CacheGroupSpec::Kind::kFull, 0});
  }
  return cache;
}

std::vector<KvKind> KvKinds(const ModelShape& shape, const NumberFormat& kv) {
  std::vector<KvKind> kinds;
  for (const LayerShape& layer : shape.layers) {
    KvKind kind;
    kind.kind = layer.kind;
    kind.layers_count = layer.layers_count;
    kind.window_tokens = layer.window_tokens;
    kind.bytes_per_token = layer.layers_count * kv.Bytes(1, layer.cached_values);
    kind.bytes_per_sequence = layer.layers_count * layer.state_bytes;
    kind.grows = layer.kind == LayerKind::kFull || layer.kind == LayerKind::kLatent;
    kinds.push_back(kind);
  }
  return kinds;
}

int64_t KvBytesPerToken(const ModelShape& shape, const NumberFormat& kv) {
  int64_t bytes = 0;
  for (const KvKind& kind : KvKinds(shape, kv)) bytes += kind.bytes_per_token;
  return bytes;
}

int64_t KvBytesPerTokenGrowing(const ModelShape& shape, const NumberFormat& kv) {
  int64_t bytes = 0;
  for (const KvKind& kind : KvKinds(shape, kv)) bytes += kind.grows ? kind.bytes_per_token : 0;
  return bytes;
}

Status CheckParallel(const Hardware& hardware, const ModelShape& shape, const Parallel& parallel) {
  const auto fail = [](const char* flag, const std::string& why) {
    return MakeParamError(ErrorCode::kInvalidArgument, flag, "--{}: {}", flag, why);
  };
  for (const LayerShape& layer : shape.layers) {
    if (layer.query_heads % parallel.tensor != 0) {
      return fail("tensor-parallel", fmt::format("{} query heads cannot be cut evenly by {}",
                                                 layer.query_heads, parallel.tensor));
    }
    const bool whole = layer.kv_heads % parallel.tensor == 0;
    const bool copied = parallel.tensor % layer.kv_heads == 0;
    if (!whole && !copied) {
      return fail("tensor-parallel", fmt::format("{} KV heads cannot be cut evenly by {}",
                                                 layer.kv_heads, parallel.tensor));
    }
  }
  if (parallel.pipeline > shape.layers_count) {
    return fail("pipeline-parallel", fmt::format("the model has {} layers, got {} stages",
                                                 shape.layers_count, parallel.pipeline));
  }
  if (parallel.expert > 1 && shape.experts.experts_count == 0) {
    return fail("expert-parallel",
                fmt::format("the model has no experts, got {}", parallel.expert));
  }
  if (parallel.expert > 1 &&
      shape.experts.experts_count % (parallel.expert * parallel.tensor) != 0) {
    return fail("expert-parallel",
                fmt::format("{} experts cannot be cut evenly over {} x {} devices",
                            shape.experts.experts_count, parallel.tensor, parallel.expert));
  }
  if (parallel.tensor * parallel.expert > hardware.devices_linked) {
    return fail(parallel.tensor > hardware.devices_linked ? "tensor-parallel" : "expert-parallel",
                fmt::format("at most {} of {} are linked, got {}", hardware.devices_linked,
                            hardware.name, parallel.tensor * parallel.expert));
  }
  return Status::Ok();
}

MemoryPlan PlanMemory(const Hardware& hardware, const ModelShape& shape,
                      const MemoryOptions& options) {
  const Parallel& parallel = options.parallel;
  MemoryPlan plan;
  int64_t layer_bytes = 0;  // of all layers, experts left out
  for (size_t i = 0; i < kPartCount; ++i) {
    const auto part = static_cast<Part>(i);
    plan.part_bytes[i] = PartBytesOf(shape, part, options);
    plan.weights_bytes += plan.part_bytes[i];
    if (part != Part::kEmbedding && part != Part::kHead && part != Part::kExperts) {
      layer_bytes += plan.part_bytes[i];
    }
  }
  // The first stage of a pipeline has the table, the last one the head (which may be the table).
  const auto bytes_of = [&](Part part) { return plan.part_bytes[static_cast<size_t>(part)]; };
  const int64_t table = bytes_of(Part::kEmbedding);
  const int64_t head = bytes_of(Part::kHead);
  const int64_t ends = parallel.pipeline == 1 ? table + head : std::max(table, head);
  const int64_t stage_layers = CeilDiv(shape.layers_count, parallel.pipeline);
  const auto stage = [&](int64_t bytes) {
    return CeilDiv(bytes, shape.layers_count) * stage_layers;
  };
  const bool one = parallel.DevicesCount() == 1;
  plan.weights_bytes_per_device =
      one ? plan.weights_bytes
          : CeilDiv(ends + stage(layer_bytes), parallel.tensor) +
                CeilDiv(stage(bytes_of(Part::kExperts)), parallel.tensor * parallel.expert);
  if (options.as_shipped && shape.stored && one) {
    for (const LoadedWeights& loaded : shape.stored->loaded) {
      if (loaded.kernels == hardware.kernels) plan.loaded = loaded;
    }
  }
  if (plan.loaded) {
    plan.weights_bytes_per_device = plan.loaded->packed_bytes + plan.loaded->mapped_bytes;
  }

  const bool cpu = hardware.kind == Hardware::Kind::kCpu;
  const int64_t value_bytes = cpu ? 4 : 2;  // F32 rows on CPUs, BF16 on cards
  plan.row_values = RowValuesOf(shape);
  plan.row_value_bytes = value_bytes;
  plan.activations_bytes_per_device =
      CeilDiv(options.step_tokens * plan.row_values.Sum() * value_bytes, parallel.tensor);
  plan.workspace_bytes_per_device =
      CeilDiv(options.logits_rows * (shape.vocab_size * 4 + shape.hidden_size * value_bytes),
              parallel.tensor);
  if (cpu) plan.process_bytes = kProcessBytes + shape.vocab_size * kVocabEntryBytes;
  plan.workspace_bytes_per_device += plan.process_bytes;
  plan.usable_bytes_per_device = static_cast<int64_t>(
      std::floor(static_cast<double>(hardware.memory_bytes) * options.utilization));
  plan.left_bytes_per_device = plan.usable_bytes_per_device - plan.weights_bytes_per_device -
                               plan.activations_bytes_per_device - plan.workspace_bytes_per_device;

  plan.cache = MakeCacheSpec(shape, options.kv, options.block_tokens);
  int64_t kv_heads = parallel.tensor;  // least of all layers
  for (const LayerShape& layer : shape.layers) {
    plan.state_bytes_per_sequence += layer.layers_count * layer.state_bytes;
    if (layer.cached_values > 0) kv_heads = std::min(kv_heads, layer.kv_heads);
  }
  plan.kv_copies = parallel.tensor / std::max<int64_t>(1, kv_heads);
  const int64_t left = std::max<int64_t>(0, plan.left_bytes_per_device);
  const int64_t replica = left * parallel.tensor / plan.kv_copies * parallel.pipeline;
  plan.kv_budget_bytes = replica * parallel.expert;
  plan.cache.blocks_count = replica / plan.cache.block_bytes;
  return plan;
}

int64_t SequenceBytes(const MemoryPlan& plan, int64_t tokens) {
  return Blocks(plan, tokens) * plan.cache.block_bytes + plan.state_bytes_per_sequence;
}

int64_t WholeSequenceBytes(const MemoryPlan& plan, int64_t tokens) {
  return cache::BlocksFor(tokens, plan.cache.block_tokens) *
             static_cast<int64_t>(plan.cache.groups.size()) * plan.cache.block_bytes +
         plan.state_bytes_per_sequence;
}

int64_t SharedBytes(const MemoryPlan& plan, int64_t tokens) {
  return tokens / plan.cache.block_tokens * GroupsOf(plan.cache, CacheGroupSpec::Kind::kFull) *
         plan.cache.block_bytes;
}

int64_t UsersPaged(const MemoryPlan& plan, int64_t replicas, int64_t tokens,
                   int64_t shared_tokens) {
  const int64_t shared = SharedBytes(plan, std::min(shared_tokens, tokens));
  return UsersOf(plan, replicas, SequenceBytes(plan, tokens) - shared, shared);
}

int64_t UsersReserved(const MemoryPlan& plan, int64_t replicas, int64_t tokens) {
  return UsersOf(plan, replicas, SequenceBytes(plan, tokens), 0);
}

int64_t UsersReservedWhole(const MemoryPlan& plan, int64_t replicas, int64_t tokens) {
  return UsersOf(plan, replicas, WholeSequenceBytes(plan, tokens), 0);
}

int64_t DevicesForWeights(const Hardware& hardware, const ModelShape& shape,
                          const MemoryOptions& options) {
  MemoryOptions alone = options;
  alone.parallel = Parallel{};
  const MemoryPlan plan = PlanMemory(hardware, shape, alone);
  const int64_t beside = plan.activations_bytes_per_device + plan.workspace_bytes_per_device;
  const int64_t room = plan.usable_bytes_per_device - beside;
  constexpr int64_t kMost = 1'000'000;
  if (room <= 0) return 0;
  const int64_t devices = CeilDiv(plan.weights_bytes, room);
  return devices <= kMost ? std::max<int64_t>(1, devices) : 0;
}

}  // namespace kvasir::plan
