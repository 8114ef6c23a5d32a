// Filters on text, numbers and single values.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/strings.h"
#include "text/jinja/functions.h"
#include "text/jinja/unicode.h"

namespace kvasir::text::jinja {
namespace {

template <std::string (*kConvert)(std::string_view)>
Value Converted(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("filter", arguments, {});
  std::string storage;
  return runtime.String(kConvert(runtime.SoftText(subject, storage)));
}

bool SplitsWords(char32_t c) {
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsSpace(c);
}

// Jinja's own title: words begin behind a space or one of -({[<.
std::string TitleWords(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const bool separator = SplitsWords(DecodeAt(text, at));
    const std::size_t first_end = at;
    while (at < text.size()) {
      std::size_t next = at;
      if (SplitsWords(DecodeAt(text, next)) != separator) break;
      at = next;
    }
    out += Upper(text.substr(begin, first_end - begin));
    out += Lower(text.substr(first_end, at - first_end));
  }
  return out;
}

Value TrimFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const Value text = subject.string() ? subject : runtime.String(runtime.ToString(subject));
  Arguments chars;
  if (bound.Has(0)) chars.positional.push_back(bound[0]);
  return FindMethod(Kind::kString, "strip")(runtime, text, chars);
}

Value StringFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("string", arguments, {});
  return subject.string() ? subject : runtime.String(runtime.ToString(subject));
}

Value ReplaceFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const Integer count = bound.Has(2) && bound[2].none() ? -1 : bound.Int(2, -1);
  return runtime.String(ReplaceText(runtime, runtime.ToString(subject), runtime.ToString(bound[0]),
                                    runtime.ToString(bound[1]), count));
}

Value IndentFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  if (subject.undefined()) FailUndefined(subject);
  if (!subject.string()) {
    Fail("unsupported operand type(s) for +=: '{}' and 'str'", TypeName(subject));
  }
  std::string indention;
  if (bound.Has(0) && bound[0].string()) {
    indention = bound[0].Text();
  } else {
    const Integer width = std::clamp<Integer>(bound.Int(0, 4), 0, 1 << 20);
    indention.assign(static_cast<std::size_t>(width), ' ');
  }
  const bool blank = bound.Truth(runtime, 2);
  Arguments none;
  const Value whole = runtime.String(subject.Text() + "\n");
  const Value lines = FindMethod(Kind::kString, "splitlines")(runtime, whole, none);
  std::string out = bound.Truth(runtime, 1) ? indention : "";
  for (std::size_t i = 0; i < lines.AsList().items.size(); ++i) {
    const std::string& line = lines.AsList().items[i].Text();
    if (i > 0) {
      out.push_back('\n');
      if (blank || !line.empty()) out += indention;
    }
    out += line;
    runtime.CheckSize(out.size());
  }
  return runtime.String(std::move(out));
}

Value TruncateFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::string end = bound.Has(2) ? bound.Text(2) : "...";
  const Integer length = bound.Int(0, 255);
  const Integer leeway = bound.Has(3) && bound[3].none() ? 5 : bound.Int(3, 5);
  const auto end_length = static_cast<Integer>(CountCodePoints(end));
  if (length < end_length) Fail("expected length >= {}", static_cast<int64_t>(end_length));
  const std::optional<std::size_t> size = runtime.Length(subject);
  if (!size) Fail("object of type '{}' has no len()", TypeName(subject));
  if (static_cast<Integer>(*size) <= length + leeway) return subject;
  if (!subject.string()) Fail("truncate needs a string, got {}", TypeName(subject));
  const std::string& text = subject.Text();
  std::string kept = text.substr(0, OffsetOf(text, static_cast<std::size_t>(length - end_length)));
  if (!bound.Truth(runtime, 1)) {
    const std::size_t space = kept.rfind(' ');
    if (space != std::string::npos) kept.resize(space);
  }
  return runtime.String(kept + end);
}

Value CenterFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  const Value text = subject.string() ? subject : runtime.String(runtime.ToString(subject));
  return runtime.String(JustifyText(runtime, text, bound.Int(0, 80), " ", '^'));
}

