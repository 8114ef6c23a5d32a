#include "text/detokenizer.h"

#include <algorithm>
#include <vector>

#include "text/tokenizer_impl.h"
#include "text/unicode_utf8.h"

namespace kvasir::text {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, std::span<const int32_t> prompt_ids,
                         bool skip_special_tokens)
    : tokenizer_(&tokenizer),
      skip_special_tokens_(skip_special_tokens),
      strip_left_(tokenizer.impl().decoder.strip_start) {
  // Of the prompt only its first tokens (is anything shown before the stream?) and its last (do
  // they leave a character incomplete?) matter.
  for (size_t i = 0; i < prompt_ids.size() && (at_start_ || strip_left_ > 0); ++i) {
    static_cast<void>(Push(prompt_ids[i]));
  }
  constexpr size_t kTailMax = 4;  // tokens, as a character has at most 4 bytes
  std::vector<int32_t> tail;
  for (size_t i = prompt_ids.size(); i-- > 0 && tail.size() < kTailMax;) {
    if (Shown(prompt_ids[i])) tail.push_back(prompt_ids[i]);
  }
  pending_.clear();
  std::string shown_before;
  for (auto id = tail.rbegin(); id != tail.rend(); ++id) {
    Append(tokenizer.impl().bytes.Get(*id), shown_before);
  }
  pending_is_prompt_ = !pending_.empty();
}

bool Detokenizer::Shown(int32_t id) const {
  const Tokenizer::Impl& impl = tokenizer_->impl();
  return impl.Has(id) && !(skip_special_tokens_ && impl.Flag(id, Tokenizer::Impl::kSpecial));
}

std::string Detokenizer::Push(int32_t id) {
  std::string out;
  if (!Shown(id)) return out;
  const Tokenizer::Impl& impl = tokenizer_->impl();
  if (at_start_ && impl.first_differs) {
    Append(impl.FirstBytes(id), out);
  } else {
    Append(impl.bytes.Get(id), out);
  }
  at_start_ = false;
  StripStart(out);
  return out;
}

std::string Detokenizer::Flush() {
  std::string out;
  if (!pending_.empty() && !pending_is_prompt_) {
    const size_t count = tokenizer_->impl().decoder.byte_fallback ? pending_.size() : 1;
    for (size_t i = 0; i < count; ++i) out += kReplacement;
  }
  pending_.clear();
  StripStart(out);
  return out;
}

/// Appends what is complete of the bytes still pending and `bytes`; keeps the rest.
void Detokenizer::Append(std::string_view bytes, std::string& out) {
  if (bytes.empty()) return;
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_;
    joined += bytes;
    bytes = joined;
  }
  const size_t prompt_bytes = pending_is_prompt_ ? pending_.size() : 0;
  pending_is_prompt_ = false;
  pending_.clear();
  const bool byte_fallback = tokenizer_->impl().decoder.byte_fallback;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = ClassifyUtf8(bytes.substr(at));
    const std::string_view part = bytes.substr(at, step.length);
    switch (step.kind) {
      case Utf8Step::Kind::kCharacter:
        out += part;
        break;
      case Utf8Step::Kind::kInvalid:
        if (at == 0 && step.length == prompt_bytes) break;  // the prompt's, and never completed
        // Hugging Face's ByteFallback has one for each byte.
        for (size_t i = 0; i < (byte_fallback ? step.length : 1); ++i) out += kReplacement;
        break;
      case Utf8Step::Kind::kIncomplete:
        pending_ = part;
        return;
    }
    at += step.length;
  }
}

void Detokenizer::StripStart(std::string& out) {
  const std::string& content = tokenizer_->impl().decoder.strip_content;
  while (strip_left_ > 0 && !out.empty()) {
    if (!out.starts_with(content)) {
      strip_left_ = 0;
    } else {
      out.erase(0, content.size());
      --strip_left_;
    }
  }
}

}  // namespace kvasir::text
