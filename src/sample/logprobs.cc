#include "sample/logprobs.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kvasir::sample {

Result<RowLogprobs> RowLogprobs::Make(std::span<const float> logits) {
  RowLogprobs row;
  row.logits_ = logits;
  Scan(logits, row.scan_);
  KVASIR_RETURN_IF_ERROR(CheckFinite(row.scan_));
  row.log_sum_ = static_cast<double>(row.scan_.max) + std::log(ExpSum(logits, row.scan_.max));
  return row;
}

float RowLogprobs::Of(TokenId token) const {
  KVASIR_CHECK(token >= 0 && static_cast<size_t>(token) < logits_.size(), "token {} of {}", token,
               logits_.size());
  return static_cast<float>(static_cast<double>(logits_[static_cast<size_t>(token)]) - log_sum_);
}

int32_t RowLogprobs::Rank(TokenId token) const {
  KVASIR_CHECK(token >= 0 && static_cast<size_t>(token) < logits_.size(), "token {} of {}", token,
               logits_.size());
  const auto at = logits_.begin() + token;
  const float logit = *at;
  const auto before =
      std::count_if(logits_.begin(), at, [logit](float other) { return other >= logit; });
  const auto after =
      std::count_if(at + 1, logits_.end(), [logit](float other) { return other > logit; });
  return static_cast<int32_t>(1 + before + after);
}

std::vector<std::pair<TokenId, float>> RowLogprobs::Top(int64_t count) const {
  std::vector<std::pair<TokenId, float>> top;
  if (count <= 0) return top;
  std::vector<Candidate> candidates;
  CollectAtLeast(logits_, scan_, ReachedBy(scan_, count), candidates);
  KeepFirst(candidates, count);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.RanksBefore(b); });
  top.reserve(candidates.size());
  for (const Candidate& candidate : candidates) {
    top.emplace_back(candidate.id, Of(candidate.id));
  }
  return top;
}

TokenLogprobs RowLogprobs::For(TokenId token, int64_t top_count,
                               std::span<const TokenId> selected) const {
  TokenLogprobs logprobs;
  logprobs.token = token;
  logprobs.logprob = Of(token);
  logprobs.rank = Rank(token);
  logprobs.top = Top(top_count);
  for (const TokenId id : selected) {
    if (id < 0 || static_cast<size_t>(id) >= logits_.size()) continue;
    logprobs.selected.emplace_back(id, Of(id));
  }
  return logprobs;
}

}  // namespace kvasir::sample
