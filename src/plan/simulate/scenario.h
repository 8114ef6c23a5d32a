// A server to simulate: model, machine and settings, sized as the server sizes itself.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/config.h"
#include "plan/hardware.h"
#include "plan/model_shape.h"
#include "plan/number_format.h"
#include "plan/roofline.h"
#include "plan/simulate/calibration.h"
#include "plan/simulate/step_cost.h"

namespace kvasir::plan {

/// Tokens of a step, at most: more than any machine computes in minutes.
inline constexpr int64_t kStepTokensMax = 100'000'000;

struct ScenarioSpec {
  std::string variant;  ///< its name in a comparison

  ModelShape shape;
  std::optional<Hardware> hardware;        ///< one of the two at least
  std::optional<Calibration> calibration;  ///< wins for the time of a step
  std::string weights;                     ///< a format's name; empty: as shipped
  NumberFormat kv;
  int64_t tensor_parallel = 1;
  double utilization = 0.95;     ///< of the machine's memory
  double bandwidth_share = 0.8;  ///< of the data sheet's that is reached
  double compute_share = 0.5;

  int64_t num_kv_blocks = 0;    ///< of `block_tokens`; 0: by size
  int64_t kv_memory_bytes = 0;  ///< 0: what the machine has left
  int64_t block_tokens = 16;
  int64_t max_model_len = 0;           ///< 0: the model's, or what the cache holds if that is less
  int64_t max_num_batched_tokens = 0;  ///< 0: what the machine computes in about 0.15 s
  /// All but what is worked out from the above.
  engine::EngineConfig engine;
};

struct Scenario {
  std::string variant;
  engine::EngineConfig engine;
  std::shared_ptr<const StepCostModel> cost;
  int64_t weights_bytes = 0;
  std::vector<std::string> notes;  ///< what was worked out and may surprise
};

/// Errors: a model that does not fit the machine, sizes that do not fit each other.
[[nodiscard]] Result<Scenario> MakeScenario(const ScenarioSpec& spec);

/// Of one comparison, whose setting is `compared`: with KV caches of one size wherever that is not
/// about memory, and a note where sizes differ all the same.
[[nodiscard]] Result<std::vector<Scenario>> MakeScenarios(std::vector<ScenarioSpec> specs,
                                                          std::string_view compared);

/// The variants of `compare`: kv-allocation, batching, prefix-caching, chunked-prefill, or a list:
/// block-size=8,16,32, weights=bf16,fp8, max-num-seqs=..., max-num-batched-tokens=..., hardware=...
/// A list of block sizes keeps the cache's bytes.
[[nodiscard]] Result<std::vector<ScenarioSpec>> MakeVariants(const ScenarioSpec& base,
                                                             std::string_view compare);

}  // namespace kvasir::plan
