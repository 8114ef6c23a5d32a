#include "text/detokenizer_rules.h"

#include <algorithm>
#include <utility>

#include "files/printable.h"
#include "text/unicode_byte_alphabet.h"
#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

using nlohmann::json;

constexpr int kDepthMax = 8;
constexpr size_t kStepsMax = 64;

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t found = text.find(from); found != std::string_view::npos && !from.empty();
       found = text.find(from, done)) {
    out.append(text, done, found - done);
    out += to;
    done = found + from.size();
  }
  out.append(text, done);
  return out;
}

std::string Strip(std::string_view text, const DecoderRules::Step& step) {
  for (uint32_t i = 0; i < step.start && text.starts_with(step.from); ++i) {
    text.remove_prefix(step.from.size());
  }
  for (uint32_t i = 0; i < step.stop && text.ends_with(step.from); ++i) {
    text.remove_suffix(step.from.size());
  }
  return std::string(text);
}

/// WordPiece's cleanup, in its order.
std::string CleanUp(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) text = ReplaceAll(text, from, to);
  return text;
}

std::string ApplyStep(const DecoderRules::Step& step, std::string text, bool first) {
  switch (step.kind) {
    case DecoderRules::Kind::kReplace:
      return ReplaceAll(text, step.from, step.to);
    case DecoderRules::Kind::kStrip:
      return Strip(text, step);
    case DecoderRules::Kind::kMetaspace:
      return ReplaceAll(text, step.from, first && step.drop_first ? "" : " ");
    case DecoderRules::Kind::kWordPiece:
      if (!first) {
        text = !step.from.empty() && text.starts_with(step.from) ? text.substr(step.from.size())
                                                                 : " " + text;
      }
      return step.cleanup ? CleanUp(std::move(text)) : text;
    case DecoderRules::Kind::kJoinSpace:
      return first ? text : " " + text;
    case DecoderRules::Kind::kByteLevel: {
      std::string bytes;
      return AppendUnmapped(text, bytes) ? bytes : text;
    }
  }
  return text;
}

class Parser {
 public:
  Status Parse(const json& component, int depth) {
    if (!component.is_object() || !component.contains("type") || !component["type"].is_string()) {
      return MakeError(ErrorCode::kDataLoss, "decoder: expected an object with a type");
    }
    if (depth > kDepthMax || rules_.steps.size() > kStepsMax) {
      return MakeError(ErrorCode::kDataLoss, "decoder: too many or too deeply nested steps");
    }
    const auto& type = component["type"].get_ref<const std::string&>();
    if (type == "Sequence") {
      const auto list = component.find("decoders");
      if (list == component.end() || !list->is_array()) {
        return MakeError(ErrorCode::kDataLoss, "decoder Sequence: decoders must be an array");
      }
      for (const json& element : *list) KVASIR_RETURN_IF_ERROR(Parse(element, depth + 1));
      return Status::Ok();
    }
    if (type == "Fuse") {
      fused_ = true;
      return Status::Ok();
    }
    if (type == "Strip") return ParseStrip(component);
    if (type == "Replace") return ParseReplace(component);
    if (fused_) {
      return MakeError(ErrorCode::kUnsupported, "decoder {} behind Fuse is not supported",
                       files::Printable(type));
    }
    if (type == "ByteLevel") {
      rules_.steps.push_back({.kind = DecoderRules::Kind::kByteLevel});
      fused_ = true;  // its result is one string
      return Status::Ok();
    }
    if (type == "ByteFallback") {
      rules_.byte_fallback = true;
      return Status::Ok();
    }
    if (type == "Metaspace") {
      const bool never = component.value("prepend_scheme", json()) == "never" ||
                         component.value("add_prefix_space", json()) == false;
      rules_.steps.push_back({.kind = DecoderRules::Kind::kMetaspace,
                              .from = StringOr(component, "replacement", "\u2581"),
                              .drop_first = !never});
      return Status::Ok();
    }
    if (type == "WordPiece") {
      const auto cleanup = component.find("cleanup");
      rules_.steps.push_back({.kind = DecoderRules::Kind::kWordPiece,
                              .from = StringOr(component, "prefix", "##"),
                              .cleanup = cleanup == component.end() || !cleanup->is_boolean() ||
                                         cleanup->get<bool>()});
      return Status::Ok();
    }
    return MakeError(ErrorCode::kUnsupported, "decoder {} is not supported",
                     files::Printable(type));
  }

