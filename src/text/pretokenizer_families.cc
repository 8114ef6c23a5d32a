// The regular expressions of the big model families, written out as scanners. Each scanner says
// where the word that begins at p ends; the order of its attempts is that of the alternatives.
#include <string>

#include "text/pretokenizer_scanners.h"

namespace kvasir::text {
namespace {

class Scanner {
 public:
  Scanner(std::string_view text, const CharClass* table) : text_(text), table_(table) {}

  /// Class of the character at `at`, which is moved behind it.
  [[nodiscard]] CharClass Next(size_t& at) const { return NextClass(table_, text_, at); }

  /// End of the run of characters that have one of `wanted` (and none of `unwanted`).
  [[nodiscard]] size_t RunEnd(size_t at, CharClass wanted, CharClass unwanted = 0) const {
    while (at < text_.size()) {
      size_t next = at;
      const CharClass found = Next(next);
      if ((found & wanted) == 0 || (found & unwanted) != 0) break;
      at = next;
    }
    return at;
  }
  /// End of the run of characters that have none of `unwanted`.
  [[nodiscard]] size_t RunEndWithout(size_t at, CharClass unwanted) const {
    while (at < text_.size()) {
      size_t next = at;
      if ((Next(next) & unwanted) != 0) break;
      at = next;
    }
    return at;
  }
  [[nodiscard]] size_t DigitsEnd(size_t at, int count_max) const {
    for (int i = 0; i < count_max && at < text_.size(); ++i) {
      size_t next = at;
      if ((Next(next) & kNumber) == 0) break;
      at = next;
    }
    return at;
  }
  [[nodiscard]] size_t NewlinesEnd(size_t at, bool slash) const {
    while (at < text_.size() &&
           (text_[at] == '\r' || text_[at] == '\n' || (slash && text_[at] == '/'))) {
      ++at;
    }
    return at;
  }

