// Byte-pair encoding: join the neighbours of lowest rank, leftmost first, until none can be.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/bpe_pairs.h"
#include "text/tokenizer_model.h"
#include "text/tokenizer_vocabulary.h"

namespace kvasir::text {

struct BpeOptions {
  /// Words are raw bytes and pieces are spelled in the byte alphabet; else words are text in the
  /// alphabet of the pieces.
  bool raw_bytes = false;
  bool ignore_merges = false;  ///< a word that is a token is that token
  bool byte_fallback = false;  ///< an unknown character becomes its `<0xXX>` tokens
  bool fuse_unk = false;       ///< unknown neighbours become one unknown token
  int32_t unk_id = -1;         ///< -1: unknown characters are dropped
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
};

/// Whether every byte has its character in `vocabulary`, as BpeOptions::raw_bytes needs.
[[nodiscard]] bool HasByteAlphabet(const Vocabulary& vocabulary);

class BpeModel final : public TokenizerModel {
 public:
  struct Pair {
    std::string_view left;
    std::string_view right;
  };
  /// `vocabulary` must outlive the model. Rank = index in `merges`. Fails where a part of a merge,
  /// or what it makes, is no token.
  [[nodiscard]] static Result<std::unique_ptr<BpeModel>> FromMerges(
      const Vocabulary& vocabulary, BpeOptions options, const std::vector<Pair>& merges);

  /// SentencePiece's BPE: any two neighbours may be joined whose text is a token with a rank.
  /// `ranks[id]`: Merge::kNone for tokens that text never becomes; equal ranks, leftmost first.
  [[nodiscard]] static std::unique_ptr<BpeModel> FromRanks(const Vocabulary& vocabulary,
                                                           BpeOptions options,
                                                           std::vector<uint32_t> ranks);

 protected:
  void EncodeUncached(std::string_view word, std::vector<int32_t>& out) const override;

 private:
  struct Symbols;
  struct Node;

  BpeModel(const Vocabulary& vocabulary, BpeOptions options);

  [[nodiscard]] bool ByRanks() const { return !ranks_.empty(); }
  bool EncodeWhole(std::string_view word, std::vector<int32_t>& out) const;
  bool EncodeSegments(std::string_view word, std::vector<int32_t>& out) const;
  void ToSymbols(std::string_view word, Symbols& symbols) const;
  [[nodiscard]] bool HasByteTokens(std::string_view bytes) const;
  void AppendUnknown(std::string_view character, bool& unk_pending, Symbols& symbols) const;
  template <bool kByRanks>
  [[nodiscard]] Merge FindMerge(std::string_view word, int32_t left, int32_t right, uint32_t begin,
                                uint32_t end) const;
  template <bool kByRanks>
  void Join(std::string_view word, Symbols& symbols, std::vector<int32_t>& out) const;
  template <bool kByRanks>
  void JoinShort(std::string_view word, Symbols& symbols, std::vector<int32_t>& out) const;
  template <bool kByRanks>
  void JoinLong(std::string_view word, Symbols& symbols, std::vector<int32_t>& out) const;
  void AppendSymbol(std::string_view symbol, int32_t id, std::vector<int32_t>& out) const;

  const Vocabulary* vocabulary_;
  BpeOptions options_;
  int32_t byte_ids_[256];  ///< raw_bytes: the byte's character; else `<0xXX>`, -1 if absent
  CharIds char_ids_;
  MergeTable merges_;
  std::vector<uint32_t> ranks_;
  std::unique_ptr<NeighbourFilter> filter_;  ///< null: words are not cut further
};

}  // namespace kvasir::text