  DecoderRules Take() { return std::move(rules_); }

 private:
  static std::string StringOr(const json& component, const char* field, const char* absent) {
    const auto found = component.find(field);
    return found != component.end() && found->is_string() ? found->get<std::string>() : absent;
  }

  Status ParseStrip(const json& component) {
    const std::string content = StringOr(component, "content", "");
    const auto count = [&](const char* field) -> int64_t {
      const auto found = component.find(field);
      return found != component.end() && found->is_number_unsigned() ? found->get<int64_t>() : -1;
    };
    constexpr int64_t kCountMax = 1 << 20;
    const int64_t start = count("start");
    const int64_t stop = count("stop");
    if (content.empty() || start < 0 || stop < 0 || start > kCountMax || stop > kCountMax) {
      return MakeError(ErrorCode::kDataLoss,
                       "decoder Strip: expected a content and counts start and stop");
    }
    if (!fused_) {
      rules_.steps.push_back({.kind = DecoderRules::Kind::kStrip,
                              .from = content,
                              .start = static_cast<uint32_t>(start),
                              .stop = static_cast<uint32_t>(stop)});
      return Status::Ok();
    }
    if (stop != 0 || rules_.strip_start != 0) {
      return MakeError(ErrorCode::kUnsupported,
                       "decoder Strip behind Fuse: only one, at the start, is supported");
    }
    rules_.strip_content = content;
    rules_.strip_start = static_cast<uint32_t>(start);
    return Status::Ok();
  }

  Status ParseReplace(const json& component) {
    const json pattern = component.value("pattern", json());
    const json content = component.value("content", json());
    if (!pattern.is_object() || !pattern.contains("String") || !pattern["String"].is_string() ||
        !content.is_string() || pattern["String"].get_ref<const std::string&>().empty()) {
      return MakeError(ErrorCode::kUnsupported,
                       "decoder Replace: expected a pattern {{\"String\": …}} and a content");
    }
    const std::string from = pattern["String"].get<std::string>();
    // A single character lies inside one token: whether tokens are fused before does not matter.
    if (fused_ && Utf8Length(static_cast<uint8_t>(from[0])) != from.size()) {
      return MakeError(ErrorCode::kUnsupported,
                       "decoder Replace of \"{}\" behind Fuse is not supported",
                       files::Printable(from));
    }
    const std::string to = content.get<std::string>();
    growth_ *= std::max(1.0, static_cast<double>(to.size()) / static_cast<double>(from.size()));
    constexpr double kGrowthMax = 64.0;
    if (growth_ > kGrowthMax) {
      return MakeError(ErrorCode::kDataLoss,
                       "decoder: its steps could make a token {:.0f} times as long, at most {:.0f} "
                       "are allowed",
                       growth_, kGrowthMax);
    }
    rules_.steps.push_back({.kind = DecoderRules::Kind::kReplace, .from = from, .to = to});
    return Status::Ok();
  }

  DecoderRules rules_;
  bool fused_ = false;
  double growth_ = 1.0;  ///< of all replacements together
};

}  // namespace

std::string DecoderRules::Apply(std::string_view piece, bool first) const {
  std::string text(piece);
  for (const Step& step : steps) text = ApplyStep(step, std::move(text), first);
  return text;
}

bool DecoderRules::FirstDiffers() const {
  return std::any_of(steps.begin(), steps.end(), [](const Step& step) {
    return step.kind == Kind::kWordPiece || step.kind == Kind::kJoinSpace ||
           (step.kind == Kind::kMetaspace && step.drop_first);
  });
}

std::optional<uint8_t> ParseByteToken(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  uint32_t value = 0;
  for (const char c : piece.substr(3, 2)) {
    uint32_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint32_t>(c - '0');
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<uint32_t>(c - 'A' + 10);
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<uint32_t>(c - 'a' + 10);
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return static_cast<uint8_t>(value);
}

Result<DecoderRules> ParseDecoder(const json& json) {
  if (json.is_null()) {
    DecoderRules rules;
    rules.steps.push_back({.kind = DecoderRules::Kind::kJoinSpace});
    return rules;
  }
  Parser parser;
  KVASIR_RETURN_IF_ERROR(parser.Parse(json, 0));
  return parser.Take();
}

}  // namespace kvasir::text
