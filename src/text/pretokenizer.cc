#include "text/pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "files/printable.h"
#include "text/pretokenizer_regex.h"
#include "text/pretokenizer_scanners.h"
#include "text/unicode_byte_alphabet.h"
#include "text/unicode_class.h"

namespace kvasir::text {
namespace {

using nlohmann::json;

constexpr int kDepthMax = 8;
constexpr size_t kStepsMax = 64;

/// Steps that change the text build a new one word by word, then put it in place of the old.
class Rewriter {
 public:
  explicit Rewriter(Words& words) : words_(words) { words_.next.clear(); }
  ~Rewriter() {
    words_.buffer.swap(text_);
    words_.text = words_.buffer;
    words_.spans.swap(words_.next);
  }
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;

  [[nodiscard]] std::string& text() { return text_; }
  /// What was appended since the last call is a word.
  void EndWord() {
    const auto end = static_cast<uint32_t>(text_.size());
    if (end > begin_) words_.next.push_back({begin_, end});
    begin_ = end;
  }

 private:
  Words& words_;
  std::string text_;
  uint32_t begin_ = 0;
};

std::string_view WordText(const Words& words, Span word) {
  return words.text.substr(word.begin, word.end - word.begin);
}

class ByteAlphabetStep final : public PreTokenizerStep {
 public:
  void Apply(Words& words, bool /*at_start*/) const override {
    Rewriter rewriter(words);
    for (const Span word : words.spans) {
      AppendMapped(WordText(words, word), rewriter.text());
      rewriter.EndWord();
    }
  }
};

class PrefixSpaceStep final : public PreTokenizerStep {
 public:
  void Apply(Words& words, bool /*at_start*/) const override {
    const bool needed = std::any_of(words.spans.begin(), words.spans.end(),
                                    [&](Span word) { return words.text[word.begin] != ' '; });
    if (!needed) return;
    Rewriter rewriter(words);
    for (const Span word : words.spans) {
      const std::string_view text = WordText(words, word);
      if (text.front() != ' ') rewriter.text().push_back(' ');
      rewriter.text().append(text);
      rewriter.EndWord();
    }
  }
};

class MetaspaceStep final : public PreTokenizerStep {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  MetaspaceStep(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  void Apply(Words& words, bool at_start) const override {
    Rewriter rewriter(words);
    std::string& out = rewriter.text();
    for (size_t i = 0; i < words.spans.size(); ++i) {
      const std::string_view text = WordText(words, words.spans[i]);
      const bool wanted = prepend_ == Prepend::kAlways ||
                          (prepend_ == Prepend::kFirst && at_start && words.spans[i].begin == 0);
      if (wanted && text.front() != ' ' && !text.starts_with(replacement_)) out += replacement_;
      for (size_t at = 0; at < text.size();) {
        if (text[at] == ' ') {
          if (split_) rewriter.EndWord();
          out += replacement_;
          ++at;
        } else {
          if (split_ && text.substr(at).starts_with(replacement_)) rewriter.EndWord();
          const size_t length = Utf8Length(static_cast<uint8_t>(text[at]));
          out.append(text, at, length);
          at += length;
        }
      }
      rewriter.EndWord();
    }
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool split_;
};

class FixedLengthStep final : public PreTokenizerStep {
 public:
  explicit FixedLengthStep(int64_t length) : length_(length) {}

  void Apply(Words& words, bool /*at_start*/) const override {
    words.next.clear();
    for (const Span word : words.spans) {
      size_t at = word.begin;
      while (at < word.end) {
        const size_t begin = at;
        for (int64_t i = 0; i < length_ && at < word.end; ++i) {
          at += Utf8Length(static_cast<uint8_t>(words.text[at]));
        }
        words.next.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
      }
    }
    words.spans.swap(words.next);
  }

 private:
  int64_t length_;
};

/// ASCII punctuation (with symbols such as $ and +) and Unicode's category P.
CharSet PunctuationSet() {
  return CharSet(kPunctuation, {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}});
}

Error BadField(std::string_view type, std::string_view field, std::string_view expected) {
  return MakeError(ErrorCode::kDataLoss, "pre_tokenizer {}: {} must be {}", type, field, expected);
}

Result<SplitBehavior> ParseBehavior(const json& component, std::string_view type,
                                    std::optional<SplitBehavior> absent) {
  const auto found = component.find("behavior");
  if (found == component.end() && absent.has_value()) return *absent;
  if (found != component.end() && found->is_string()) {
    const auto& name = found->get_ref<const std::string&>();
    if (name == "Removed") return SplitBehavior::kRemoved;
    if (name == "Isolated") return SplitBehavior::kIsolated;
    if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
    if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
    if (name == "Contiguous") return SplitBehavior::kContiguous;
  }
  return BadField(type, "behavior",
                  "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

bool BoolOr(const json& component, const char* field, bool absent) {
  const auto found = component.find(field);
  return found != component.end() && found->is_boolean() ? found->get<bool>() : absent;
}

/// Finds the characters of a set, one a match.
class SetMatcher final : public Matcher {
 public:
  explicit SetMatcher(CharSet set) : set_(std::move(set)) {}
  [[nodiscard]] bool Find(std::string_view text, size_t from, Span& match) const override {
    while (from < text.size()) {
      size_t next = from;
      if (set_.Contains(NextCodePoint(text, next))) {
        match = {static_cast<uint32_t>(from), static_cast<uint32_t>(next)};
        return true;
      }
      from = next;
    }
    return false;
  }

 private:
  CharSet set_;
};

/// Splits at single characters of `set`.
void AddCharSplit(CharSet set, SplitBehavior behavior, PreTokenizer::Steps& steps) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      steps.push_back(MakeDelimiterStep(std::move(set)));
      return;
    case SplitBehavior::kIsolated:
      steps.push_back(MakeRunStep({.body = std::move(set), .count_max = 1}));
      return;
    case SplitBehavior::kContiguous:
      steps.push_back(MakeRunStep({.body = std::move(set)}));
      return;
    case SplitBehavior::kMergedWithPrevious:
    case SplitBehavior::kMergedWithNext:
      steps.push_back(MakeSplitStep(std::make_unique<SetMatcher>(std::move(set)), behavior, false));
      return;
  }
}

class Parser {
 public:
  Status Parse(const json& component, int depth) {
    if (!component.is_object() || !component.contains("type") || !component["type"].is_string()) {
      return MakeError(ErrorCode::kDataLoss, "pre_tokenizer: expected an object with a type");
    }
    if (depth > kDepthMax || plan_.steps.size() > kStepsMax) {
      return MakeError(ErrorCode::kDataLoss, "pre_tokenizer: too many or too deeply nested steps");
    }
    const auto& type = component["type"].get_ref<const std::string&>();
    if (type == "Sequence") return ParseSequence(component, depth);
    if (plan_.ends_in_byte_level) {
      // Each doubles what is not ASCII.
      constexpr int kByteLevelsMax = 4;
      if (++byte_levels_count_ > kByteLevelsMax) {
        return MakeError(ErrorCode::kDataLoss, "pre_tokenizer: more than {} ByteLevel steps",
                         kByteLevelsMax);
      }
      plan_.steps.push_back(MakeByteAlphabetStep());
      plan_.ends_in_byte_level = false;
    }
    if (type == "ByteLevel") return ParseByteLevel(component);
    if (type == "Split") return ParseSplit(component);
    if (type == "Metaspace") return ParseMetaspace(component);
    if (type == "Digits") {
      const uint32_t count_max = BoolOr(component, "individual_digits", false) ? 1 : UINT32_MAX;
      return AddRun({.body = CharSet(kNumber), .count_max = count_max});
    }
    if (type == "Punctuation") {
      KVASIR_ASSIGN_OR_RETURN(const SplitBehavior behavior,
                              ParseBehavior(component, type, SplitBehavior::kIsolated));
      AddCharSplit(PunctuationSet(), behavior, plan_.steps);
      return Status::Ok();
    }
    if (type == "Whitespace") return Add(MakeWordStep());
    if (type == "WhitespaceSplit") return Add(MakeDelimiterStep(CharSet(kSpace)));
    if (type == "CharDelimiterSplit") return ParseDelimiter(component);
    if (type == "BertPreTokenizer") {
      plan_.steps.push_back(MakeDelimiterStep(CharSet(kSpace)));
      return AddRun({.body = PunctuationSet(), .count_max = 1});
    }
    if (type == "FixedLength") {
      const auto length = component.find("length");
      if (length == component.end() || !length->is_number_integer() || length->get<int64_t>() < 1) {
        return BadField(type, "length", "a positive integer");
      }
      return Add(std::make_unique<FixedLengthStep>(length->get<int64_t>()));
    }
    return MakeError(ErrorCode::kUnsupported, "pre_tokenizer {} is not supported",
                     files::Printable(type));
  }

