#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <optional>

#include "files/printable.h"
#include "text/normalizer_charsmap.h"
#include "text/normalizer_unicode.h"
#include "text/pretokenizer_regex.h"
#include "text/unicode_byte_alphabet.h"
#include "text/unicode_class.h"

namespace kvasir::text {
namespace {

using nlohmann::json;

constexpr int kDepthMax = 8;
constexpr size_t kStepsMax = 64;
constexpr size_t kCharsmapBytesMax = 16 << 20;
// Of all steps together. Real ones stay below a thousand even if every step met its worst text.
constexpr double kGrowthMax = 4096.0;
// UTF-8 of the worst characters: U+0390 decomposes into 3 times its bytes, U+FDFA's compatibility
// form has 11 times, U+2C65's lowercase 1.5.
constexpr double kCanonicalGrowth = 3.0;
constexpr double kCompatibilityGrowth = 11.0;
constexpr double kLowercaseGrowth = 1.5;

class FormStep final : public NormalizerStep {
 public:
  explicit FormStep(NormalForm form) : form_(form) {}
  [[nodiscard]] std::string_view Apply(std::string_view text, std::string& out) const override {
    return Normalize(form_, text, out);
  }
  [[nodiscard]] double Growth() const override {
    const bool compatibility = form_ == NormalForm::kNfkc || form_ == NormalForm::kNfkd;
    return compatibility ? kCompatibilityGrowth : kCanonicalGrowth;
  }

 private:
  NormalForm form_;
};

class PrependStep final : public NormalizerStep {
 public:
  explicit PrependStep(std::string prefix) : prefix_(std::move(prefix)) {}
  [[nodiscard]] std::string_view Apply(std::string_view text, std::string& out) const override {
    if (text.empty()) return text;
    out.reserve(prefix_.size() + text.size());
    out = prefix_;
    out += text;
    return out;
  }

 private:
  std::string prefix_;
};

class ReplaceStep final : public NormalizerStep {
 public:
  ReplaceStep(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  [[nodiscard]] std::string_view Apply(std::string_view text, std::string& out) const override {
    if (from_.empty()) return text;
    size_t found = text.find(from_);
    if (found == std::string_view::npos) return text;
    out.reserve(text.size() + text.size() / 4);
    size_t done = 0;
    while (found != std::string_view::npos) {
      out.append(text, done, found - done);
      out += to_;
      done = found + from_.size();
      found = text.find(from_, done);
    }
    out.append(text, done);
    return out;
  }
  [[nodiscard]] double Growth() const override {
    if (from_.empty()) return 1.0;
    return std::max(1.0, static_cast<double>(to_.size()) / static_cast<double>(from_.size()));
  }

 private:
  std::string from_;
  std::string to_;
};

class ReplaceRegexStep final : public NormalizerStep {
 public:
  ReplaceRegexStep(std::unique_ptr<Matcher> matcher, std::string to)
      : matcher_(std::move(matcher)), to_(std::move(to)) {}
  [[nodiscard]] std::string_view Apply(std::string_view text, std::string& out) const override {
    size_t done = 0;
    bool changed = false;
    Span match{};
    for (size_t from = 0; from <= text.size() && matcher_->Find(text, from, match);) {
      changed = true;
      out.append(text, done, match.begin - done);
      out += to_;
      done = from = match.end;
      if (match.begin == match.end) {
        if (from == text.size()) break;
        static_cast<void>(NextCodePoint(text, from));
      }
    }
    if (!changed) return text;
    out.append(text, done);
    return out;
  }
  // A match may be empty: then the text grows by `to` at every character.
  [[nodiscard]] double Growth() const override { return 1.0 + static_cast<double>(to_.size()); }

 private:
  std::unique_ptr<Matcher> matcher_;
  std::string to_;
};

void AppendLowercase(uint32_t code_point, std::string& out) {
  if (code_point == 0x130) {  // the only character whose lowercase is two
    out += "i\u0307";
    return;
  }
  AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))),
             out);
}

/// Calls body(code_point, class, out) for every character.
template <typename Body>
class MapStep final : public NormalizerStep {
 public:
  explicit MapStep(Body body) : body_(body) {}
  [[nodiscard]] std::string_view Apply(std::string_view text, std::string& out) const override {
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const uint32_t code_point = NextCodePoint(text, at);
      body_(code_point, ClassOf(table_, code_point), out);
    }
    return out;
  }
  [[nodiscard]] double Growth() const override { return kLowercaseGrowth; }

 private:
  Body body_;
  const CharClass* table_ = CharClassTable();
};
template <typename Body>
std::unique_ptr<NormalizerStep> MakeMap(Body body) {
  return std::make_unique<MapStep<Body>>(body);
}

