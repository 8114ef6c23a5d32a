// What a request may do to the logits before a token is chosen: masks, biases and penalties.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "contract/step.h"

namespace kvasir::sample {

/// Masked ids get -infinity. In this order (vLLM's):
///   1. allowed_token_ids: all others are masked;
///   2. bad_words: the last token of a sequence is masked where the output ends with those before
///   it;
///   3. min_tokens: stop_token_ids are masked while the output is shorter;
///   4. logit_bias is added;
///   5. for each token of prompt and output: logit / repetition_penalty where positive, else logit
///   *
///      repetition_penalty; then for each of the output: less frequency_penalty * its count there,
///      less presence_penalty.
/// Ids outside of the row mean nothing and are passed over.
class LogitsAdjuster {
 public:
  /// Returns `logits` where nothing applies, else an adjusted copy that lives until the next call.
  std::span<const float> Adjust(std::span<const float> logits, const SampleSlot& slot);

 private:
  void Mask(const SampleSlot& slot);
  void AddBias(const SampleSlot& slot);
  void Penalize(const SampleSlot& slot);

  std::vector<float> adjusted_;
  std::vector<int32_t> output_counts_;  ///< [V], zeros between calls
  std::vector<TokenId> seen_;
};

}  // namespace kvasir::sample
