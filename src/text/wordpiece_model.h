// WordPiece: the longest piece that begins the word, then the longest that goes on, and so on; and
// WordLevel, which knows whole words only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_model.h"
#include "text/tokenizer_vocabulary.h"

namespace kvasir::text {

struct WordPieceOptions {
  std::string first_prefix;              ///< before the first piece of a word (GGUF: `▁`)
  std::string continuing_prefix = "##";  ///< before each further piece
  int64_t word_characters_max = 100;     ///< longer words are unknown
  int32_t unk_id = -1;                   ///< a word that can't be cut is this one token
};

class WordPieceModel final : public TokenizerModel {
 public:
  /// `vocabulary` must outlive the model.
  WordPieceModel(const Vocabulary& vocabulary, WordPieceOptions options)
      : vocabulary_(&vocabulary), options_(std::move(options)) {}

 protected:
  void EncodeUncached(std::string_view word, std::vector<int32_t>& out) const override;

 private:
  const Vocabulary* vocabulary_;
  WordPieceOptions options_;
};

class WordLevelModel final : public TokenizerModel {
 public:
  /// `vocabulary` must outlive the model. Unknown words become `unk_id`, or nothing where it is -1.
  WordLevelModel(const Vocabulary& vocabulary, int32_t unk_id)
      : vocabulary_(&vocabulary), unk_id_(unk_id) {}

 protected:
  void EncodeUncached(std::string_view word, std::vector<int32_t>& out) const override;

 private:
  const Vocabulary* vocabulary_;
  int32_t unk_id_;
};

}  // namespace kvasir::text