/// SentencePiece's nmt rules: controls are dropped, odd spaces become spaces.
void AppendNmt(uint32_t c, CharClass /*found*/, std::string& out) {
  if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F) {
    return;
  }
  const bool is_space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                        (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                        c == 0xFEFF || c == 0xFFFD;
  AppendUtf8(is_space ? ' ' : c, out);
}

class StripStep final : public NormalizerStep {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}
  [[nodiscard]] std::string_view Apply(std::string_view text, std::string& /*out*/) const override {
    const CharClass* table = CharClassTable();
    while (left_ && !text.empty()) {
      size_t at = 0;
      if ((NextClass(table, text, at) & kSpace) == 0) break;
      text.remove_prefix(at);
    }
    while (right_ && !text.empty()) {
      const size_t begin = PreviousBoundary(text, text.size());
      if ((ClassOf(table, CodePointAt(text, begin)) & kSpace) == 0) break;
      text.remove_suffix(text.size() - begin);
    }
    return text;
  }

 private:
  bool left_;
  bool right_;
};

class ByteLevelStep final : public NormalizerStep {
 public:
  [[nodiscard]] std::string_view Apply(std::string_view text, std::string& out) const override {
    out.reserve(text.size() + text.size() / 4);
    AppendMapped(text, out);
    return out;
  }
  [[nodiscard]] double Growth() const override { return 2.0; }
};

class BertStep final : public NormalizerStep {
 public:
  explicit BertStep(const BertNormalization& options) : options_(options) {}

  [[nodiscard]] std::string_view Apply(std::string_view text, std::string& out) const override {
    std::string cleaned;
    if (options_.clean_text || options_.handle_chinese_chars) {
      cleaned.reserve(text.size());
      for (size_t at = 0; at < text.size();) AppendCleaned(NextCodePoint(text, at), cleaned);
      text = cleaned;
    }
    std::string decomposed;
    if (options_.strip_accents) text = Normalize(NormalForm::kNfd, text, decomposed);
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const uint32_t code_point = NextCodePoint(text, at);
      if (options_.strip_accents && (ClassOf(table_, code_point) & kNonSpacingMark) != 0) continue;
      if (options_.lowercase) {
        AppendLowercase(code_point, out);
      } else {
        AppendUtf8(code_point, out);
      }
    }
    return out;
  }
  // Two spaces around an ideograph of three bytes.
  [[nodiscard]] double Growth() const override {
    return 5.0 / 3.0 * kCanonicalGrowth * kLowercaseGrowth;
  }

 private:
  void AppendCleaned(uint32_t c, std::string& out) const {
    if (options_.clean_text) {
      const CharClass found = ClassOf(table_, c);
      const bool is_space = (found & kSpace) != 0;
      const bool is_control = (found & kOther) != 0 && c != '\t' && c != '\n' && c != '\r';
      if (c == 0 || c == 0xFFFD || is_control) return;
      if (is_space) c = ' ';
    }
    if (options_.handle_chinese_chars && IsChinese(c)) {
      out += ' ';
      AppendUtf8(c, out);
      out += ' ';
    } else {
      AppendUtf8(c, out);
    }
  }

  static bool IsChinese(uint32_t c) {  // as BERT has it, 0x2B920 included
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  }

  BertNormalization options_;
  const CharClass* table_ = CharClassTable();
};

/// tokenizer.json's Precompiled: for each grapheme, and failing that for each character in it, the
/// first (shortest) entry of the map that begins it replaces it.
class PrecompiledStep final : public NormalizerStep {
 public:
  explicit PrecompiledStep(CharsMap map) : map_(std::move(map)) {}

  [[nodiscard]] std::string_view Apply(std::string_view text, std::string& out) const override {
    out.reserve(text.size());
    utf8proc_int32_t state = 0;
    size_t begin = 0;
    while (begin < text.size()) {
      size_t end = begin;
      uint32_t previous = NextCodePoint(text, end);
      while (end < text.size()) {
        size_t next = end;
        const uint32_t code_point = NextCodePoint(text, next);
        if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous),
                                             static_cast<utf8proc_int32_t>(code_point), &state)) {
          break;
        }
        previous = code_point;
        end = next;
      }
      AppendGrapheme(text.substr(begin, end - begin), out);
      begin = end;
    }
    return out;
  }
  [[nodiscard]] double Growth() const override {
    return std::max(1.0, static_cast<double>(map_.replacement_bytes_max()));
  }

 private:
  void AppendGrapheme(std::string_view grapheme, std::string& out) const {
    constexpr size_t kGraphemeBytesMax = 6;  // longer ones are looked up by character only
    if (grapheme.size() < kGraphemeBytesMax) {
      if (const auto match = map_.Shortest(grapheme)) {
        out += match->replacement;
        return;
      }
    }
    for (size_t at = 0; at < grapheme.size();) {
      const size_t begin = at;
      static_cast<void>(NextCodePoint(grapheme, at));
      const std::string_view character = grapheme.substr(begin, at - begin);
      const auto match = map_.Shortest(character);
      out += match.has_value() ? match->replacement : character;
    }
  }

  CharsMap map_;
};

