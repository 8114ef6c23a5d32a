// Finds stop strings in a growing text and holds back what may still become one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::text {

/// One per output stream; one thread at a time. Matches are looked for in what is pushed alone,
/// never in the prompt. After a match nothing more may be pushed.
class StopMatcher {
 public:
  struct Output {
    std::string emit;             ///< text that may be sent now
    std::optional<size_t> match;  ///< index of the stop string that was found
  };

  /// `stops` may be empty. `include_stop`: the stop string itself is part of the text.
  /// KVASIR_CHECKs that no stop string is empty.
  StopMatcher(std::vector<std::string> stops, bool include_stop);

  /// The match that is complete first wins, however the text is cut into pushes; of those that end
  /// at one place the longest, and of equal stop strings the first in the list. Holds back only the
  /// longest end of the text that begins a stop string.
  [[nodiscard]] Output Push(std::string_view text);
  /// What is still held back, at the end of the stream.
  [[nodiscard]] std::string Flush();

 private:
  /// Knuth, Morris and Pratt: linear in the text, whatever the stop string.
  struct Stop {
    std::string text;
    std::vector<size_t> borders;  ///< [i]: length of the longest border of text[0..i]
    size_t matched = 0;           ///< the longest begin of `text` that ends what was pushed
  };

  std::vector<Stop> stops_;
  bool include_stop_;
  std::string held_;
  bool done_ = false;
};

}  // namespace kvasir::text
