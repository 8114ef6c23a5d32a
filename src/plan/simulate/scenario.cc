#include "plan/simulate/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "cache/capacity.h"
#include "files/printable.h"
#include "plan/memory.h"
#include "plan/simulate/cost_models.h"

namespace kvasir::plan {

namespace {

/// The longest that a running stream should wait for somebody else's prompt.
constexpr double kStepSeconds = 0.15;
constexpr int64_t kStepTokensMaxCpu = 2048;
constexpr int64_t kStepTokensMaxGpu = 8192;
/// As in the server: the pool keeps some bytes a block from the start.
constexpr int64_t kMostBlocks = int64_t{1} << 24;
// As the flags that set one of them.
constexpr int64_t kBlockTokensMax = 1024;
constexpr int64_t kSeqsMax = 65'536;

int64_t BlocksFor(const CacheSpec& cache, const engine::EngineConfig& config, int64_t tokens) {
  if (config.kv_allocation == engine::KvAllocation::kReserved) {
    return cache::BlocksFor(tokens, cache.block_tokens) * static_cast<int64_t>(cache.groups.size());
  }
  return cache::PeakBlocks(cache, tokens, config.enable_chunked_prefill ? 1 : tokens);
}

/// The longest request that `blocks` hold.
int64_t LongestThatFits(const CacheSpec& cache, const engine::EngineConfig& config, int64_t blocks,
                        int64_t most) {
  int64_t low = 0;
  int64_t high = most;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (BlocksFor(cache, config, middle) <= blocks) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// What is chosen for each part of the weights.
struct Weights {
  bool as_shipped = true;
  WeightFormats formats;
};

Result<Weights> ChooseWeights(const ScenarioSpec& spec) {
  if (spec.weights.empty()) {
    // A calibration has measured them, whatever they are.
    if (!spec.calibration) KVASIR_RETURN_IF_ERROR(CheckShipped(spec.shape));
    return Weights{true, spec.shape.shipped};
  }
  const auto format = ParseWeightFormat(spec.weights);
  if (!format.ok()) {
    return MakeError(ErrorCode::kInvalidArgument, "--weights: {}", format.error().message);
  }
  return Weights{false, FormatsWith(spec.shape, *format)};
}

MemoryOptions MemoryOptionsOf(const ScenarioSpec& spec, const Weights& weights,
                              int64_t step_tokens) {
  MemoryOptions options;
  options.as_shipped = weights.as_shipped;
  options.weights = weights.formats;
  options.kv = spec.kv;
  options.block_tokens = spec.block_tokens;
  options.parallel.tensor = spec.tensor_parallel;
  options.utilization = spec.utilization;
  options.step_tokens = step_tokens;
  return options;
}

std::string Gigabytes(int64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

/// In front of what is wrong with one variant of several.
std::string Of(const ScenarioSpec& spec) { return spec.variant.empty() ? "" : spec.variant + ": "; }

/// What the machine leaves for the KV cache, the states of all seats set aside.
int64_t BlocksLeft(const MemoryPlan& plan, const engine::EngineConfig& config) {
  const int64_t states = config.max_num_seqs * plan.state_bytes_per_sequence;
  const int64_t bytes = plan.cache.block_bytes;
  return plan.cache.blocks_count - (states + bytes - 1) / bytes;
}

Error DoesNotFit(const ScenarioSpec& spec, const Weights& weights, const MemoryPlan& plan,
                 const engine::EngineConfig& config) {
  const auto fails = [&](const std::string& rows, const std::string& cure) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "{}{} does not fit {} x {}: weights take {}{} of {} on each, and what is left "
                     "holds no KV cache{}",
                     Of(spec), spec.shape.name, spec.tensor_parallel, spec.hardware->name,
                     Gigabytes(plan.weights_bytes_per_device), rows,
                     Gigabytes(plan.usable_bytes_per_device), cure);
  };
  // A step of fewer tokens helps only where one of a single token would.
  const MemoryPlan least =
      PlanMemory(*spec.hardware, spec.shape, MemoryOptionsOf(spec, weights, 1));
  if (BlocksLeft(least, config) < std::ssize(config.cache.groups)) return fails("", "");
  const char* cure = "a smaller --max-num-batched-tokens takes less";
  if (!config.enable_chunked_prefill) {
    cure = spec.max_num_batched_tokens > 0
               ? "a smaller --max-model-len with a smaller --max-num-batched-tokens takes less, or "
                 "chunked prefill"
               : "without chunked prefill a prompt is computed whole: a smaller --max-model-len "
                 "takes less";
  }
  return fails(fmt::format(" and the rows of a step of {} tokens {}", config.max_num_batched_tokens,
                           Gigabytes(plan.activations_bytes_per_device)),
               fmt::format("; {}", cure));
}

Result<std::unique_ptr<StepCostModel>> MakeCost(const ScenarioSpec& spec, const Weights& weights,
                                                const CacheSpec& cache) {
  if (spec.calibration) {
    if (!spec.weights.empty()) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "a calibration holds for the weights that were measured: other formats "
                       "need --hardware without --calibration");
    }
    return MakeCalibratedCost(*spec.calibration, cache.groups);
  }
  RooflineOptions options;
  options.weights = weights.formats;
  options.kv = spec.kv;
  options.parallel.tensor = spec.tensor_parallel;
  options.bandwidth_share = spec.bandwidth_share;
  options.compute_share = spec.compute_share;
  return MakeRooflineCost(*spec.hardware, spec.shape, options);
}