class SentencePieceStep final : public NormalizerStep {
 public:
  SentencePieceStep(SentencePieceNormalization options, std::optional<CharsMap> map)
      : options_(std::move(options)), map_(std::move(map)) {}

  [[nodiscard]] std::string_view Apply(std::string_view text, std::string& out) const override {
    constexpr std::string_view kEscapedSpace = "\u2581";
    out.reserve(text.size() + text.size() / 4);
    bool previous_space = options_.remove_extra_whitespaces;  // drops spaces at the begin
    bool prefix_due = options_.add_dummy_prefix;
    for (size_t at = 0; at < text.size();) {
      for (const char c : NextReplacement(text, at)) {
        if (c == ' ' && previous_space && options_.remove_extra_whitespaces) continue;
        if (prefix_due) {
          out += kEscapedSpace;
          prefix_due = false;
        }
        if (c == ' ') {
          out += kEscapedSpace;
        } else {
          out += c;
        }
        previous_space = c == ' ';
      }
    }
    if (options_.remove_extra_whitespaces && previous_space && out.ends_with(kEscapedSpace)) {
      out.resize(out.size() - kEscapedSpace.size());
    }
    return out;
  }

 private:
  std::string_view NextReplacement(std::string_view text, size_t& at) const {
    const std::string_view rest = text.substr(at);
    if (map_.has_value()) {
      if (const auto match = map_->Longest(rest)) {
        at += match->length;
        return match->replacement;
      }
    }
    const size_t length = Utf8Length(static_cast<uint8_t>(rest[0]));
    at += length;
    return rest.substr(0, length);
  }

  SentencePieceNormalization options_;
  std::optional<CharsMap> map_;
};

std::optional<std::string> DecodeBase64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<uint32_t>(c - 'a' + 26);
    } else if (c >= '0' && c <= '9') {
      value = static_cast<uint32_t>(c - '0' + 52);
    } else if (c == '+') {
      value = 62;
    } else if (c == '/') {
      value = 63;
    } else if (c == '=') {
      break;
    } else {
      return std::nullopt;
    }
    bits = bits << 6 | value;
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return out;
}

bool BoolOr(const json& component, const char* field, bool absent) {
  const auto found = component.find(field);
  return found != component.end() && found->is_boolean() ? found->get<bool>() : absent;
}

Error BadField(std::string_view type, std::string_view field, std::string_view expected) {
  return MakeError(ErrorCode::kDataLoss, "normalizer {}: {} must be {}", type, field, expected);
}

Result<std::unique_ptr<NormalizerStep>> ParseReplace(const json& component) {
  const json pattern = component.value("pattern", json());
  const json content = component.value("content", json());
  if (!content.is_string()) return BadField("Replace", "content", "a string");
  if (pattern.is_object() && pattern.contains("String") && pattern["String"].is_string()) {
    return MakeReplace(pattern["String"].get<std::string>(), content.get<std::string>());
  }
  if (pattern.is_object() && pattern.contains("Regex") && pattern["Regex"].is_string()) {
    KVASIR_ASSIGN_OR_RETURN(std::unique_ptr<Matcher> matcher,
                            MakeRegexMatcher(pattern["Regex"].get_ref<const std::string&>()));
    return std::unique_ptr<NormalizerStep>(
        std::make_unique<ReplaceRegexStep>(std::move(matcher), content.get<std::string>()));
  }
  return BadField("Replace", "pattern", "{\"String\": …} or {\"Regex\": …}");
}

Result<std::unique_ptr<NormalizerStep>> ParsePrecompiled(const json& component) {
  const auto found = component.find("precompiled_charsmap");
  if (found == component.end() || !found->is_string() ||
      found->get_ref<const std::string&>().size() > kCharsmapBytesMax) {
    return BadField("Precompiled", "precompiled_charsmap", "a base64 string of at most 16 MiB");
  }
  const auto blob = DecodeBase64(found->get_ref<const std::string&>());
  if (!blob.has_value()) return BadField("Precompiled", "precompiled_charsmap", "base64");
  KVASIR_ASSIGN_OR_RETURN(CharsMap map, CharsMap::Parse(*blob));
  return std::unique_ptr<NormalizerStep>(std::make_unique<PrecompiledStep>(std::move(map)));
}

