#include "sample/adjust.h"

#include <algorithm>
#include <limits>

namespace kvasir::sample {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

std::span<const TokenId> Output(const SampleSlot& slot) {
  return slot.history.subspan(static_cast<size_t>(slot.prompt_tokens_count));
}

bool StopsMasked(const SampleSlot& slot) {
  return static_cast<int64_t>(Output(slot).size()) < slot.params->min_tokens;
}

bool HasPenalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
         params.presence_penalty != 0.0f;
}

// True where `output` ends with all of `word` but its last token.
bool WouldComplete(std::span<const TokenId> output, const std::vector<TokenId>& word) {
  if (word.empty() || word.size() - 1 > output.size()) return false;
  return std::equal(word.begin(), word.end() - 1,
                    output.end() - static_cast<std::ptrdiff_t>(word.size() - 1));
}

}  // namespace

std::span<const float> LogitsAdjuster::Adjust(std::span<const float> logits,
                                              const SampleSlot& slot) {
  const SamplingParams& params = *slot.params;
  const bool applies = !params.allowed_token_ids.empty() || !params.bad_words.empty() ||
                       (StopsMasked(slot) && !params.stop_token_ids.empty()) ||
                       !params.logit_bias.empty() || HasPenalties(params);
  if (!applies) return logits;
  if (params.allowed_token_ids.empty()) {
    adjusted_.assign(logits.begin(), logits.end());
  } else {
    adjusted_.assign(logits.size(), kMasked);
    for (const TokenId id : params.allowed_token_ids) {
      const auto at = static_cast<size_t>(id);  // negative ids become large
      if (at < logits.size()) adjusted_[at] = logits[at];
    }
  }
  Mask(slot);
  AddBias(slot);
  if (HasPenalties(params)) Penalize(slot);
  return adjusted_;
}

void LogitsAdjuster::Mask(const SampleSlot& slot) {
  const auto mask = [this](TokenId id) {
    const auto at = static_cast<size_t>(id);
    if (at < adjusted_.size()) adjusted_[at] = kMasked;
  };
  for (const std::vector<TokenId>& word : slot.params->bad_words) {
    if (WouldComplete(Output(slot), word)) mask(word.back());
  }
  if (!StopsMasked(slot)) return;
  for (const TokenId id : slot.params->stop_token_ids) mask(id);
}

void LogitsAdjuster::AddBias(const SampleSlot& slot) {
  for (const auto& [id, bias] : slot.params->logit_bias) {
    const auto at = static_cast<size_t>(id);
    if (at < adjusted_.size()) adjusted_[at] += bias;
  }
}

void LogitsAdjuster::Penalize(const SampleSlot& slot) {
  const SamplingParams& params = *slot.params;
  constexpr int32_t kPromptOnly = -1;
  output_counts_.resize(adjusted_.size());
  seen_.clear();
  for (const TokenId id : Output(slot)) {
    const auto at = static_cast<size_t>(id);
    if (at < adjusted_.size() && output_counts_[at]++ == 0) seen_.push_back(id);
  }
  // The prompt matters to repetition alone.
  if (params.repetition_penalty != 1.0f) {
    for (const TokenId id : slot.history.first(static_cast<size_t>(slot.prompt_tokens_count))) {
      const auto at = static_cast<size_t>(id);
      if (at >= adjusted_.size() || output_counts_[at] != 0) continue;
      output_counts_[at] = kPromptOnly;
      seen_.push_back(id);
    }
  }
  for (const TokenId id : seen_) {
    const auto at = static_cast<size_t>(id);
    float& logit = adjusted_[at];
    logit = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    const int32_t count = output_counts_[at];
    if (count > 0) {
      logit -= params.frequency_penalty * static_cast<float>(count);
      logit -= params.presence_penalty;
    }
    output_counts_[at] = 0;
  }
}

}  // namespace kvasir::sample
