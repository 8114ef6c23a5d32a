#include "text/pretokenizer_scanners.h"

#include <algorithm>

namespace kvasir::text {
namespace {

void PushNotEmpty(std::vector<Span>& spans, size_t begin, size_t end) {
  if (begin < end) {
    spans.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }
}

class RunStep final : public PreTokenizerStep {
 public:
  explicit RunStep(RunPattern pattern) : pattern_(std::move(pattern)) {}

  void Apply(Words& words, bool /*at_start*/) const override {
    words.next.clear();
    for (const Span word : words.spans) Cut(words.text, word, words.next);
    words.spans.swap(words.next);
  }

 private:
  void Cut(std::string_view text, Span word, std::vector<Span>& out) const {
    size_t gap = word.begin;
    for (size_t at = word.begin; at < word.end;) {
      size_t body = at;
      uint32_t code_point = NextCodePoint(text, body);
      size_t end = at;
      if (IsLead(code_point)) end = RunEnd(text, body, word.end);
      if (end <= body || !IsLead(code_point)) end = RunEnd(text, at, word.end);
      if (end == at) {
        // A run that does not match is skipped whole where it can't match further on either.
        at = pattern_.at_end_only ? std::max(body, SkipRun(text, at, word.end)) : body;
        continue;
      }
      PushNotEmpty(out, gap, at);
      PushNotEmpty(out, at, end);
      gap = at = end;
    }
    PushNotEmpty(out, gap, word.end);
  }

  [[nodiscard]] bool IsLead(uint32_t code_point) const {
    switch (pattern_.lead) {
      case RunPattern::Lead::kNone:
        return false;
      case RunPattern::Lead::kSpace:
        return code_point == ' ';
      case RunPattern::Lead::kWhitespace:
        return whitespace_.Contains(code_point);
    }
    return false;
  }

  [[nodiscard]] size_t SkipRun(std::string_view text, size_t at, size_t limit) const {
    while (at < limit) {
      size_t next = at;
      if (!pattern_.body.Contains(NextCodePoint(text, next))) break;
      at = next;
    }
    return at;
  }

  /// End of a match of the body at `at`, or `at`.
  [[nodiscard]] size_t RunEnd(std::string_view text, size_t at, size_t limit) const {
    const size_t begin = at;
    uint32_t count = 0;
    while (at < limit && count < pattern_.count_max) {
      size_t next = at;
      if (!pattern_.body.Contains(NextCodePoint(text, next))) break;
      at = next;
      ++count;
    }
    if (pattern_.exact && count < pattern_.count_max) return begin;
    if (pattern_.at_end_only && at != limit) return begin;
    return at;
  }

  RunPattern pattern_;
  CharSet whitespace_{kSpace};
};

class DelimiterStep final : public PreTokenizerStep {
 public:
  explicit DelimiterStep(CharSet delimiters) : delimiters_(std::move(delimiters)) {}

  void Apply(Words& words, bool /*at_start*/) const override {
    words.next.clear();
    for (const Span word : words.spans) {
      size_t begin = word.begin;
      for (size_t at = word.begin; at < word.end;) {
        const size_t here = at;
        if (!delimiters_.Contains(NextCodePoint(words.text, at))) continue;
        PushNotEmpty(words.next, begin, here);
        begin = at;
      }
      PushNotEmpty(words.next, begin, word.end);
    }
    words.spans.swap(words.next);
  }

 private:
  CharSet delimiters_;
};

class WordStep final : public PreTokenizerStep {
 public:
  void Apply(Words& words, bool /*at_start*/) const override {
    constexpr CharClass kKinds = kWord | kSpace;
    words.next.clear();
    for (const Span word : words.spans) {
      size_t begin = word.begin;
      CharClass kind = kSpace;
      for (size_t at = word.begin; at < word.end;) {
        const size_t here = at;
        const CharClass found = NextClass(table_, words.text, at) & kKinds;
        if (found == kind) continue;
        if (kind != kSpace) PushNotEmpty(words.next, begin, here);
        begin = here;
        kind = found;
      }
      if (kind != kSpace) PushNotEmpty(words.next, begin, word.end);
    }
    words.spans.swap(words.next);
  }

 private:
  const CharClass* table_ = CharClassTable();
};

}  // namespace

CharSet::CharSet(CharClass classes, std::vector<CodePointRange> ranges, bool negated)
    : table_(CharClassTable()), classes_(classes), ranges_(std::move(ranges)), negated_(negated) {
  for (uint32_t c = 0; c < 128; ++c) ascii_[c] = ContainsSlow(c);
}

bool CharSet::ContainsSlow(uint32_t code_point) const {
  bool found = (ClassOf(table_, code_point) & classes_) != 0;
  for (const CodePointRange& range : ranges_) {
    found = found || (code_point >= range.first && code_point <= range.last);
  }
  return found != negated_;
}

std::unique_ptr<PreTokenizerStep> MakeRunStep(RunPattern pattern) {
  return std::make_unique<RunStep>(std::move(pattern));
}

std::unique_ptr<PreTokenizerStep> MakeDelimiterStep(CharSet delimiters) {
  return std::make_unique<DelimiterStep>(std::move(delimiters));
}

std::unique_ptr<PreTokenizerStep> MakeWordStep() { return std::make_unique<WordStep>(); }

}  // namespace kvasir::text