Result<std::unique_ptr<NormalizerStep>> ParseOne(const json& component, const std::string& type) {
  if (type == "NFC") return MakeNfc();
  const auto form = [](NormalForm wanted) {
    return std::unique_ptr<NormalizerStep>(std::make_unique<FormStep>(wanted));
  };
  if (type == "NFD") return form(NormalForm::kNfd);
  if (type == "NFKC") return form(NormalForm::kNfkc);
  if (type == "NFKD") return form(NormalForm::kNfkd);
  if (type == "Replace") return ParseReplace(component);
  if (type == "Precompiled") return ParsePrecompiled(component);
  if (type == "Prepend") {
    const auto found = component.find("prepend");
    if (found == component.end() || !found->is_string()) {
      return BadField("Prepend", "prepend", "a string");
    }
    return MakePrepend(found->get<std::string>());
  }
  if (type == "Lowercase") {
    return MakeMap([](uint32_t c, CharClass, std::string& out) { AppendLowercase(c, out); });
  }
  if (type == "StripAccents") {
    return MakeMap([](uint32_t c, CharClass found, std::string& out) {
      if ((found & kMark) == 0) AppendUtf8(c, out);
    });
  }
  if (type == "Nmt") return MakeMap(AppendNmt);
  if (type == "Strip") {
    return std::unique_ptr<NormalizerStep>(std::make_unique<StripStep>(
        BoolOr(component, "strip_left", true), BoolOr(component, "strip_right", true)));
  }
  if (type == "ByteLevel") {
    return std::unique_ptr<NormalizerStep>(std::make_unique<ByteLevelStep>());
  }
  if (type == "BertNormalizer") {
    BertNormalization options;
    options.clean_text = BoolOr(component, "clean_text", true);
    options.handle_chinese_chars = BoolOr(component, "handle_chinese_chars", true);
    options.lowercase = BoolOr(component, "lowercase", true);
    options.strip_accents = BoolOr(component, "strip_accents", options.lowercase);
    return MakeBert(options);
  }
  return MakeError(ErrorCode::kUnsupported, "normalizer {} is not supported",
                   files::Printable(type));
}

Status Parse(const json& component, int depth, Normalizer::Steps& steps) {
  if (!component.is_object() || !component.contains("type") || !component["type"].is_string()) {
    return MakeError(ErrorCode::kDataLoss, "normalizer: expected an object with a type");
  }
  if (depth > kDepthMax || steps.size() > kStepsMax) {
    return MakeError(ErrorCode::kDataLoss, "normalizer: too many or too deeply nested steps");
  }
  const auto& type = component["type"].get_ref<const std::string&>();
  if (type != "Sequence") {
    KVASIR_ASSIGN_OR_RETURN(std::unique_ptr<NormalizerStep> step, ParseOne(component, type));
    steps.push_back(std::move(step));
    return Status::Ok();
  }
  const auto list = component.find("normalizers");
  if (list == component.end() || !list->is_array()) {
    return BadField("Sequence", "normalizers", "an array");
  }
  for (const json& element : *list) KVASIR_RETURN_IF_ERROR(Parse(element, depth + 1, steps));
  return Status::Ok();
}

}  // namespace

std::string_view Normalizer::Apply(std::string_view text, NormalizerBuffers& buffers) const {
  std::string* out = &buffers.even;
  std::string* other = &buffers.odd;
  for (const auto& step : steps_) {
    out->clear();
    text = step->Apply(text, *out);
    if (!out->empty()) std::swap(out, other);  // `text` may lie in it: the next step must not
  }
  return text;
}

Result<Normalizer::Steps> ParseNormalizer(const json& json) {
  Normalizer::Steps steps;
  if (!json.is_null()) KVASIR_RETURN_IF_ERROR(Parse(json, 0, steps));
  double growth = 1.0;
  for (const auto& step : steps) growth *= step->Growth();
  if (growth > kGrowthMax) {
    return MakeError(ErrorCode::kDataLoss,
                     "normalizer: its steps could make a text {:.0f} times as long, at most {:.0f} "
                     "are allowed",
                     growth, kGrowthMax);
  }
  return steps;
}

std::unique_ptr<NormalizerStep> MakeNfc() { return std::make_unique<FormStep>(NormalForm::kNfc); }

std::unique_ptr<NormalizerStep> MakePrepend(std::string prefix) {
  return std::make_unique<PrependStep>(std::move(prefix));
}

std::unique_ptr<NormalizerStep> MakeReplace(std::string from, std::string to) {
  return std::make_unique<ReplaceStep>(std::move(from), std::move(to));
}

std::unique_ptr<NormalizerStep> MakeBert(const BertNormalization& options) {
  return std::make_unique<BertStep>(options);
}

Result<std::unique_ptr<NormalizerStep>> MakeSentencePiece(SentencePieceNormalization options) {
  std::optional<CharsMap> map;
  if (!options.charsmap.empty()) {
    KVASIR_ASSIGN_OR_RETURN(map, CharsMap::Parse(options.charsmap));
  }
  return std::unique_ptr<NormalizerStep>(
      std::make_unique<SentencePieceStep>(std::move(options), std::move(map)));
}

}  // namespace kvasir::text
