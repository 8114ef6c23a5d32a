// Logits to token. Deterministic: a draw depends on its row, its request's parameters and history,
// its seed and its position, and on nothing that ran beside it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "contract/step.h"
#include "sample/adjust.h"
#include "sample/row.h"

namespace kvasir::sample {

/// Scratch of a drawing thread; one a worker.
class Sampler {
 public:
  /// Draws the token that follows slot.history from `logits` [V]. In this order (vLLM's):
  ///   1. masks, biases, penalties (adjust.h);
  ///   2. temperature below 1e-5: the highest logit, the lowest id among equals. Else logits are
  ///      divided by the temperature and
  ///   3. min_p keeps what has at least min_p times the highest probability;
  ///   4. top_k keeps the k first (of equals the lowest ids);
  ///   5. top_p keeps, of what is left, the fewest first whose share reaches top_p;
  ///   6. the draw inverts the cumulative distribution, ids ascending, at
  ///      UniformAt(slot.seed, slot.history.size()).
  /// Errors: kInternal where the logits hold NaN or +infinity or are all -infinity;
  /// kInvalidArgument where the request's masks leave nothing or its penalties overflow.
  Result<TokenId> Draw(std::span<const float> logits, const SampleSlot& slot);

 private:
  [[nodiscard]] Status CheckAdjusted(std::span<const float> logits, bool adjusted,
                                     const SamplingParams& params);
  TokenId DrawFromTopK(std::span<const float> row, const SampleSlot& slot);
  TokenId DrawFromAll(std::span<const float> row, const SampleSlot& slot);
  void CollectTopPCandidates(std::span<const float> row, double total, double top_p);
  void KeepTopP(double target);
  [[nodiscard]] TokenId DrawCandidate(double uniform) const;
  [[nodiscard]] TokenId DrawWeighted(double uniform, double total) const;

  LogitsAdjuster adjuster_;
  RowScan scan_;
  std::vector<float> weights_;         ///< [V]
  std::vector<double> block_sums_;     ///< of weights_, by block
  std::vector<Candidate> candidates_;  ///< ascending ids where a token is drawn from them
  std::vector<Candidate> ranked_;      ///< KeepTopP's copy, in its order
};

}  // namespace kvasir::sample