  PreTokenizerPlan Take() { return std::move(plan_); }

 private:
  Status Add(std::unique_ptr<PreTokenizerStep> step) {
    plan_.steps.push_back(std::move(step));
    return Status::Ok();
  }
  Status AddRun(RunPattern pattern) { return Add(MakeRunStep(std::move(pattern))); }

  Status ParseSequence(const json& component, int depth) {
    const auto list = component.find("pretokenizers");
    if (list == component.end() || !list->is_array()) {
      return BadField("Sequence", "pretokenizers", "an array");
    }
    for (const json& element : *list) KVASIR_RETURN_IF_ERROR(Parse(element, depth + 1));
    return Status::Ok();
  }

  Status ParseByteLevel(const json& component) {
    if (BoolOr(component, "add_prefix_space", true)) {
      plan_.steps.push_back(std::make_unique<PrefixSpaceStep>());
    }
    if (BoolOr(component, "use_regex", true)) {
      plan_.steps.push_back(MakeFamilyStep(PatternFamily::kGpt2));
    }
    plan_.ends_in_byte_level = true;
    return Status::Ok();
  }

  Status ParseSplit(const json& component) {
    KVASIR_ASSIGN_OR_RETURN(const SplitBehavior behavior,
                            ParseBehavior(component, "Split", std::nullopt));
    const bool invert = BoolOr(component, "invert", false);
    const json pattern = component.value("pattern", json());
    if (pattern.is_object() && pattern.contains("String") && pattern["String"].is_string()) {
      return Add(MakeSplitStep(MakeLiteralMatcher(pattern["String"].get<std::string>()), behavior,
                               invert));
    }
    if (!pattern.is_object() || !pattern.contains("Regex") || !pattern["Regex"].is_string()) {
      return BadField("Split", "pattern", "{\"String\": …} or {\"Regex\": …}");
    }
    const auto& regex = pattern["Regex"].get_ref<const std::string&>();
    const bool keeps_gaps = behavior == SplitBehavior::kIsolated && !invert;
    const bool keeps_matches_alone = behavior == SplitBehavior::kRemoved && invert;
    if (keeps_gaps || keeps_matches_alone) {
      if (auto known = MakeStepOfKnownPattern(regex, /*whole_cover=*/keeps_matches_alone)) {
        return Add(std::move(known));
      }
    }
    KVASIR_ASSIGN_OR_RETURN(std::unique_ptr<Matcher> matcher, MakeRegexMatcher(regex));
    return Add(MakeSplitStep(std::move(matcher), behavior, invert));
  }

