// Hand-written equivalents of the pre-tokenizer patterns of the well-known models: linear in the
// text, without a regex engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/pretokenizer.h"
#include "text/unicode_class.h"

namespace kvasir::text {

enum class PatternFamily {
  kGpt2,             ///< case-sensitive contractions, ` ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+`
  kLlama3,           ///< digits by three
  kQwen2,            ///< digits one by one
  kQwen35,           ///< as kQwen2, marks are letters
  kO200k,            ///< cased words with contraction suffix
  kTekken,           ///< as kO200k, no contractions, digits one by one
  kKimi,             ///< as kO200k, Han apart
  kDeepSeekV3Words,  ///< the third Split of DeepSeek V3
};

[[nodiscard]] std::unique_ptr<PreTokenizerStep> MakeFamilyStep(PatternFamily family);

struct CodePointRange {
  uint32_t first;
  uint32_t last;
};

/// A set of characters: classes, ranges, or the complement of both.
class CharSet {
 public:
  explicit CharSet(CharClass classes, std::vector<CodePointRange> ranges = {},
                   bool negated = false);
  [[nodiscard]] bool Contains(uint32_t code_point) const {
    return code_point < 128 ? ascii_[code_point] : ContainsSlow(code_point);
  }

 private:
  [[nodiscard]] bool ContainsSlow(uint32_t code_point) const;

  const CharClass* table_;
  CharClass classes_;
  std::vector<CodePointRange> ranges_;
  bool negated_;
  bool ascii_[128];
};

/// `lead?body{1,count_max}` or `body{count_max}`: every maximal match and every gap is a word.
struct RunPattern {
  enum class Lead { kNone, kSpace, kWhitespace };
  CharSet body;
  Lead lead = Lead::kNone;  ///< one optional character before the run
  uint32_t count_max = UINT32_MAX;
  bool exact = false;        ///< only runs of count_max characters match
  bool at_end_only = false;  ///< only a run that reaches the end of the word matches
};
[[nodiscard]] std::unique_ptr<PreTokenizerStep> MakeRunStep(RunPattern pattern);

/// Words are what lies between characters of `delimiters`, which are dropped.
[[nodiscard]] std::unique_ptr<PreTokenizerStep> MakeDelimiterStep(CharSet delimiters);

/// Words are maximal runs of word characters and of other characters; whitespace is dropped:
/// `\w+|[^\w\s]+`.
[[nodiscard]] std::unique_ptr<PreTokenizerStep> MakeWordStep();

/// A step for a regular expression as tokenizer.json files spell it, or nullptr. Matches and gaps
/// are words; with `whole_cover`, only for patterns that leave no gaps.
[[nodiscard]] std::unique_ptr<PreTokenizerStep> MakeStepOfKnownPattern(std::string_view pattern,
                                                                       bool whole_cover);

}  // namespace kvasir::text
