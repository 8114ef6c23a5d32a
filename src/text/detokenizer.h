// Token ids to text, one at a time, for a stream: only whole characters leave.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace kvasir::text {

/// One per output stream; one thread at a time. All texts returned are valid UTF-8, and together
/// they are what Decode(prompt + ids) has after Decode(prompt), except that bytes which can never
/// become a character turn into U+FFFD as soon as that is known.
class Detokenizer {
 public:
  /// `tokenizer` must outlive this. `prompt_ids` are the tokens before the stream: where they show
  /// text, a leading space of the first token is kept; a character that they leave incomplete is
  /// completed by the stream. Empty: the stream begins the text.
  Detokenizer(const Tokenizer& tokenizer, std::span<const int32_t> prompt_ids,
              bool skip_special_tokens);

  /// The text that may be sent after `id`: "" while a character is incomplete.
  [[nodiscard]] std::string Push(int32_t id);
  /// The rest, at the end of the stream: U+FFFD for an incomplete character.
  [[nodiscard]] std::string Flush();

 private:
  [[nodiscard]] bool Shown(int32_t id) const;
  void Append(std::string_view bytes, std::string& out);
  void StripStart(std::string& out);

  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  bool at_start_ = true;            ///< no token has been shown yet
  uint32_t strip_left_ = 0;         ///< leading characters that the decoder still drops
  bool pending_is_prompt_ = false;  ///< pending_ is the prompt's alone: not ours to flush
  std::string pending_;             ///< at most 3 bytes: the begin of a character
};

}  // namespace kvasir::text
