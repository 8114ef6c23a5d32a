#include "text/pretokenizer_regex.h"

#include <pcre2.h>

#include <algorithm>
#include <optional>

#include "files/printable.h"
#include "text/unicode_class.h"

namespace kvasir::text {
namespace {

constexpr size_t kPatternBytesMax = 64 * 1024;
constexpr uint32_t kMatchLimit = 1'000'000;
constexpr size_t kJitStackBytesMax = 1 << 20;
/// Patterns see at most this much text at once (see MakeSplitStep).
constexpr size_t kWindowBytes = 4 * 1024;

// Oniguruma's \s and \w, which PCRE2's differ from (U+0085, U+180E, marks, connectors).
constexpr std::string_view kSpaceMembers =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWordMembers =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";

/// Where the interval {n,m} that ends `pattern` begins, or npos.
size_t IntervalBefore(std::string_view pattern) {
  const size_t begin = pattern.rfind('{');
  const bool is_interval =
      pattern.ends_with('}') && begin != std::string_view::npos &&
      pattern.find_first_not_of("0123456789,", begin + 1) == pattern.size() - 1;
  return is_interval ? begin : std::string_view::npos;
}

/// The same pattern in PCRE2's dialect.
Result<std::string> Translate(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char kind = pattern[++i];
      const bool negated = kind == 'S' || kind == 'W';
      const std::string_view members = kind == 's' || kind == 'S'   ? kSpaceMembers
                                       : kind == 'w' || kind == 'W' ? kWordMembers
                                                                    : std::string_view();
      if (kind == 'h' || kind == 'H') {
        return MakeError(ErrorCode::kUnsupported, "regex \"{}\": \\{} is not supported",
                         files::Printable(pattern), kind);
      }
      if (members.empty() || (in_class && negated)) {
        out += '\\';
        out += kind;
      } else if (in_class) {
        out += members;
      } else {
        out += negated ? "[^" : "[";
        out += members;
        out += ']';
      }
      continue;
    }
    if (!in_class && c == '[') {
      in_class = true;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      continue;
    }
    if (in_class) {
      if (c == ']') in_class = false;
      const bool posix = c == '[' && i + 1 < pattern.size() && pattern[i + 1] == ':';
      const bool intersection = c == '&' && i + 1 < pattern.size() && pattern[i + 1] == '&';
      if ((c == '[' && !posix) || intersection) {
        return MakeError(ErrorCode::kUnsupported,
                         "regex \"{}\": sets inside a set are not supported",
                         files::Printable(pattern));
      }
      if (posix) {
        const size_t end = pattern.find(":]", i);
        if (end == std::string_view::npos) {
          return MakeError(ErrorCode::kInvalidArgument,
                           "regex \"{}\": unclosed [:", files::Printable(pattern));
        }
        out += pattern.substr(i, end + 2 - i);
        i = end + 1;
        continue;
      }
    }
    // Ruby's syntax has no possessive intervals: x{1,3}+ is (x{1,3})+, which is x+.
    const size_t interval = in_class || c != '+' ? std::string::npos : IntervalBefore(out);
    if (interval != std::string::npos) {
      if (out.compare(interval, 3, "{1,") != 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "regex \"{}\": a repeated interval is not supported",
                         files::Printable(pattern));
      }
      out.resize(interval);
    }
    out += c;
  }
  return out;
}

/// What a thread needs to match; patterns share it.
struct Scratch {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, kJitStackBytesMax, nullptr);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);  // the whole match alone

  Scratch() {
    KVASIR_CHECK(context != nullptr && stack != nullptr && data != nullptr);
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_match_data_free(data);
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

class RegexMatcher final : public Matcher {
 public:
  explicit RegexMatcher(pcre2_code* code) : code_(code) {}
  ~RegexMatcher() override { pcre2_code_free(code_); }
  RegexMatcher(const RegexMatcher&) = delete;
  RegexMatcher& operator=(const RegexMatcher&) = delete;

  [[nodiscard]] bool Find(std::string_view text, size_t from, Span& match) const override {
    thread_local Scratch scratch;
    const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                  from, PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
    if (found < 0) return false;
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.data);
    match = {static_cast<uint32_t>(std::min(bounds[0], bounds[1])),  // \K can turn them around
             static_cast<uint32_t>(bounds[1])};
    return match.begin >= from && match.end <= text.size();
  }
  [[nodiscard]] bool IsLinear() const override { return false; }

 private:
  pcre2_code* code_;
};

class LiteralMatcher final : public Matcher {
 public:
  explicit LiteralMatcher(std::string literal) : literal_(std::move(literal)) {}

  [[nodiscard]] bool Find(std::string_view text, size_t from, Span& match) const override {
    const size_t at = literal_.empty() ? std::string_view::npos : text.find(literal_, from);
    if (at == std::string_view::npos) return false;
    match = {static_cast<uint32_t>(at), static_cast<uint32_t>(at + literal_.size())};
    return true;
  }