Value WordCount(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("wordcount", arguments, {});
  std::string storage;
  const std::string_view text = runtime.SoftText(subject, storage);
  std::size_t count = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const bool word = IsWord(DecodeAt(text, at));
    if (word && !in_word) ++count;
    in_word = word;
  }
  return Value::Size(count);
}

Value Escape(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("escape", arguments, {});
  if (subject.markup()) return subject;
  return runtime.Markup(EscapeHtml(runtime.ToString(subject)));
}
Value ForceEscape(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("forceescape", arguments, {});
  return runtime.Markup(EscapeHtml(runtime.ToString(subject)));
}
Value Safe(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("safe", arguments, {});
  return runtime.Markup(runtime.ToString(subject));
}

Value UrlEncode(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("urlencode", arguments, {});
  if (runtime.Iterable(subject) && !subject.string() && !subject.undefined()) {
    Fail("urlencode needs a string, got {}", TypeName(subject));
  }
  std::string storage;
  std::string out;
  for (const char c : runtime.SoftText(subject, storage)) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("_.-~/").find(c) != std::string_view::npos) {
      out.push_back(c);
    } else {
      fmt::format_to(std::back_inserter(out), "%{:02X}", byte);
    }
  }
  return runtime.String(std::move(out));
}

Value FormatFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  Value values;
  if (!arguments.named.empty()) {
    if (!arguments.positional.empty()) {
      Fail("can't handle positional and keyword arguments at the same time");
    }
    Dict* dict = runtime.NewDict();
    FillDict(runtime, *dict, "format", arguments);
    values = Value::Of(dict);
  } else {
    List* list = runtime.NewList();
    for (const Value& value : arguments.positional) runtime.Append(*list, value);
    values = Value::Of(list, true);
  }
  return runtime.String(PercentFormat(runtime, runtime.ToString(subject), values));
}

Value IntegerOf(double value) {
  if (std::fabs(value) >= 1.7e38) Fail("cannot convert float {} to integer", FormatFloat(value));
  return Value::Int(static_cast<Integer>(value));
}

Value IntFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  if (subject.undefined()) FailUndefined(subject);
  if (subject.integral()) return Value::Int(subject.AsInt());
  if (subject.Is(Kind::kFloat) && !std::isnan(subject.AsDouble())) {
    return IntegerOf(subject.AsDouble());
  }
  if (subject.string()) {
    const auto base = static_cast<int>(std::clamp<Integer>(bound.Int(1, 10), 0, 36));
    if (const auto value = ParseInteger(subject.Text(), base)) return Value::Int(*value);
    const auto number = ParseFloat(subject.Text());
    if (number && std::isfinite(*number)) return IntegerOf(*number);
  }
  runtime.Step();
  return bound.Has(0) ? bound[0] : Value::Int(0);
}

Value FloatFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  if (subject.undefined()) FailUndefined(subject);
  if (subject.numeric()) return Value::Float(subject.AsDouble());
  if (subject.string()) {
    if (const auto number = ParseFloat(subject.Text())) return Value::Float(*number);
  }
  runtime.Step();
  return bound.Has(0) ? bound[0] : Value::Float(0);
}

Value Abs(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("abs", arguments, {});
  if (subject.undefined()) FailUndefined(subject);
  if (subject.integral()) {
    return subject.AsInt() < 0 ? runtime.Negate(subject) : Value::Int(subject.AsInt());
  }
  if (!subject.numeric()) Fail("bad operand type for abs(): '{}'", TypeName(subject));
  return Value::Float(std::fabs(subject.AsDouble()));
}

// Python's round(): to the nearest decimal of the exact value, ties to even.
double RoundTo(double value, int precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision >= 0) {
    char buffer[1024];
    std::snprintf(buffer, sizeof(buffer), "%.*f", precision, value);
    return std::strtod(buffer, nullptr);
  }
  const double unit = std::pow(10.0, -precision);
  return std::nearbyint(value / unit) * unit;
}

// To a multiple of 10^digits, ties to even.
Integer RoundInteger(Integer value, int digits) {
  constexpr int kDigitsMax = 37;  // 10^38 is the last power in 127 bits
  if (digits > kDigitsMax) return 0;
  Integer unit = 1;
  for (int i = 0; i < digits; ++i) unit *= 10;
  Integer quotient = value / unit;
  const Integer rest = value < 0 ? -(value % unit) : value % unit;
  if (rest * 2 > unit || (rest * 2 == unit && quotient % 2 != 0)) quotient += value < 0 ? -1 : 1;
  return quotient * unit;
}

