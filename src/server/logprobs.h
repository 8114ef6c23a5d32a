// Log-probabilities in the forms of the two APIs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "contract/request.h"
#include "text/tokenizer.h"

namespace kvasir::server {

/// How tokens are shown.
struct TokenNames {
  const text::Tokenizer* tokenizer = nullptr;
  bool as_ids = false;  ///< "token_id:123" (return_tokens_as_token_ids)

  [[nodiscard]] std::string Name(TokenId token) const;
};

/// Entries of chat's `logprobs.content`, joined with commas:
/// {"token","logprob","bytes","top_logprobs":[…]}. `top_count` of the most probable, descending.
void AppendChatLogprobs(const TokenNames& names, std::span<const TokenLogprobs> tokens,
                        int32_t top_count, std::string& out);

/// Counts characters of a text that comes byte by byte, with each part of it that is no UTF-8 shown
/// as one U+FFFD.
class CharacterCounter {
 public:
  /// True where a character begins with this byte; one split over tokens counts where it begins.
  bool Begins(unsigned char byte);

 private:
  int expected_ = 0;  ///< bytes that the character still needs
  unsigned char least_ = 0x80;
  unsigned char most_ = 0xBF;  ///< what the next of them may be
};

/// Builds completions' {"text_offset","token_logprobs","tokens","top_logprobs"} piece by piece;
/// offsets go on over all pieces of a choice.
class CompletionLogprobs {
 public:
  CompletionLogprobs(TokenNames names, int32_t top_count, bool skip_special_tokens)
      : names_(names), top_count_(top_count), skip_special_tokens_(skip_special_tokens) {}

  /// A token whose logprob is not known: the first of an echoed prompt.
  void AddUnknown(TokenId token);
  void Add(const TokenLogprobs& token);
  [[nodiscard]] bool empty() const { return count_ == 0; }
  /// Appends the object and begins a new piece.
  void Take(std::string& out);

 private:
  void AddToken(TokenId token);

  TokenNames names_;
  int32_t top_count_;
  bool skip_special_tokens_;
  CharacterCounter characters_;
  int64_t offset_ = 0;  ///< code points of the text so far
  int64_t count_ = 0;   ///< in this piece
  std::string offsets_;
  std::string logprobs_;
  std::string tokens_;
  std::string tops_;
};

/// vLLM's `prompt_logprobs`: [null, {"<id>":{"logprob","rank","decoded_token"}}, …].
void AppendPromptLogprobs(const TokenNames& names, std::span<const TokenLogprobs> positions,
                          int32_t top_count, std::string& out);

}  // namespace kvasir::server