/// As many as the pool can hold.
Status CheckBlocks(const ScenarioSpec& spec, const CacheSpec& cache) {
  if (spec.num_kv_blocks > kMostBlocks) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--num-kv-blocks: expected at most {} blocks, got {}", kMostBlocks,
                     spec.num_kv_blocks);
  }
  const int64_t blocks = spec.kv_memory_bytes / cache.block_bytes;
  if (spec.num_kv_blocks > 0 || spec.kv_memory_bytes == 0 ||
      (blocks > 0 && blocks <= kMostBlocks)) {
    return Status::Ok();
  }
  if (blocks > 0) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--kv-cache-memory-bytes: expected at most {} blocks of {} bytes, got {}",
                     kMostBlocks, cache.block_bytes, spec.kv_memory_bytes);
  }
  return MakeError(ErrorCode::kInvalidArgument,
                   "--kv-cache-memory-bytes: expected at least {} bytes, which a block of {} "
                   "tokens takes, got {}",
                   cache.block_bytes, cache.block_tokens, spec.kv_memory_bytes);
}

Result<int64_t> ChooseBlocks(const ScenarioSpec& spec, const Weights& weights, int64_t length,
                             Scenario& scenario) {
  const CacheSpec& cache = scenario.engine.cache;
  KVASIR_RETURN_IF_ERROR(CheckBlocks(spec, cache));
  const int64_t asked =
      spec.num_kv_blocks > 0 ? spec.num_kv_blocks : spec.kv_memory_bytes / cache.block_bytes;
  if (asked > 0 && !spec.hardware) return asked;
  // More than this nobody can use.
  const int64_t useful =
      std::min(kMostBlocks, spec.engine.max_num_seqs * BlocksFor(cache, scenario.engine, length));
  if (!spec.hardware) return useful;
  const MemoryPlan plan =
      PlanMemory(*spec.hardware, spec.shape,
                 MemoryOptionsOf(spec, weights, scenario.engine.max_num_batched_tokens));
  scenario.weights_bytes = plan.weights_bytes;
  const int64_t blocks = BlocksLeft(plan, spec.engine);
  if (asked > 0) {
    if (asked > blocks) {
      scenario.notes.push_back(fmt::format(
          "{}: a KV cache of {} is more than the {} that {} x {} leaves: simulated all the same",
          spec.num_kv_blocks > 0 ? "--num-kv-blocks" : "--kv-cache-memory-bytes",
          Gigabytes(asked * cache.block_bytes),
          Gigabytes(std::max<int64_t>(0, blocks) * cache.block_bytes), spec.tensor_parallel,
          spec.hardware->name));
    }
    return asked;
  }
  if (blocks < std::ssize(cache.groups)) return DoesNotFit(spec, weights, plan, scenario.engine);
  return std::min(blocks, useful);
}

