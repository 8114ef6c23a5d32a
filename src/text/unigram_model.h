// Unigram (Kudo 2018): the way to cut a word into pieces whose scores add up highest.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_model.h"
#include "text/tokenizer_trie.h"
#include "text/tokenizer_vocabulary.h"

namespace kvasir::text {

struct UnigramOptions {
  std::vector<double> scores;      ///< by id, one for each id of the vocabulary
  std::vector<bool> matches_text;  ///< by id: whether the piece may match text
  int32_t unk_id = -1;             ///< -1: what no piece matches is dropped
  bool byte_fallback = false;      ///< an unknown run becomes its `<0xXX>` tokens, if all exist
};

class UnigramModel final : public TokenizerModel {
 public:
  /// `vocabulary` must outlive the model.
  [[nodiscard]] static Result<std::unique_ptr<UnigramModel>> Create(const Vocabulary& vocabulary,
                                                                    UnigramOptions options);

 protected:
  void EncodeUncached(std::string_view word, std::vector<int32_t>& out) const override;

 private:
  explicit UnigramModel(UnigramOptions options) : options_(std::move(options)) {}
  void AppendUnknown(std::string_view run, std::vector<int32_t>& out) const;

  UnigramOptions options_;
  ByteTrie trie_;
  double unknown_score_ = 0;
  int32_t byte_ids_[256] = {};
};

}  // namespace kvasir::text
