// How a token's stored piece becomes the bytes of a text: tokenizer.json's "decoder", reduced to
// what can be worked out once for each token, and what depends on being the first.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir::text {

struct DecoderRules {
  enum class Kind {
    kReplace,    ///< `from` → `to` everywhere in the piece
    kStrip,      ///< drops up to `start` leading and `stop` trailing characters `from`
    kMetaspace,  ///< `from` → space; dropped from the first token where `drop_first`
    kWordPiece,  ///< `from` is the prefix that continues a word; else a space goes before
    kJoinSpace,  ///< a space before every token but the first
    kByteLevel,  ///< pieces are spelled in the byte alphabet
  };
  struct Step {
    Kind kind;
    std::string from = {};
    std::string to = {};
    uint32_t start = 0;
    uint32_t stop = 0;
    bool drop_first = false;
    bool cleanup = false;  ///< kWordPiece: undoes spaces before punctuation and contractions
  };
  std::vector<Step> steps;
  bool byte_fallback = false;  ///< `<0xXX>` is that byte
  /// The whole text loses up to this many leading characters `strip_content`.
  uint32_t strip_start = 0;
  std::string strip_content;

  /// The bytes of `piece` as the first token of a text, or as a later one.
  [[nodiscard]] std::string Apply(std::string_view piece, bool first) const;
  /// Whether Apply depends on `first`.
  [[nodiscard]] bool FirstDiffers() const;
};

/// The byte that a piece `<0xXX>` stands for, else nullopt.
[[nodiscard]] std::optional<uint8_t> ParseByteToken(std::string_view piece);

/// Null: tokens are joined by spaces. Refuses types and orders that it does not know, by name.
[[nodiscard]] Result<DecoderRules> ParseDecoder(const nlohmann::json& json);

}  // namespace kvasir::text