Value Round(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  runtime.Step();
  if (subject.undefined()) FailUndefined(subject);
  if (!subject.numeric()) Fail("type {} doesn't define __round__ method", TypeName(subject));
  const auto precision = static_cast<int>(std::clamp<Integer>(bound.Int(0, 0), -300, 301));
  const std::string method = bound.Has(1) ? bound.Text(1) : "common";
  if (method == "common") {
    if (subject.integral() && precision >= 0) return Value::Int(subject.AsInt());
    if (subject.integral()) return Value::Int(RoundInteger(subject.AsInt(), -precision));
    return Value::Float(RoundTo(subject.AsDouble(), precision));
  }
  if (method != "ceil" && method != "floor") Fail("method must be common, ceil or floor");
  const double scale = std::pow(10.0, precision);
  const double scaled = subject.AsDouble() * scale;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value ToJson(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.Truth(runtime, 0);
  style.sort_keys = bound.Truth(runtime, 3);
  if (bound.Has(1) && !bound[1].none()) {
    if (bound[1].string()) {
      style.indent = bound[1].Text();
    } else {
      const Integer width = std::clamp<Integer>(bound.Int(1, 0), 0, 1024);
      style.indent = std::string(static_cast<std::size_t>(width), ' ');
    }
  }
  style.item_separator = style.indent ? "," : ", ";
  style.key_separator = ": ";
  if (bound.Has(2) && !bound[2].none()) {
    if (!bound[2].sequence() || bound[2].AsList().items.size() != 2 ||
        !bound[2].AsList().items[0].string() || !bound[2].AsList().items[1].string()) {
      Fail("tojson(): separators must be two strings");
    }
    style.item_separator = bound[2].AsList().items[0].Text();
    style.key_separator = bound[2].AsList().items[1].Text();
  }
  std::string out;
  AppendJson(runtime, out, subject, style);
  return runtime.String(std::move(out));
}

// Not in Jinja; some templates of DeepSeek call it.
Value FromJsonFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("from_json", arguments, {});
  if (!subject.string()) Fail("from_json needs a string, got {}", TypeName(subject));
  runtime.StepBytes(subject.Text().size());
  return ParseJson(runtime, subject.Text());
}

Value Default(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  if (!subject.undefined() && (!bound.Truth(runtime, 1) || runtime.Truth(subject))) return subject;
  return bound.Has(0) ? bound[0] : runtime.String("");
}

Value AttributeFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  (void)bound.Text(0);
  if (subject.Is(Kind::kDict) && FindMethod(Kind::kDict, bound.Text(0)) == nullptr) {
    return Value::Undefined(Lack::kAttribute, bound[0].AsStr(), subject.kind());
  }
  return runtime.Attribute(subject, bound[0].AsStr());
}

constexpr NamedFilter kFilters[] = {
    {"upper", Converted<Upper>},
    {"lower", Converted<Lower>},
    {"capitalize", Converted<Capitalize>},
    {"title", Converted<TitleWords>},
    {"trim", TrimFilter},
    {"string", StringFilter},
    {"replace", ReplaceFilter},
    {"indent", IndentFilter},
    {"truncate", TruncateFilter},
    {"center", CenterFilter},
    {"wordcount", WordCount},
    {"escape", Escape},
    {"e", Escape},
    {"forceescape", ForceEscape},
    {"safe", Safe},
    {"urlencode", UrlEncode},
    {"format", FormatFilter},
    {"int", IntFilter},
    {"float", FloatFilter},
    {"abs", Abs},
    {"round", Round},
    {"tojson", ToJson},
    {"from_json", FromJsonFilter},
    {"fromjson", FromJsonFilter},
    {"default", Default},
    {"d", Default},
    {"attr", AttributeFilter},
};

}  // namespace

Table<NamedFilter> TextFilters() { return {kFilters, std::size(kFilters)}; }

}  // namespace kvasir::text::jinja
