// Log-probabilities of one row: raw log-softmax, before temperature, penalties and masks.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "contract/request.h"
#include "sample/row.h"

namespace kvasir::sample {

class RowLogprobs {
 public:
  /// `logits` [V] must outlive the result. An error where the row is no distribution (CheckFinite).
  static Result<RowLogprobs> Make(std::span<const float> logits);

  /// -infinity where the logit is.
  [[nodiscard]] float Of(TokenId token) const;
  /// 1 = most probable; equal logits rank by id, as in Top.
  [[nodiscard]] int32_t Rank(TokenId token) const;
  /// The min(count, V) most probable, descending; equal ones by ascending id.
  [[nodiscard]] std::vector<std::pair<TokenId, float>> Top(int64_t count) const;
  /// All of the above for one token. `selected` ids outside of [0, V) are left out.
  [[nodiscard]] TokenLogprobs For(TokenId token, int64_t top_count,
                                  std::span<const TokenId> selected) const;

 private:
  RowLogprobs() = default;

  std::span<const float> logits_;
  RowScan scan_;
  double log_sum_ = 0.0;  ///< log sum_i e^(logits[i])
};

}  // namespace kvasir::sample
