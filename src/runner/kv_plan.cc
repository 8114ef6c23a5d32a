#include "runner/kv_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/check.h"

namespace kvasir::runner {
namespace {

// The rest is for what a step needs beside the cache (rows of activations and logits, prompts,
// answers under way) and for the machine's other programs: running out of memory is not survivable.
constexpr double kShareOfAvailable = 0.7;

DType MostBytes(const files::Weights& weights) {
  std::map<DType, int64_t> bytes;
  for (const std::string& name : weights.names()) {
    const TensorView* view = weights.Find(name);
    bytes[view->dtype] += view->bytes;
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? DType::kF16 : most->first;
}

std::string FormatBytes(double bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024.0 && unit + 1 < kUnits.size()) {
    bytes /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} {}", bytes, kUnits[unit])
                   : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

int64_t BlocksFor(const KvSizing& sizing) {
  if (sizing.blocks_count) return *sizing.blocks_count;
  if (sizing.memory_bytes) return *sizing.memory_bytes / sizing.cache.block_bytes;
  const double usable = kShareOfAvailable * static_cast<double>(sizing.available_bytes);
  const int64_t affordable =
      static_cast<int64_t>(usable / static_cast<double>(sizing.cache.block_bytes));
  return std::min(affordable, sizing.max_num_seqs * sizing.blocks_per_request);
}

}  // namespace

Result<DType> ChooseKvDType(std::string_view name, const files::Weights& weights) {
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  if (name != "auto") {
    return MakeParamError(ErrorCode::kInvalidArgument, "kv-cache-dtype",
                          "--kv-cache-dtype must be auto, f32, f16 or bf16, got {}", name);
  }
  const DType stored = MostBytes(weights);
  return stored == DType::kF32 || stored == DType::kBF16 ? stored : DType::kF16;
}

CacheSpec MakeCacheSpec(const model::ModelSpec& spec, DType kv_dtype, int64_t block_tokens) {
  KVASIR_CHECK(block_tokens > 0 && !spec.cache_groups.empty());
  CacheSpec cache;
  cache.block_tokens = block_tokens;
  cache.block_bytes = spec.KvBlockBytes(block_tokens, kv_dtype);
  for (const model::CacheGroup& group : spec.cache_groups) {
    const bool window = group.mask.kind == model::MaskSpec::Kind::kWindow;
    cache.groups.push_back(
        window ? CacheGroupSpec{CacheGroupSpec::Kind::kSlidingWindow, group.mask.window_tokens}
               : CacheGroupSpec{CacheGroupSpec::Kind::kFull, 0});
  }
  return cache;
}

Result<KvPlan> PlanKv(const KvSizing& sizing) {
  KVASIR_CHECK(sizing.cache.block_bytes > 0 && sizing.blocks_per_request > 0);
  if (sizing.blocks_count.value_or(1) <= 0) {
    return MakeParamError(ErrorCode::kInvalidArgument, "num-kv-blocks",
                          "--num-kv-blocks must be at least 1, got {}", *sizing.blocks_count);
  }
  if (sizing.memory_bytes.value_or(1) <= 0) {
    return MakeParamError(ErrorCode::kInvalidArgument, "kv-cache-memory-bytes",
                          "--kv-cache-memory-bytes must be positive, got {}", *sizing.memory_bytes);
  }
  const auto groups_count = static_cast<int64_t>(sizing.cache.groups.size());
  // Far beyond any machine's memory; the pool keeps some bytes a block from the start.
  constexpr int64_t kMostBlocks = int64_t{1} << 24;
  if (sizing.blocks_count.value_or(1) > kMostBlocks) {
    return MakeParamError(ErrorCode::kInvalidArgument, "num-kv-blocks",
                          "--num-kv-blocks must be at most {}, got {}", kMostBlocks,
                          *sizing.blocks_count);
  }
  const int64_t blocks_count = std::min(BlocksFor(sizing), kMostBlocks);
  if (blocks_count < groups_count) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "no room for a KV cache: {} block(s) of {} where the model needs at least {}, "
                     "one a group of layers",
                     blocks_count, FormatBytes(static_cast<double>(sizing.cache.block_bytes)),
                     groups_count);
  }
  KvPlan plan;
  plan.cache = sizing.cache;
  plan.cache.blocks_count = blocks_count;
  plan.bytes_per_token = groups_count * sizing.cache.block_bytes / sizing.cache.block_tokens;
  plan.tokens_count = blocks_count / groups_count * sizing.cache.block_tokens;
  plan.requests_count =
      static_cast<double>(blocks_count) / static_cast<double>(sizing.blocks_per_request);
  return plan;
}

std::string Describe(const KvPlan& plan, int64_t max_model_len) {
  const CacheSpec& cache = plan.cache;
  return fmt::format(
      "KV cache: {} a token, {} blocks of {} tokens ({}), {} tokens, {:.1f} requests of {} tokens",
      FormatBytes(static_cast<double>(plan.bytes_per_token)), cache.blocks_count,
      cache.block_tokens,
      FormatBytes(static_cast<double>(cache.blocks_count) * static_cast<double>(cache.block_bytes)),
      plan.tokens_count, plan.requests_count, max_model_len);
}

}  // namespace kvasir::runner
