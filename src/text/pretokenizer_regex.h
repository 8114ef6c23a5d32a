// PCRE2 for the Split patterns that have no hand-written scanner.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/pretokenizer.h"

namespace kvasir::text {

/// Finds one match after the other in a piece. Immutable; any thread.
class Matcher {
 public:
  virtual ~Matcher() = default;
  /// The first match in `text` that begins at `from` or later; false where there is none. A match
  /// may be empty.
  [[nodiscard]] virtual bool Find(std::string_view text, size_t from, Span& match) const = 0;
  /// Whether all matches of a text are found in time linear in its length.
  [[nodiscard]] virtual bool IsLinear() const { return true; }
};

/// A regular expression as tokenizer.json has them (Oniguruma's syntax, Unicode on). Refuses what
/// PCRE2 would understand differently. A search that backtracks beyond its limit finds nothing.
[[nodiscard]] Result<std::unique_ptr<Matcher>> MakeRegexMatcher(std::string_view pattern);
[[nodiscard]] std::unique_ptr<Matcher> MakeLiteralMatcher(std::string literal);

enum class SplitBehavior {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};
/// Splits at the matches; `invert` swaps matches and gaps. Where the matcher is not linear, words
/// of more than 4 KiB are first cut where a letter meets a space (failing that, anywhere), so that
/// a pattern cannot make the time quadratic.
[[nodiscard]] std::unique_ptr<PreTokenizerStep> MakeSplitStep(std::unique_ptr<Matcher> matcher,
                                                              SplitBehavior behavior, bool invert);

}  // namespace kvasir::text