  /// End of 's 't 're 've 'm 'll 'd at `at`, or `at`. Folding takes the long s for an s.
  [[nodiscard]] size_t ContractionEnd(size_t at, bool fold) const {
    if (at + 1 >= text_.size() || text_[at] != '\'') return at;
    const auto letter = [&](size_t i) -> char {
      if (i >= text_.size()) return '\0';
      const char c = text_[i];
      return fold && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = letter(at + 1);
    const char second = letter(at + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l')) {
      return at + 3;
    }
    if (fold && text_.substr(at + 1, 2) == "\xC5\xBF") return at + 3;  // U+017F
    return at;
  }

  /// `\s*[\r\n]+|\s+(?!\S)|\s+` at a whitespace character. Without newlines only the last two.
  template <bool kNewlines>
  [[nodiscard]] size_t WhitespaceEnd(size_t at) const {
    size_t end = at;
    size_t last_begin = at;   // begin of the last character of the run
    size_t newline_end = at;  // behind the last newline of the run
    while (end < text_.size()) {
      size_t next = end;
      const CharClass found = Next(next);
      if ((found & kSpace) == 0) break;
      if ((found & kNewline) != 0) newline_end = next;
      last_begin = end;
      end = next;
    }
    if (kNewlines && newline_end > at) return newline_end;
    if (end == text_.size()) return end;
    return last_begin > at ? last_begin : end;
  }

  [[nodiscard]] std::string_view text() const { return text_; }

 private:
  std::string_view text_;
  const CharClass* table_;
};

size_t NextGpt2(const Scanner& scanner, size_t at) {
  const std::string_view text = scanner.text();
  if (text[at] == '\'') {
    const size_t end = scanner.ContractionEnd(at, /*fold=*/false);
    if (end > at) return end;
  }
  const size_t begin = text[at] == ' ' ? at + 1 : at;
  if (begin < text.size()) {
    size_t next = begin;
    const CharClass found = scanner.Next(next);
    if ((found & kLetter) != 0) return scanner.RunEnd(next, kLetter);
    if ((found & kNumber) != 0) return scanner.RunEnd(next, kNumber);
    if ((found & kSpace) == 0) return scanner.RunEndWithout(next, kSpace | kLetter | kNumber);
  }
  return scanner.WhitespaceEnd<false>(at);
}

/// Llama 3 and its kin. `kLetters`: what a word is made of; `kDigits`: the longest number.
template <CharClass kLetters, int kDigits>
size_t NextLlama3(const Scanner& scanner, size_t at) {
  const std::string_view text = scanner.text();
  if (text[at] == '\'') {
    const size_t end = scanner.ContractionEnd(at, /*fold=*/true);
    if (end > at) return end;
  }
  size_t next = at;
  const CharClass first = scanner.Next(next);
  if ((first & kLetters) != 0) return scanner.RunEnd(next, kLetters);
  if ((first & kNumber) != 0) return scanner.DigitsEnd(at, kDigits);
  if ((first & kNewline) == 0 && next < text.size()) {
    size_t after = next;
    if ((scanner.Next(after) & kLetters) != 0) return scanner.RunEnd(after, kLetters);
  }
  const size_t begin = text[at] == ' ' ? next : at;
  const size_t end = scanner.RunEndWithout(begin, kSpace | kLetters | kNumber);
  if (end > begin) return scanner.NewlinesEnd(end, /*slash=*/false);
  return scanner.WhitespaceEnd<true>(at);
}

constexpr CharClass kUpperPart = kUpper | kTitle | kModifierLetter | kOtherLetter | kMark;
constexpr CharClass kLowerPart = kLower | kModifierLetter | kOtherLetter | kMark;

/// `[upper]*[lower]+` from `at`, or `at`. `kExcluded`: classes that are in neither set.
template <CharClass kExcluded>
size_t UpperLowerEnd(const Scanner& scanner, size_t at) {
  const std::string_view text = scanner.text();
  size_t end = at;
  size_t last_lower_end = at;  // behind the last character of the upper run that is lower as well
  while (end < text.size()) {
    size_t next = end;
    const CharClass found = scanner.Next(next);
    if ((found & kUpperPart) == 0 || (found & kExcluded) != 0) break;
    end = next;
    if ((found & kLowerPart) != 0) last_lower_end = next;
  }
  const size_t lower_end = scanner.RunEnd(end, kLowerPart, kExcluded);
  return lower_end > end ? lower_end : last_lower_end;
}

/// `[upper]+[lower]*` from `at`, or `at`.
template <CharClass kExcluded>
size_t UpperEnd(const Scanner& scanner, size_t at) {
  const size_t end = scanner.RunEnd(at, kUpperPart, kExcluded);
  return end > at ? scanner.RunEnd(end, kLowerPart, kExcluded) : at;
}

/// o200k and its kin.
template <bool kContractions, int kDigits, bool kSlash, bool kHanApart>
size_t NextO200k(const Scanner& scanner, size_t at) {
  constexpr CharClass kExcluded = kHanApart ? kHan : 0;
  const std::string_view text = scanner.text();
  size_t next = at;
  const CharClass first = scanner.Next(next);
  if (kHanApart && (first & kHan) != 0) return scanner.RunEnd(next, kHan);
  if ((first & kNumber) != 0) return scanner.DigitsEnd(at, kDigits);
  const bool lead = (first & (kLetter | kNewline)) == 0 && next < text.size();
  size_t begin = at;
  size_t end = at;
  if (lead) {
    begin = next;
    end = UpperLowerEnd<kExcluded>(scanner, next);
  }
  if (end == begin) {
    begin = at;
    end = UpperLowerEnd<kExcluded>(scanner, at);
  }
  if (end == begin && lead) {
    begin = next;
    end = UpperEnd<kExcluded>(scanner, next);
  }
  if (end == begin) {
    begin = at;
    end = UpperEnd<kExcluded>(scanner, at);
  }
  if (end > begin) return kContractions ? scanner.ContractionEnd(end, /*fold=*/true) : end;
  begin = text[at] == ' ' ? next : at;
  end = scanner.RunEndWithout(begin, kSpace | kLetter | kNumber);
  if (end > begin) return scanner.NewlinesEnd(end, kSlash);
  return scanner.WhitespaceEnd<true>(at);
}

bool IsAsciiPunctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}
bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// DeepSeek V3's third pattern, which leaves gaps: returns `at` where nothing matches.
size_t NextDeepSeekV3(const Scanner& scanner, size_t at) {
  const std::string_view text = scanner.text();
  if (IsAsciiPunctuation(text[at]) && at + 1 < text.size() && IsAsciiLetter(text[at + 1])) {
    size_t end = at + 2;
    while (end < text.size() && IsAsciiLetter(text[end])) ++end;
    return end;
  }
  size_t next = at;
  const CharClass first = scanner.Next(next);
  if ((first & (kLetter | kMark)) != 0) return scanner.RunEnd(next, kLetter | kMark);
  if ((first & (kNewline | kPunctuation | kSymbol)) == 0) {
    const size_t end = scanner.RunEnd(next, kLetter | kMark);
    if (end > next) return end;
  }
  const size_t begin = text[at] == ' ' ? next : at;
  const size_t end = scanner.RunEnd(begin, kPunctuation | kSymbol);
  if (end > begin) return scanner.NewlinesEnd(end, /*slash=*/false);
  return (first & kSpace) != 0 ? scanner.WhitespaceEnd<true>(at) : at;
}

template <size_t (*kNext)(const Scanner&, size_t)>
class FamilyStep final : public PreTokenizerStep {
 public:
  void Apply(Words& words, bool /*at_start*/) const override {
    words.next.clear();
    for (const Span word : words.spans) {
      const Scanner scanner(words.text.substr(word.begin, word.end - word.begin), table_);
      const size_t size = word.end - word.begin;
      size_t gap = 0;
      for (size_t at = 0; at < size;) {
        const size_t end = kNext(scanner, at);
        if (end == at) {  // no match here: the character joins the gap
          static_cast<void>(scanner.Next(at));
          continue;
        }
        Push(words, word.begin, gap, at);
        Push(words, word.begin, at, end);
        gap = at = end;
      }
      Push(words, word.begin, gap, size);
    }
    words.spans.swap(words.next);
  }

