// Tokens that are found in the text as they are written, before anything else is done to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_trie.h"

namespace kvasir::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  ///< not inside a word
  bool lstrip = false;       ///< takes the whitespace before it
  bool rstrip = false;       ///< takes the whitespace behind it
  bool normalized = false;   ///< looked for in the normalized text
  bool special = false;
  bool bracketed = false;  ///< set by the matcher: `<…>`
};

/// A part of a text: a token, or text (id -1) between tokens.
struct Segment {
  std::string_view text;
  int32_t id;
};

/// Leftmost-longest matches. Immutable after Add; any thread.
class AddedTokenMatcher {
 public:
  /// `content`: as it is written where it is looked for (maybe normalized), not empty.
  [[nodiscard]] Status Add(std::string_view content, const AddedToken& token);
  [[nodiscard]] bool empty() const { return tokens_.empty(); }

  /// Appends the segments of `text`, none of them empty. Without `parse_special`, special tokens
  /// are text (but what they cover is not searched for other tokens).
  void Split(std::string_view text, bool parse_special, std::vector<Segment>& out) const;

  /// The places in `text` where a token begins that is special, or, unless `special_only`, written
  /// in angle brackets; and where the rest of `text` is the begin of any token. In order.
  [[nodiscard]] std::vector<size_t> Starts(std::string_view text, bool special_only) const;

 private:
  [[nodiscard]] size_t NextStart(std::string_view text, size_t at) const;
  [[nodiscard]] int32_t LongestAt(std::string_view text, size_t at, size_t& end) const;

  std::vector<AddedToken> tokens_;  ///< their content is dropped
  ByteTrie trie_;                   ///< content → index in tokens_
  bool starts_[256] = {};           ///< bytes that begin a token
  int starts_count_ = 0;
  char only_start_ = 0;  ///< where starts_count_ is 1
};

}  // namespace kvasir::text