 private:
  std::string literal_;
};

class SplitStep final : public PreTokenizerStep {
 public:
  SplitStep(std::unique_ptr<Matcher> matcher, SplitBehavior behavior, bool invert)
      : matcher_(std::move(matcher)), behavior_(behavior), invert_(invert) {}

  void Apply(Words& words, bool /*at_start*/) const override {
    words.next.clear();
    for (const Span word : words.spans) {
      for (uint32_t begin = word.begin; begin < word.end;) {
        const uint32_t end =
            matcher_->IsLinear() ? word.end : WindowEnd(words.text, begin, word.end);
        Split(words.text, {begin, end}, words.next);
        begin = end;
      }
    }
    words.spans.swap(words.next);
  }

 private:
  struct Part {
    Span span;
    bool is_match;
  };

  /// Where to cut a long word: before the first space behind a letter in the window's second half,
  /// else at its end.
  static uint32_t WindowEnd(std::string_view text, uint32_t begin, uint32_t end) {
    if (end - begin <= kWindowBytes) return end;
    const CharClass* table = CharClassTable();
    size_t at = begin + kWindowBytes / 2;
    while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) ++at;
    CharClass previous = 0;
    while (at < begin + kWindowBytes) {
      if (text[at] == ' ' && (previous & kLetter) != 0) break;
      previous = NextClass(table, text, at);
    }
    return std::min(static_cast<uint32_t>(at), end);
  }

  void Split(std::string_view text, Span word, std::vector<Span>& out) const {
    thread_local std::vector<Part> parts;
    parts.clear();
    const std::string_view piece = text.substr(word.begin, word.end - word.begin);
    const auto add = [&](size_t begin, size_t end, bool is_match) {
      if (begin == end) return;
      parts.push_back(
          {{word.begin + static_cast<uint32_t>(begin), word.begin + static_cast<uint32_t>(end)},
           is_match != invert_});
    };
    size_t gap = 0;
    Span match{};
    for (size_t from = 0; from <= piece.size() && matcher_->Find(piece, from, match);) {
      add(gap, match.begin, false);
      add(match.begin, match.end, true);
      gap = match.end;
      from = match.end;
      if (match.begin == match.end) {  // an empty match: look on behind the next character
        if (from == piece.size()) break;
        static_cast<void>(NextCodePoint(piece, from));
      }
    }
    add(gap, piece.size(), false);
    Emit(parts, out);
  }

  void Emit(std::vector<Part>& parts, std::vector<Span>& out) const {
    const size_t first = out.size();
    bool previous_match = false;
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        for (const Part& part : parts) {
          if (!part.is_match) out.push_back(part.span);
        }
        return;
      case SplitBehavior::kIsolated:
        for (const Part& part : parts) out.push_back(part.span);
        return;
      case SplitBehavior::kContiguous:
        for (const Part& part : parts) {
          if (part.is_match == previous_match && out.size() > first) {
            out.back().end = part.span.end;
          } else {
            out.push_back(part.span);
          }
          previous_match = part.is_match;
        }
        return;
      case SplitBehavior::kMergedWithPrevious:
        for (const Part& part : parts) {
          if (part.is_match && !previous_match && out.size() > first) {
            out.back().end = part.span.end;
          } else {
            out.push_back(part.span);
          }
          previous_match = part.is_match;
        }
        return;
      case SplitBehavior::kMergedWithNext:
        std::reverse(parts.begin(), parts.end());
        for (const Part& part : parts) {
          if (part.is_match && !previous_match && out.size() > first) {
            out.back().begin = part.span.begin;
          } else {
            out.push_back(part.span);
          }
          previous_match = part.is_match;
        }
        std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
        return;
    }
  }

  std::unique_ptr<Matcher> matcher_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace

Result<std::unique_ptr<Matcher>> MakeRegexMatcher(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return MakeError(ErrorCode::kDataLoss, "regex of {} bytes: at most {} are allowed",
                     pattern.size(), kPatternBytesMax);
  }
  KVASIR_ASSIGN_OR_RETURN(const std::string translated, Translate(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's Ruby syntax, which tokenizer.json uses: ^ and $ match at every line.
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    char message[160] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    return MakeError(ErrorCode::kDataLoss, "regex \"{}\": {} at offset {}",
                     files::Printable(pattern), message, offset);
  }
  // Without JIT (refused by the system) matching is slower and otherwise the same.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return std::unique_ptr<Matcher>(std::make_unique<RegexMatcher>(code));
}

std::unique_ptr<Matcher> MakeLiteralMatcher(std::string literal) {
  return std::make_unique<LiteralMatcher>(std::move(literal));
}

std::unique_ptr<PreTokenizerStep> MakeSplitStep(std::unique_ptr<Matcher> matcher,
                                                SplitBehavior behavior, bool invert) {
  return std::make_unique<SplitStep>(std::move(matcher), behavior, invert);
}

}  // namespace kvasir::text