  Status ParseMetaspace(const json& component) {
    std::string replacement = "\u2581";
    if (const auto found = component.find("replacement"); found != component.end()) {
      if (found->is_string()) replacement = found->get<std::string>();
      if (!found->is_string() || replacement.empty() ||
          Utf8Length(static_cast<uint8_t>(replacement[0])) != replacement.size()) {
        return BadField("Metaspace", "replacement", "a character");
      }
    }
    auto prepend = MetaspaceStep::Prepend::kAlways;
    if (!BoolOr(component, "add_prefix_space", true)) prepend = MetaspaceStep::Prepend::kNever;
    if (const auto found = component.find("prepend_scheme"); found != component.end()) {
      const std::string scheme = found->is_string() ? found->get<std::string>() : "";
      if (scheme == "always") {
        prepend = MetaspaceStep::Prepend::kAlways;
      } else if (scheme == "first") {
        prepend = MetaspaceStep::Prepend::kFirst;
      } else if (scheme == "never") {
        prepend = MetaspaceStep::Prepend::kNever;
      } else {
        return BadField("Metaspace", "prepend_scheme", "always, first or never");
      }
    }
    return Add(std::make_unique<MetaspaceStep>(std::move(replacement), prepend,
                                               BoolOr(component, "split", true)));
  }

  Status ParseDelimiter(const json& component) {
    const auto found = component.find("delimiter");
    const std::string delimiter =
        found != component.end() && found->is_string() ? found->get<std::string>() : "";
    if (delimiter.empty() || Utf8Length(static_cast<uint8_t>(delimiter[0])) != delimiter.size()) {
      return BadField("CharDelimiterSplit", "delimiter", "a character");
    }
    const uint32_t code_point = CodePointAt(delimiter, 0);
    return Add(MakeDelimiterStep(CharSet(0, {{code_point, code_point}})));
  }

  PreTokenizerPlan plan_;
  int byte_levels_count_ = 0;
};

}  // namespace

void PreTokenizer::Cut(std::string_view piece, bool at_start, Words& words) const {
  words.text = piece;
  words.spans.clear();
  if (piece.empty()) return;
  words.spans.push_back({0, static_cast<uint32_t>(piece.size())});
  for (const auto& step : steps_) step->Apply(words, at_start);
}

Result<PreTokenizerPlan> ParsePreTokenizer(const json& json) {
  if (json.is_null()) return PreTokenizerPlan{};
  Parser parser;
  KVASIR_RETURN_IF_ERROR(parser.Parse(json, 0));
  return parser.Take();
}

std::unique_ptr<PreTokenizerStep> MakeByteAlphabetStep() {
  return std::make_unique<ByteAlphabetStep>();
}

}  // namespace kvasir::text