Status ChooseLength(const ScenarioSpec& spec, int64_t length, Scenario& scenario) {
  engine::EngineConfig& config = scenario.engine;
  const int64_t blocks = config.cache.blocks_count;
  const int64_t longest = LongestThatFits(config.cache, config, blocks, length);
  if (longest == length) return Status::Ok();
  if (spec.max_model_len > 0 || longest == 0) {
    return MakeError(
        ErrorCode::kInvalidArgument,
        "{}the KV cache has {} blocks of {} tokens, but a request of {} tokens takes {}", Of(spec),
        blocks, config.cache.block_tokens, length, BlocksFor(config.cache, config, length));
  }
  config.max_model_len = longest;
  scenario.notes.push_back(
      fmt::format("the KV cache has {} blocks: requests may be {} tokens long, the model could {}",
                  blocks, longest, length));
  return Status::Ok();
}

/// Blocks of every variant where what is compared is not memory; 0: each its own.
int64_t BlocksInCommon(const std::vector<Scenario>& scenarios, std::string_view compared) {
  int64_t least = scenarios[0].engine.cache.blocks_count;
  int64_t most = least;
  for (const Scenario& scenario : scenarios) {
    least = std::min(least, scenario.engine.cache.blocks_count);
    most = std::max(most, scenario.engine.cache.blocks_count);
  }
  if (least == most) return 0;
  // The machine leaves the same for both, and more than one of them can use is of use to the other.
  if (compared == "kv-allocation") return most;
  // The rows of a longer step leave less.
  const bool switched =
      compared == "batching" || compared == "prefix-caching" || compared == "chunked-prefill";
  return switched ? least : 0;
}

void NoteOtherSizes(std::vector<Scenario>& scenarios) {
  const auto bytes = [](const Scenario& scenario) {
    return scenario.engine.cache.blocks_count * scenario.engine.cache.block_bytes;
  };
  int64_t most = 0;
  int64_t block = 0;
  for (const Scenario& scenario : scenarios) {
    most = std::max(most, bytes(scenario));
    block = std::max(block, scenario.engine.cache.block_bytes);
  }
  for (Scenario& scenario : scenarios) {
    if (bytes(scenario) + block > most) continue;  // but for a last block
    scenario.notes.push_back(
        fmt::format("the KV cache takes {}, another variant's {}: --num-kv-blocks makes them equal",
                    Gigabytes(bytes(scenario)), Gigabytes(most)));
  }
}

std::vector<std::string_view> SplitList(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

Result<int64_t> NumberOf(std::string_view name, std::string_view text, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--compare {}: expected whole numbers from 1 to {}, got '{}'", name, most,
                     files::Printable(text, 40));
  }
  return value;
}

ScenarioSpec Named(const ScenarioSpec& base, std::string variant) {
  ScenarioSpec spec = base;
  spec.variant = std::move(variant);
  return spec;
}

