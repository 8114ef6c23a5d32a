// Passes over one row of logits [V]: what sampling and log-probabilities have in common.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "contract/types.h"

namespace kvasir::sample {

/// Rows are looked at in blocks of this many ids, so that later passes skip most of them.
inline constexpr int64_t kBlockIds = 64;

struct RowScan {
  float max = 0.0f;
  TokenId argmax = 0;            ///< the lowest id that has the maximum
  bool has_nan = false;          ///< then nothing else here means anything
  std::vector<float> block_max;  ///< of ids [64 b, 64 b + 64)
};

/// One pass. `row` is not empty. Reuses the storage of `scan`.
void Scan(std::span<const float> row, RowScan& scan);

/// An id that is still in the running. Candidates rank by logit, equal ones by ascending id.
struct Candidate {
  TokenId id = 0;
  float logit = 0.0f;
  float weight = 0.0f;  ///< proportional to its probability, where one is wanted

  [[nodiscard]] bool RanksBefore(const Candidate& other) const {
    return logit != other.logit ? logit > other.logit : id < other.id;
  }
};

/// A value that at least `count` of the row's logits reach: the count-th highest maximum of a
/// block, or -infinity where there are fewer blocks.
[[nodiscard]] float ReachedBy(const RowScan& scan, int64_t count);

/// Replaces `candidates` by all ids with a logit of at least `threshold`, in ascending order. Skips
/// whole blocks.
void CollectAtLeast(std::span<const float> row, const RowScan& scan, float threshold,
                    std::vector<Candidate>& candidates);

/// Leaves the `count` first of the ranking (all, where there are fewer), in any order.
void KeepFirst(std::vector<Candidate>& candidates, int64_t count);

/// An error that names the fault where a scanned row is no distribution: it holds NaN or +infinity,
/// or nothing but -infinity.
[[nodiscard]] Status CheckFinite(const RowScan& scan);

/// weights[i] = e^(inverse_temperature (row[i] - max)), or 0 where that is below min_weight;
/// block_sums[b] = their sum over block b. `weights` is as long as `row`. Returns the sum of all.
double ExpWeights(std::span<const float> row, float max, float inverse_temperature,
                  float min_weight, std::span<float> weights, std::vector<double>& block_sums);

/// sum_i e^(row[i] - max).
[[nodiscard]] double ExpSum(std::span<const float> row, float max);

}  // namespace kvasir::sample
