// The other way round: which machines and settings satisfy so many users, such a context and such
// latencies.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/answer.h"

namespace kvasir::plan {

struct Goal {
  std::optional<double> ttft_s;  ///< until a prompt's first token, others decoding beside it
  std::optional<double> itl_s;   ///< longest gap between tokens, prompts of others included
  bool tensor_fixed = false;     ///< choices.parallel.tensor alone; else 1, 2, 4, ...
};

/// One machine with settings.
struct Candidate {
  std::string hardware;
  Parallel parallel;
  std::string weights;  ///< "as shipped", "fp8", ...
  std::string kv;
  int64_t step_tokens = 0;
  std::optional<double> price_per_hour;  ///< of all devices; none: unknown
  int64_t users_paged = 0;
  double itl_s = 0;         ///< with a chunk of somebody's prompt in the step
  double decode_itl_s = 0;  ///< without
  double ttft_s = 0;
  std::string failure;   ///< why it does not satisfy; empty: it does
  double shortfall = 0;  ///< how far it is from satisfying: 1 is a miss by half, and so on
};

struct SearchResult {
  std::vector<Candidate> satisfying;  ///< cheapest first
  std::vector<Candidate> failing;     ///< of each machine that cannot, its nearest try
};

/// Tries the machines with 1, 2, 4, ... devices as far as they are linked, the weights as shipped,
/// in FP8 and in 4 bits (or as choices.weights says), and the largest step that keeps the goal (or
/// choices.step_tokens).
/// choices.users and choices.context_tokens must be set. Errors name the flag.
[[nodiscard]] Result<SearchResult> Search(const ModelShape& model,
                                          const std::vector<Hardware>& machines,
                                          const Choices& choices, const Goal& goal);

[[nodiscard]] std::string ToTable(const SearchResult& result, const ModelShape& model,
                                  const Choices& choices, const Goal& goal);
[[nodiscard]] nlohmann::ordered_json ToJson(const SearchResult& result);

}  // namespace kvasir::plan