Result<ScenarioSpec> MakeListed(const ScenarioSpec& base, std::string_view name,
                                std::string_view value) {
  ScenarioSpec spec = Named(base, fmt::format("{} {}", name, value));
  if (name == "weights") {
    spec.variant = value;
    spec.weights = value;
    KVASIR_RETURN_IF_ERROR([&]() -> Status {
      if (value == "as-shipped" || value == "shipped") {
        spec.weights.clear();
        return Status::Ok();
      }
      const auto format = ParseWeightFormat(value);
      if (format.ok()) {
        spec.weights = format->name;  // in one spelling
        return Status::Ok();
      }
      return MakeError(ErrorCode::kInvalidArgument, "--compare weights: {}",
                       format.error().message);
    }());
    return spec;
  }
  if (name == "hardware") {
    spec.variant = value;
    auto hardware = FindHardware(value);
    if (!hardware.ok()) {
      return Error{hardware.error().code, "--compare " + hardware.error().message, {}};
    }
    spec.hardware = *std::move(hardware);
    return spec;
  }
  const int64_t most = name == "block-size"     ? kBlockTokensMax
                       : name == "max-num-seqs" ? kSeqsMax
                                                : kStepTokensMax;
  KVASIR_ASSIGN_OR_RETURN(const int64_t number, NumberOf(name, value, most));
  if (name == "block-size") {
    // The same bytes in blocks of another size.
    if (base.num_kv_blocks > 0) {
      KVASIR_RETURN_IF_ERROR(CheckBlocks(base, MakeCacheSpec(base.shape, base.kv, number)));
      spec.num_kv_blocks = std::max<int64_t>(1, base.num_kv_blocks * base.block_tokens / number);
    }
    spec.block_tokens = number;
  } else if (name == "max-num-seqs") {
    spec.engine.max_num_seqs = number;
  } else {
    spec.max_num_batched_tokens = number;
  }
  return spec;
}

/// Of the list of `name`: the same value, though perhaps written otherwise.
bool SameIn(std::string_view name, const ScenarioSpec& a, const ScenarioSpec& b) {
  if (name == "hardware") return a.variant == b.variant;  // two files may use one name
  return a.weights == b.weights && a.block_tokens == b.block_tokens &&
         a.engine.max_num_seqs == b.engine.max_num_seqs &&
         a.max_num_batched_tokens == b.max_num_batched_tokens;
}

}  // namespace

Result<Scenario> MakeScenario(const ScenarioSpec& spec) {
  if (!spec.hardware && !spec.calibration) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "a machine is needed: --hardware NAME, or --calibration FILE");
  }
  if (spec.hardware && spec.tensor_parallel > 1) {
    KVASIR_RETURN_IF_ERROR(
        CheckParallel(*spec.hardware, spec.shape, Parallel{.tensor = spec.tensor_parallel}));
  }
  Scenario scenario;
  scenario.variant = spec.variant;
  scenario.engine = spec.engine;
  engine::EngineConfig& config = scenario.engine;
  config.cache = MakeCacheSpec(spec.shape, spec.kv, spec.block_tokens);
  config.vocab_size = spec.shape.vocab_size;
  if (spec.max_model_len > spec.shape.max_positions) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--max-model-len: the model can stand at {} positions, got {}",
                     spec.shape.max_positions, spec.max_model_len);
  }
  if (spec.max_num_batched_tokens > kStepTokensMax) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--max-num-batched-tokens: expected at most {}, got {}", kStepTokensMax,
                     spec.max_num_batched_tokens);
  }
  config.max_model_len = spec.max_model_len > 0 ? spec.max_model_len : spec.shape.max_positions;

  KVASIR_ASSIGN_OR_RETURN(const Weights weights, ChooseWeights(spec));
  KVASIR_ASSIGN_OR_RETURN(scenario.cost, MakeCost(spec, weights, config.cache));
  config.max_num_batched_tokens = spec.max_num_batched_tokens;
  if (config.max_num_batched_tokens == 0) {
    const bool gpu = spec.hardware && spec.hardware->kind == Hardware::Kind::kGpu;
    const int64_t most = gpu ? kStepTokensMaxGpu : kStepTokensMaxCpu;
    config.max_num_batched_tokens =
        std::max(TokensWithin(*scenario.cost, kStepSeconds, most, config.cache.groups.size()),
                 config.max_num_seqs);
    if (!config.enable_chunked_prefill) {
      config.max_num_batched_tokens = std::max(config.max_num_batched_tokens, config.max_model_len);
    }
  }
  config.max_num_seqs = std::min(config.max_num_seqs, config.max_num_batched_tokens);

  KVASIR_ASSIGN_OR_RETURN(config.cache.blocks_count,
                          ChooseBlocks(spec, weights, config.max_model_len, scenario));
  KVASIR_RETURN_IF_ERROR(engine::ValidateEngineConfig(config));
  KVASIR_RETURN_IF_ERROR(ChooseLength(spec, config.max_model_len, scenario));
  const bool states = std::ranges::any_of(
      spec.shape.layers, [](const LayerShape& layer) { return layer.kind == LayerKind::kLinear; });
  if (states && config.enable_prefix_caching) {
    scenario.notes.emplace_back(
        "linear states are taken as if any cached block could be resumed; a server needs snapshots "
        "of them, which are not counted");
  }
  return scenario;
}

