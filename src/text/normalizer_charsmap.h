// SentencePiece's precompiled character map: a double-array trie from strings to replacements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir::text {

/// Immutable; any thread. The blob is u32 size, that many bytes of trie units (Darts: u32 each),
/// and replacements, each ended by a zero byte.
class CharsMap {
 public:
  [[nodiscard]] static Result<CharsMap> Parse(std::string_view blob);

  struct Match {
    size_t length;  ///< bytes of the text that it replaces
    std::string_view replacement;
  };
  [[nodiscard]] size_t replacement_bytes_max() const { return replacement_bytes_max_; }
  [[nodiscard]] std::optional<Match> Shortest(std::string_view text) const {
    return Find(text, /*longest=*/false);
  }
  [[nodiscard]] std::optional<Match> Longest(std::string_view text) const {
    return Find(text, /*longest=*/true);
  }

 private:
  [[nodiscard]] std::optional<Match> Find(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
  size_t replacement_bytes_max_ = 0;
};

}  // namespace kvasir::text
