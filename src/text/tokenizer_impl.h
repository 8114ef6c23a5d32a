// The parts of a Tokenizer, put together by the loaders.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/detokenizer_rules.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_model.h"
#include "text/tokenizer_vocabulary.h"

namespace kvasir::text {

struct Tokenizer::Impl {
  static constexpr uint8_t kSpecial = 1 << 0;  ///< flags: left out of text on request
  static constexpr uint8_t kByte = 1 << 1;     ///< flags: one raw byte of a byte fallback

  // Text to ids.
  Vocabulary vocabulary;
  AddedTokenMatcher raw_tokens;         ///< looked for in the text as it comes
  AddedTokenMatcher normalized_tokens;  ///< looked for in the normalized text between those
  Normalizer normalizer;
  PreTokenizer pretokenizer{{}};
  std::unique_ptr<TokenizerModel> model;  ///< points into `vocabulary`
  std::vector<int32_t> prefix_ids;        ///< put before a text with add_special_tokens
  std::vector<int32_t> suffix_ids;        ///< and behind it

  // Ids to text.
  DecoderRules decoder;
  StringsById bytes;           ///< what a token stands for, except at the begin of a text
  std::vector<uint8_t> flags;  ///< by id
  bool first_differs = false;  ///< decoder.FirstDiffers()

  // Names.
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> unk_id;
  std::optional<int32_t> pad_id;
  std::optional<int32_t> eot_id;
  std::vector<int32_t> end_of_generation_ids;
  std::map<std::string, std::string> special_tokens;
  std::string bos_token;
  std::string eos_token;
  std::string kind;

  [[nodiscard]] bool Has(int32_t id) const { return vocabulary.Has(id); }
  [[nodiscard]] bool Flag(int32_t id, uint8_t flag) const {
    return id >= 0 && static_cast<size_t>(id) < flags.size() &&
           (flags[static_cast<size_t>(id)] & flag) != 0;
  }
  /// The bytes of a token that is shown, first or later.
  [[nodiscard]] std::string FirstBytes(int32_t id) const {
    return Flag(id, kByte) ? std::string(bytes.Get(id))
                           : decoder.Apply(vocabulary.Piece(id), /*first=*/true);
  }
  /// Sets the flag of an id, which may be new.
  void SetFlag(int32_t id, uint8_t flag);
  /// bos_token and its kin from special_tokens; sorts the ends of generation. Last step of a load.
  void Finish();
};

}  // namespace kvasir::text
