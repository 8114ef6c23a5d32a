#include "sample/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"

namespace kvasir::sample {
namespace {

constexpr float kGreedyBelow = 1e-5f;

bool ById(const Candidate& a, const Candidate& b) { return a.id < b.id; }
bool ByRank(const Candidate& a, const Candidate& b) { return a.RanksBefore(b); }

double Uniform(const SampleSlot& slot) { return UniformAt(slot.seed, slot.history.size()); }

}  // namespace

Result<TokenId> Sampler::Draw(std::span<const float> logits, const SampleSlot& slot) {
  const SamplingParams& params = *slot.params;
  KVASIR_CHECK(slot.prompt_tokens_count <= static_cast<int64_t>(slot.history.size()));
  const std::span<const float> row = adjuster_.Adjust(logits, slot);
  Scan(row, scan_);
  KVASIR_RETURN_IF_ERROR(CheckAdjusted(logits, row.data() != logits.data(), *slot.params));
  if (params.temperature < kGreedyBelow) return scan_.argmax;
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < row.size()) {
    return DrawFromTopK(row, slot);
  }
  return DrawFromAll(row, slot);
}

Status Sampler::CheckAdjusted(std::span<const float> logits, bool adjusted,
                              const SamplingParams& params) {
  Status status = CheckFinite(scan_);
  if (status.ok() || !adjusted) return status;
  // Whose fault is it: the model's, or the request's?
  RowScan raw;
  Scan(logits, raw);
  KVASIR_RETURN_IF_ERROR(CheckFinite(raw));
  if (scan_.has_nan || scan_.max > 0.0f) {
    return MakeParamError(ErrorCode::kInvalidArgument,
                          params.logit_bias.empty() ? "repetition_penalty" : "logit_bias",
                          "logit_bias or a penalty is too large: a logit is no longer finite");
  }
  // The field that excludes most.
  const char* field = !params.allowed_token_ids.empty() ? "allowed_token_ids"
                      : !params.logit_bias.empty()      ? "logit_bias"
                      : !params.bad_words.empty()       ? "bad_words"
                                                        : "min_tokens";
  return MakeParamError(ErrorCode::kInvalidArgument, field,
                        "no token is left to draw: allowed_token_ids, bad_words, logit_bias and "
                        "min_tokens together exclude all of them");
}

TokenId Sampler::DrawFromTopK(std::span<const float> row, const SampleSlot& slot) {
  const SamplingParams& params = *slot.params;
  CollectAtLeast(row, scan_, ReachedBy(scan_, params.top_k), candidates_);
  // min_p and top_k both keep a beginning of the ranking, so either may go first.
  KeepFirst(candidates_, params.top_k);
  std::sort(candidates_.begin(), candidates_.end(), ById);
  weights_.resize(candidates_.size());
  std::vector<float> kept_logits(candidates_.size());
  for (size_t i = 0; i < candidates_.size(); ++i) kept_logits[i] = candidates_[i].logit;
  const double total = ExpWeights(kept_logits, scan_.max, 1.0f / params.temperature, params.min_p,
                                  weights_, block_sums_);
  for (size_t i = 0; i < candidates_.size(); ++i) candidates_[i].weight = weights_[i];
  if (params.top_p < 1.0f) KeepTopP(static_cast<double>(params.top_p) * total);
  return DrawCandidate(Uniform(slot));
}

TokenId Sampler::DrawFromAll(std::span<const float> row, const SampleSlot& slot) {
  const SamplingParams& params = *slot.params;
  weights_.resize(row.size());
  const double total =
      ExpWeights(row, scan_.max, 1.0f / params.temperature, params.min_p, weights_, block_sums_);
  if (params.top_p >= 1.0f) return DrawWeighted(Uniform(slot), total);
  CollectTopPCandidates(row, total, static_cast<double>(params.top_p));
  KeepTopP(static_cast<double>(params.top_p) * total);
  return DrawCandidate(Uniform(slot));
}

void Sampler::CollectTopPCandidates(std::span<const float> row, double total, double top_p) {
  // What weighs less than (1 - p) total / V cannot survive: with all that weigh no more, at most V
  // ids, it weighs less than the 1 - p that may go. The margin covers the sums' rounding.
  const double share = std::max(0.0, 1.0 - top_p - 1e-9);
  const auto lightest = share * total / static_cast<double>(row.size());
  candidates_.clear();
  for (size_t block = 0; block < block_sums_.size(); ++block) {
    if (block_sums_[block] < lightest) continue;
    const size_t first = block * static_cast<size_t>(kBlockIds);
    const size_t end = std::min(row.size(), first + static_cast<size_t>(kBlockIds));
    for (size_t i = first; i < end; ++i) {
      const float weight = weights_[i];
      if (weight > 0.0f && static_cast<double>(weight) >= lightest) {
        candidates_.push_back({static_cast<TokenId>(i), row[i], weight});
      }
    }
  }
}

void Sampler::KeepTopP(double target) {
  // Bisects the ranking for the last candidate before which less than `target` lies. `before` is
  // the weight of all that rank before `first`.
  ranked_ = candidates_;
  const auto at = [this](size_t index) {
    return ranked_.begin() + static_cast<std::ptrdiff_t>(index);
  };
  size_t first = 0;
  size_t last = ranked_.size();
  double before = 0.0;
  while (last - first > 1) {
    const size_t middle = first + (last - first) / 2;
    std::nth_element(at(first), at(middle), at(last), ByRank);
    double upper = 0.0;
    for (size_t i = first; i < middle; ++i) upper += static_cast<double>(ranked_[i].weight);
    if (before + upper < target) {
      before += upper;
      first = middle;
    } else {
      last = middle;
    }
  }
  const Candidate lowest = ranked_[first];
  std::erase_if(candidates_, [&](const Candidate& other) { return lowest.RanksBefore(other); });
}

TokenId Sampler::DrawCandidate(double uniform) const {
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += static_cast<double>(candidate.weight);
  const double target = uniform * total;
  double sum = 0.0;
  TokenId drawn = scan_.argmax;
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight == 0.0f) continue;
    sum += static_cast<double>(candidate.weight);
    drawn = candidate.id;
    if (sum > target) break;
  }
  return drawn;
}

TokenId Sampler::DrawWeighted(double uniform, double total) const {
  const double target = uniform * total;
  double before = 0.0;
  size_t block = 0;
  size_t last_heavy =
      0;  // the block to fall back on where rounding leaves the target beyond the end
  for (; block < block_sums_.size(); ++block) {
    if (block_sums_[block] > 0.0) last_heavy = block;
    if (before + block_sums_[block] > target) break;
    before += block_sums_[block];
  }
  if (block == block_sums_.size()) block = last_heavy;
  const size_t first = block * static_cast<size_t>(kBlockIds);
  const size_t end = std::min(weights_.size(), first + static_cast<size_t>(kBlockIds));
  TokenId drawn = scan_.argmax;
  for (size_t i = first; i < end; ++i) {
    if (weights_[i] == 0.0f) continue;
    before += static_cast<double>(weights_[i]);
    drawn = static_cast<TokenId>(i);
    if (before > target) break;
  }
  return drawn;
}

}  // namespace kvasir::sample
