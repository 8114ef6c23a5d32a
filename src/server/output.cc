#include "server/output.h"

#include "base/check.h"
#include "server/json_text.h"

namespace kvasir::server {
namespace {

// A character spans a few tokens at most and a word's leading space one, so the prompt's last
// tokens tell the detokenizer all it needs.
constexpr size_t kPrimingTokens = 16;

std::span<const TokenId> Tail(std::span<const TokenId> prompt) {
  return prompt.size() <= kPrimingTokens ? prompt : prompt.last(kPrimingTokens);
}

}  // namespace

ChoiceOutput::ChoiceOutput(const text::Tokenizer& tokenizer, std::span<const TokenId> prompt,
                           const OutputOptions& options)
    : detokenizer_(tokenizer, Tail(prompt), options.skip_special_tokens),
      matcher_(options.stop, options.include_stop),
      stop_(options.stop),
      include_stop_(options.include_stop),
      min_tokens_(options.min_tokens),
      primary_eos_(options.primary_eos) {}

void ChoiceOutput::PushText(std::string_view text, OutputStep& step) {
  if (stop_.empty() || tokens_count_ <= min_tokens_) {
    step.text += text;
    return;
  }
  text::StopMatcher::Output found = matcher_.Push(text);
  step.text += found.emit;
  if (found.match) {
    finished_ = true;
    step.stop_string = true;
    step.finish = Finish{"stop", stop_[*found.match]};
  }
}

OutputStep ChoiceOutput::Push(const TokenEvent& event) {
  KVASIR_CHECK(!finished_);
  OutputStep step;
  if (event.token) {
    ++tokens_count_;
    const bool hidden = event.finish == FinishReason::kStop && !include_stop_;
    if (!hidden) PushText(detokenizer_.Push(*event.token), step);
    if (finished_) return step;
  }
  if (event.finish == FinishReason::kNone) return step;
  PushText(detokenizer_.Flush(), step);
  if (finished_) return step;
  step.text += matcher_.Flush();
  finished_ = true;
  if (event.finish == FinishReason::kStop) {
    Finish finish{"stop", {}};
    if (event.stop_token && event.stop_token != primary_eos_) {
      finish.stop_reason = *event.stop_token;
    }
    step.finish = std::move(finish);
  } else {
    step.finish = Finish{"length", {}};
  }
  return step;
}

void AppendStopReason(const StopReason& reason, std::string& out) {
  if (const std::string* text = std::get_if<std::string>(&reason)) {
    AppendJsonString(*text, out);
  } else if (const TokenId* token = std::get_if<TokenId>(&reason)) {
    AppendInt(*token, out);
  } else {
    out += "null";
  }
}

}  // namespace kvasir::server
