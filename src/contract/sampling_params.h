// How one request wants its tokens drawn. Order of application: api.md of the docs, "Sampling".
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "contract/types.h"

namespace kvasir {

/// Values are already validated and defaulted by the server; the sampler trusts them.
struct SamplingParams {
  float temperature = 1.0f;         ///< 0 means greedy
  float top_p = 1.0f;               ///< (0, 1]
  int32_t top_k = 0;                ///< 0 means all
  float min_p = 0.0f;               ///< [0, 1]
  float repetition_penalty = 1.0f;  ///< > 0, over prompt and output
  float presence_penalty = 0.0f;    ///< over output
  float frequency_penalty = 0.0f;   ///< over output
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> allowed_token_ids;       ///< empty means all
  std::vector<std::vector<TokenId>> bad_words;  ///< token sequences that may not be completed
  int64_t min_tokens = 0;                       ///< until then stop_token_ids are masked
  std::vector<TokenId> stop_token_ids;     ///< explicit ones and, unless ignore_eos, the EOS set
  uint64_t seed = 0;                       ///< choice i of a request draws from stream (seed, i)
  int32_t logprobs = -1;                   ///< -1 none, 0 the sampled token's, k the top k too
  std::vector<TokenId> logprob_token_ids;  ///< further ids whose logprobs are wanted
};

}  // namespace kvasir