 private:
  static void Push(Words& words, uint32_t base, size_t begin, size_t end) {
    if (begin == end) return;
    words.next.push_back({base + static_cast<uint32_t>(begin), base + static_cast<uint32_t>(end)});
  }

  const CharClass* table_ = CharClassTable();
};

}  // namespace

std::unique_ptr<PreTokenizerStep> MakeFamilyStep(PatternFamily family) {
  switch (family) {
    case PatternFamily::kGpt2:
      return std::make_unique<FamilyStep<NextGpt2>>();
    case PatternFamily::kLlama3:
      return std::make_unique<FamilyStep<NextLlama3<kLetter, 3>>>();
    case PatternFamily::kQwen2:
      return std::make_unique<FamilyStep<NextLlama3<kLetter, 1>>>();
    case PatternFamily::kQwen35:
      return std::make_unique<FamilyStep<NextLlama3<kLetter | kMark, 1>>>();
    case PatternFamily::kO200k:
      return std::make_unique<FamilyStep<NextO200k<true, 3, true, false>>>();
    case PatternFamily::kTekken:
      return std::make_unique<FamilyStep<NextO200k<false, 1, true, false>>>();
    case PatternFamily::kKimi:
      return std::make_unique<FamilyStep<NextO200k<true, 3, false, true>>>();
    case PatternFamily::kDeepSeekV3Words:
      return std::make_unique<FamilyStep<NextDeepSeekV3>>();
  }
  KVASIR_CHECK(false, "unknown pattern family {}", static_cast<int>(family));
}

std::unique_ptr<PreTokenizerStep> MakeStepOfKnownPattern(std::string_view pattern,
                                                         bool whole_cover) {
  std::string spelled;  // files write a newline inside a class either way
  for (const char c : pattern) {
    if (c == '\r') {
      spelled += "\\r";
    } else if (c == '\n') {
      spelled += "\\n";
    } else {
      spelled += c;
    }
  }
  struct Known {
    std::string_view pattern;
    PatternFamily family;
  };
  static constexpr Known kKnown[] = {
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       PatternFamily::kGpt2},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       PatternFamily::kLlama3},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       PatternFamily::kQwen2},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       PatternFamily::kQwen35},
      {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       PatternFamily::kO200k},
      {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       PatternFamily::kTekken},
      {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
       PatternFamily::kLlama3},
      {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       PatternFamily::kDeepSeekV3Words},
  };
  for (const Known& known : kKnown) {
    if (spelled == known.pattern &&
        !(whole_cover && known.family == PatternFamily::kDeepSeekV3Words)) {
      return MakeFamilyStep(known.family);
    }
  }
  if (whole_cover) return nullptr;
  const CharSet numbers(kNumber);
  if (spelled == R"(\p{N}{1,3})") return MakeRunStep({.body = numbers, .count_max = 3});
  if (spelled == R"(\p{N})") return MakeRunStep({.body = numbers, .count_max = 1});
  if (spelled == R"(\p{N}+)") return MakeRunStep({.body = numbers});
  if (spelled == "[0-9][0-9][0-9]") {
    return MakeRunStep({.body = CharSet(0, {{'0', '9'}}), .count_max = 3, .exact = true});
  }
  if (spelled == R"([\r\n])") return MakeRunStep({.body = CharSet(kNewline), .count_max = 1});
  if (spelled == "[一-龥\u3040-ゟ゠-ヿ]+") {
    return MakeRunStep({.body = CharSet(0, {{0x4E00, 0x9FA5}, {0x3040, 0x30FF}})});
  }
  return nullptr;
}

}  // namespace kvasir::text
