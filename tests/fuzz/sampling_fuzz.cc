// Sampling parameters against logits: whatever was asked, what is drawn is allowed.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "fuzz/target.h"
#include "sample/logprobs.h"
#include "sample/sampler.h"

namespace kvasir::fuzz {
namespace {

std::vector<TokenId> TakeIds(Numbers& numbers, int64_t vocab_size) {
  std::vector<TokenId> ids(numbers.Byte() % 5);
  // Some lie outside of the row.
  for (TokenId& id : ids) id = static_cast<TokenId>(numbers.Byte() % (vocab_size + 3)) - 1;
  return ids;
}

KVASIR_FUZZ_TARGET(sampling) {
  Numbers numbers(input);
  const int64_t vocab_size = 1 + numbers.Byte();
  SamplingParams params;
  // The ranges that the server lets through.
  params.temperature = std::min(std::abs(numbers.Float()), 1e4f);
  params.top_p = std::clamp(numbers.Float(), 1e-6f, 1.0f);
  params.top_k = numbers.Byte();
  params.min_p = std::clamp(numbers.Float(), 0.0f, 1.0f);
  params.repetition_penalty = std::clamp(numbers.Float(), 1e-3f, 1e3f);
  params.presence_penalty = std::clamp(numbers.Float(), -2.0f, 2.0f);
  params.frequency_penalty = std::clamp(numbers.Float(), -2.0f, 2.0f);
  for (const TokenId id : TakeIds(numbers, vocab_size)) {
    params.logit_bias.emplace_back(id, std::clamp(numbers.Float(), -100.0f, 100.0f));
  }
  params.allowed_token_ids = TakeIds(numbers, vocab_size);
  params.stop_token_ids = TakeIds(numbers, vocab_size);
  params.bad_words.push_back(TakeIds(numbers, vocab_size));
  if (params.bad_words.back().empty()) params.bad_words.clear();
  params.min_tokens = numbers.Byte() % 4;
  params.logprob_token_ids = TakeIds(numbers, vocab_size);
  std::vector<TokenId> history(1 + numbers.Byte() % 16);
  for (TokenId& id : history) id = static_cast<TokenId>(numbers.Byte() % vocab_size);
  SampleSlot slot;
  slot.params = &params;
  slot.seed = numbers.Word();
  slot.history = history;
  slot.prompt_tokens_count = 1 + static_cast<int64_t>(numbers.Byte() % history.size());
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  for (float& logit : logits) {
    logit = numbers.empty() ? -1.0f : numbers.Float();
  }

  sample::Sampler sampler;
  const auto drawn = sampler.Draw(logits, slot);
  if (drawn.ok()) {
    KVASIR_CHECK(*drawn >= 0 && *drawn < vocab_size, "{} of {}", *drawn, vocab_size);
    KVASIR_CHECK(logits[static_cast<size_t>(*drawn)] != -INFINITY);
    const auto& allowed = params.allowed_token_ids;
    KVASIR_CHECK(allowed.empty() ||
                 std::find(allowed.begin(), allowed.end(), *drawn) != allowed.end());
    const auto again = sampler.Draw(logits, slot);
    KVASIR_CHECK(again.ok() && *again == *drawn, "not the same twice");
  } else {
    ExpectOneLine(drawn.error());
  }
  const auto logprobs = sample::RowLogprobs::Make(logits);
  if (!logprobs.ok()) return ExpectOneLine(logprobs.error());
  const TokenLogprobs scores = logprobs->For(0, params.top_k, params.logprob_token_ids);
  KVASIR_CHECK(scores.rank >= 1 && scores.rank <= vocab_size);
  KVASIR_CHECK(!(scores.logprob > 1e-5f), "{}", scores.logprob);
  KVASIR_CHECK(std::is_sorted(scores.top.begin(), scores.top.end(),
                              [](const auto& a, const auto& b) { return a.second > b.second; }));
}

}  // namespace
}  // namespace kvasir::fuzz