Result<std::vector<Scenario>> MakeScenarios(std::vector<ScenarioSpec> specs,
                                            std::string_view compared) {
  const auto make = [&]() -> Result<std::vector<Scenario>> {
    std::vector<Scenario> scenarios;
    for (const ScenarioSpec& spec : specs) {
      KVASIR_ASSIGN_OR_RETURN(Scenario scenario, MakeScenario(spec));
      scenarios.push_back(std::move(scenario));
    }
    return scenarios;
  };
  KVASIR_ASSIGN_OR_RETURN(std::vector<Scenario> scenarios, make());
  if (const int64_t blocks = BlocksInCommon(scenarios, compared); blocks > 0) {
    for (ScenarioSpec& spec : specs) spec.num_kv_blocks = blocks;
    KVASIR_ASSIGN_OR_RETURN(scenarios, make());
  }
  // Weights and machines differ in the room they leave, which is part of the answer.
  if (compared != "weights" && compared != "hardware") NoteOtherSizes(scenarios);
  return scenarios;
}

Result<std::vector<ScenarioSpec>> MakeVariants(const ScenarioSpec& base, std::string_view compare) {
  const size_t equals = compare.find('=');
  const std::string_view name = compare.substr(0, equals);
  std::vector<ScenarioSpec> variants;
  if (equals != std::string_view::npos) {
    constexpr std::string_view kLists[] = {"block-size", "weights", "hardware", "max-num-seqs",
                                           "max-num-batched-tokens"};
    if (std::ranges::find(kLists, name) != std::end(kLists)) {
      for (const std::string_view value : SplitList(compare.substr(equals + 1))) {
        KVASIR_ASSIGN_OR_RETURN(ScenarioSpec spec, MakeListed(base, name, value));
        if (std::ranges::any_of(variants,
                                [&](const auto& other) { return SameIn(name, spec, other); })) {
          return MakeError(ErrorCode::kInvalidArgument,
                           "--compare {}: expected each value once, got '{}' twice", name,
                           files::Printable(value, 40));
        }
        variants.push_back(std::move(spec));
      }
      return variants;
    }
  } else if (name == "kv-allocation") {
    variants = {Named(base, "reserved"), Named(base, "paged")};
    variants[0].engine.kv_allocation = engine::KvAllocation::kReserved;
    variants[1].engine.kv_allocation = engine::KvAllocation::kPaged;
  } else if (name == "batching") {
    variants = {Named(base, "static"), Named(base, "continuous")};
    variants[0].engine.batching = engine::Batching::kStatic;
    variants[1].engine.batching = engine::Batching::kContinuous;
  } else if (name == "prefix-caching") {
    variants = {Named(base, "no prefix caching"), Named(base, "prefix caching")};
    variants[0].engine.enable_prefix_caching = false;
    variants[1].engine.enable_prefix_caching = true;
  } else if (name == "chunked-prefill") {
    variants = {Named(base, "whole prompts"), Named(base, "chunked prefill")};
    variants[0].engine.enable_chunked_prefill = false;
    variants[1].engine.enable_chunked_prefill = true;
  }
  if (!variants.empty()) return variants;
  return MakeError(ErrorCode::kInvalidArgument,
                   "--compare: expected kv-allocation, batching, prefix-caching, chunked-prefill, "
                   "or a list such as block-size=8,16,32 (of block-size, weights, hardware, "
                   "max-num-seqs, max-num-batched-tokens), got '{}'",
                   compare);
}

}  // namespace kvasir::plan
