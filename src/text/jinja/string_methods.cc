// Methods of str.
#include <algorithm>

#include "text/jinja/functions.h"
#include "text/jinja/unicode.h"

namespace kvasir::text::jinja {
namespace {

bool HasCodePoint(std::string_view set, char32_t wanted) {
  for (std::size_t at = 0; at < set.size();) {
    if (DecodeAt(set, at) == wanted) return true;
  }
  return false;
}

std::string_view StripLeft(std::string_view text, std::string_view chars) {
  while (!text.empty()) {
    std::size_t next = 0;
    if (!HasCodePoint(chars, DecodeAt(text, next))) break;
    text.remove_prefix(next);
  }
  return text;
}

std::string_view StripRight(std::string_view text, std::string_view chars) {
  while (!text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xc0) == 0x80) --last;
    std::size_t end = last;
    if (!HasCodePoint(chars, DecodeAt(text, end))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

Value Stripped(Runtime& runtime, const Value& self, Arguments& arguments, const char* name,
               bool left, bool right) {
  const Bound bound(name, arguments, {"chars"});
  std::string_view text = self.Text();
  if (!bound.Has(0) || bound[0].none()) {
    if (left) text = TrimLeft(text);
    if (right) text = TrimRight(text);
  } else {
    runtime.StepBytes(text.size() * (1 + bound.Text(0).size() / 8));
    if (left) text = StripLeft(text, bound.Text(0));
    if (right) text = StripRight(text, bound.Text(0));
  }
  if (text.size() == self.Text().size()) return self;
  return runtime.String(std::string(text));
}

Value Strip(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Stripped(runtime, self, arguments, "strip", true, true);
}
Value LeftStrip(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Stripped(runtime, self, arguments, "lstrip", true, false);
}
Value RightStrip(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Stripped(runtime, self, arguments, "rstrip", false, true);
}

std::vector<std::string_view> SplitAtSpaces(std::string_view text, Integer limit) {
  std::vector<std::string_view> parts;
  text = TrimLeft(text);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<Integer>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    std::size_t end = 0;
    while (end < text.size()) {
      std::size_t next = end;
      if (IsSpace(DecodeAt(text, next))) break;
      end = next;
    }
    parts.push_back(text.substr(0, end));
    text = TrimLeft(text.substr(end));
  }
  return parts;
}

std::vector<std::string_view> SplitAtSpacesFromRight(std::string_view text, Integer limit) {
  std::vector<std::string_view> parts;
  text = TrimRight(text);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<Integer>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    std::size_t begin = text.size();
    while (begin > 0) {
      std::size_t last = begin - 1;
      while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xc0) == 0x80) --last;
      std::size_t end = last;
      if (IsSpace(DecodeAt(text, end))) break;
      begin = last;
    }
    parts.push_back(text.substr(begin));
    text = TrimRight(text.substr(0, begin));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator,
                                      Integer limit) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<Integer>(parts.size()) < limit) {
    const std::size_t at = text.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> SplitAtFromRight(std::string_view text, std::string_view separator,
                                               Integer limit) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<Integer>(parts.size()) < limit) {
    const std::size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value ListOf(Runtime& runtime, const std::vector<std::string_view>& parts, bool tuple = false) {
  List* list = runtime.NewList(parts.size());
  for (const std::string_view part : parts) {
    runtime.Append(*list, runtime.String(std::string(part)));
  }
  return Value::Of(list, tuple);
}

Value SplitBy(Runtime& runtime, const Value& self, Arguments& arguments, bool from_right) {
  const Bound bound(from_right ? "rsplit" : "split", arguments, {"sep", "maxsplit"});
  const Integer limit = bound.Int(1, -1);
  const std::string& text = self.Text();
  runtime.StepBytes(text.size());
  if (!bound.Has(0) || bound[0].none()) {
    return ListOf(runtime,
                  from_right ? SplitAtSpacesFromRight(text, limit) : SplitAtSpaces(text, limit));
  }
  const std::string& separator = bound.Text(0);
  if (separator.empty()) Fail("empty separator");
  return ListOf(runtime, from_right ? SplitAtFromRight(text, separator, limit)
                                    : SplitAt(text, separator, limit));
}

Value Split(Runtime& runtime, const Value& self, Arguments& arguments) {
  return SplitBy(runtime, self, arguments, false);
}
Value RightSplit(Runtime& runtime, const Value& self, Arguments& arguments) {
  return SplitBy(runtime, self, arguments, true);
}

Value PartitionAt(Runtime& runtime, const Value& self, Arguments& arguments, bool from_right) {
  const Bound bound("partition", arguments, {"sep"}, 1);
  const std::string_view text = self.Text();
  const std::string& separator = bound.Text(0);
  if (separator.empty()) Fail("empty separator");
  const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
  if (at == std::string_view::npos) {
    if (from_right) return ListOf(runtime, {"", "", text}, true);
    return ListOf(runtime, {text, "", ""}, true);
  }
  return ListOf(runtime, {text.substr(0, at), separator, text.substr(at + separator.size())}, true);
}
Value Partition(Runtime& runtime, const Value& self, Arguments& arguments) {
  return PartitionAt(runtime, self, arguments, false);
}
Value RightPartition(Runtime& runtime, const Value& self, Arguments& arguments) {
  return PartitionAt(runtime, self, arguments, true);
}

Value SplitLines(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  const bool keep = bound.Truth(runtime, 0);
  const std::string_view text = self.Text();
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t c = DecodeAt(text, at);
    const bool ends = (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return ListOf(runtime, lines);
}

// The part of the text that `start` and `end` (arguments 1 and 2, in code points) choose.
struct Window {
  std::string_view text;
  std::size_t begin_bytes = 0;
  bool valid = true;  ///< false: start lies behind the end
};

Window WindowOf(Runtime& runtime, const Value& self, const Bound& bound) {
  Window window{self.Text()};
  const bool from = bound.Has(1) && !bound[1].none();
  const bool to = bound.Has(2) && !bound[2].none();
  if (!from && !to) return window;
  const auto length = static_cast<Integer>(*runtime.Length(self));
  const auto clamp = [&](Integer i) {
    if (i < 0) i = std::max<Integer>(i + length, 0);
    return i;
  };
  const Integer start = from ? clamp(bound.Int(1, 0)) : 0;
  const Integer end = std::min(to ? clamp(bound.Int(2, 0)) : length, length);
  if (start > end) {
    window.valid = false;
    window.text = {};
    return window;
  }
  window.begin_bytes = OffsetOf(window.text, static_cast<std::size_t>(start));
  const std::size_t end_bytes = OffsetOf(window.text, static_cast<std::size_t>(end));
  window.text = window.text.substr(window.begin_bytes, end_bytes - window.begin_bytes);
  return window;
}

Value Affix(Runtime& runtime, const Value& self, Arguments& arguments, bool prefix) {
  const Bound bound(prefix ? "startswith" : "endswith", arguments, {"prefix", "start", "end"}, 1);
  const Window window = WindowOf(runtime, self, bound);
  const auto matches = [&](const Value& value) {
    if (!value.string()) {
      Fail("{}() first arg must be str or a tuple of str, not {}",
           prefix ? "startswith" : "endswith", TypeName(value));
    }
    return window.valid &&
           (prefix ? window.text.starts_with(value.Text()) : window.text.ends_with(value.Text()));
  };
  if (!bound[0].Is(Kind::kTuple)) return Value::Bool(matches(bound[0]));
  const std::vector<Value>& items = bound[0].AsList().items;
  return Value::Bool(std::any_of(items.begin(), items.end(), matches));
}
Value StartsWith(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Affix(runtime, self, arguments, true);
}
Value EndsWith(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Affix(runtime, self, arguments, false);
}

Value Located(Runtime& runtime, const Value& self, Arguments& arguments, bool last, bool must) {
  const Bound bound("find", arguments, {"sub", "start", "end"}, 1);
  const std::string& wanted = bound.Text(0);
  runtime.StepBytes(self.Text().size());
  const Window window = WindowOf(runtime, self, bound);
  std::size_t at = std::string_view::npos;
  if (window.valid) at = last ? window.text.rfind(wanted) : window.text.find(wanted);
  if (at == std::string_view::npos) {
    if (must) Fail("substring not found");
    return Value::Int(-1);
  }
  return Value::Size(
      CountCodePoints(std::string_view(self.Text()).substr(0, window.begin_bytes + at)));
}
Value Find(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Located(runtime, self, arguments, false, false);
}
Value RightFind(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Located(runtime, self, arguments, true, false);
}
Value Index(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Located(runtime, self, arguments, false, true);
}
Value RightIndex(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Located(runtime, self, arguments, true, true);
}

std::size_t CountOf(std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return CountCodePoints(text) + 1;
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(wanted, at)) != std::string_view::npos;
       at += wanted.size()) {
    ++count;
  }
  return count;
}

Value Count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  runtime.StepBytes(self.Text().size());
  const Window window = WindowOf(runtime, self, bound);
  return Value::Size(window.valid ? CountOf(window.text, bound.Text(0)) : 0);
}

Value Replace(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  return runtime.String(
      ReplaceText(runtime, self.Text(), bound.Text(0), bound.Text(1), bound.Int(2, -1)));
}

Value RemovePrefix(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("removeprefix", arguments, {"prefix"}, 1);
  if (!self.Text().starts_with(bound.Text(0))) return self;
  return runtime.String(self.Text().substr(bound.Text(0).size()));
}
Value RemoveSuffix(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("removesuffix", arguments, {"suffix"}, 1);
  if (!self.Text().ends_with(bound.Text(0))) return self;
  return runtime.String(self.Text().substr(0, self.Text().size() - bound.Text(0).size()));
}

Value ToUpper(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("upper", arguments, {});
  return runtime.String(Upper(self.Text()));
}
Value ToLower(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("lower", arguments, {});
  return runtime.String(Lower(self.Text()));
}
Value ToTitle(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("title", arguments, {});
  return runtime.String(Title(self.Text()));
}
Value ToCapitalized(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("capitalize", arguments, {});
  return runtime.String(Capitalize(self.Text()));
}
Value ToSwappedCase(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("swapcase", arguments, {});
  return runtime.String(SwapCase(self.Text()));
}

// True where there is a code point and each is of the class.
template <bool (*kIs)(char32_t)>
Value All(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("is...", arguments, {});
  runtime.StepBytes(self.Text().size());
  const std::string& text = self.Text();
  for (std::size_t at = 0; at < text.size();) {
    if (!kIs(DecodeAt(text, at))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

bool IsAlphaOrNumeric(char32_t c) { return IsAlpha(c) || IsNumeric(c); }

Value IsAsciiText(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("isascii", arguments, {});
  return Value::Bool(*runtime.Length(self) == self.Text().size());
}

Value IsLowerText(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("islower", arguments, {});
  runtime.StepBytes(self.Text().size());
  return Value::Bool(HasOnlyCase(self.Text(), false));
}
Value IsUpperText(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("isupper", arguments, {});
  runtime.StepBytes(self.Text().size());
  return Value::Bool(HasOnlyCase(self.Text(), true));
}

Value Justified(Runtime& runtime, const Value& self, Arguments& arguments, char align) {
  const Bound bound("center", arguments, {"width", "fillchar"}, 1);
  const std::string fill = bound.Has(1) ? bound.Text(1) : " ";
  if (CountCodePoints(fill) != 1) Fail("The fill character must be exactly one character long");
  return runtime.String(JustifyText(runtime, self, bound.Int(0, 0), fill, align));
}
Value Center(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Justified(runtime, self, arguments, '^');
}
Value LeftJustify(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Justified(runtime, self, arguments, '<');
}
Value RightJustify(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Justified(runtime, self, arguments, '>');
}

Value ZeroFill(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("zfill", arguments, {"width"}, 1);
  std::string text = JustifyText(runtime, self, bound.Int(0, 0), "0", '>');
  const std::size_t zeros = text.size() - self.Text().size();
  if (zeros > 0 && zeros < text.size() && (text[zeros] == '-' || text[zeros] == '+')) {
    std::swap(text[0], text[zeros]);
  }
  return runtime.String(std::move(text));
}

Value Join(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"}, 1);
  std::string out;
  Iteration iteration(runtime, bound[0]);
  std::size_t i = 0;
  for (Value item; iteration.Next(runtime, item); ++i) {
    if (!item.string()) {
      Fail("sequence item {}: expected str instance, {} found", i, TypeName(item));
    }
    if (i > 0) out += self.Text();
    out += item.Text();
    runtime.CheckSize(out.size());
  }
  return runtime.String(std::move(out));
}

Value Format(Runtime& runtime, const Value& self, Arguments& arguments) {
  return runtime.String(BraceFormat(runtime, self.Text(), arguments));
}

constexpr NamedMethod kMethods[] = {
    {"strip", Strip},
    {"lstrip", LeftStrip},
    {"rstrip", RightStrip},
    {"split", Split},
    {"rsplit", RightSplit},
    {"splitlines", SplitLines},
    {"partition", Partition},
    {"rpartition", RightPartition},
    {"startswith", StartsWith},
    {"endswith", EndsWith},
    {"find", Find},
    {"rfind", RightFind},
    {"index", Index},
    {"rindex", RightIndex},
    {"count", Count},
    {"replace", Replace},
    {"removeprefix", RemovePrefix},
    {"removesuffix", RemoveSuffix},
    {"upper", ToUpper},
    {"lower", ToLower},
    {"title", ToTitle},
    {"capitalize", ToCapitalized},
    {"swapcase", ToSwappedCase},
    {"isalpha", All<IsAlpha>},
    {"isalnum", All<IsAlphaOrNumeric>},
    {"isascii", IsAsciiText},
    {"isdecimal", All<IsDecimal>},
    {"isdigit", All<IsDigit>},
    {"isnumeric", All<IsNumeric>},
    {"isspace", All<IsSpace>},
    {"islower", IsLowerText},
    {"isupper", IsUpperText},
    {"center", Center},
    {"ljust", LeftJustify},
    {"rjust", RightJustify},
    {"zfill", ZeroFill},
    {"join", Join},
    {"format", Format},
};

}  // namespace

std::string ReplaceText(Runtime& runtime, std::string_view text, std::string_view from,
                        std::string_view to, Integer limit) {
  runtime.StepBytes(text.size());
  std::size_t count = CountOf(text, from);
  if (limit >= 0) count = static_cast<std::size_t>(std::min(limit, static_cast<Integer>(count)));
  if (count == 0) return std::string(text);
  if (to.size() > from.size()) {
    // Neither factor is beyond the limit of a value, so that their product fits.
    runtime.CheckSize(text.size() + count * (to.size() - from.size()));
  }
  std::string out;
  std::size_t at = 0;
  for (; count > 0; --count) {
    if (from.empty()) {
      out += to;
      if (at >= text.size()) break;
      const std::size_t begin = at;
      (void)DecodeAt(text, at);
      out += text.substr(begin, at - begin);
    } else {
      const std::size_t found = text.find(from, at);
      out += text.substr(at, found - at);
      out += to;
      at = found + from.size();
    }
  }
  return out.append(text.substr(at));
}

std::string JustifyText(Runtime& runtime, const Value& text, Integer width, std::string_view fill,
                        char align) {
  const auto length = static_cast<Integer>(*runtime.Length(text));
  if (width <= length) return text.Text();
  constexpr Integer kWidthMax = 1 << 30;
  runtime.CheckSize(static_cast<std::size_t>(std::min(width, kWidthMax)) * fill.size());
  const Integer missing = width - length;
  Integer left = align == '>' ? missing : 0;
  if (align == '^') left = missing / 2 + (missing & width & 1);
  std::string out;
  for (Integer i = 0; i < left; ++i) out += fill;
  out += text.Text();
  for (Integer i = left; i < missing; ++i) out += fill;
  return out;
}

bool HasOnlyCase(std::string_view text, bool upper) {
  bool cased = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = DecodeAt(text, at);
    if (upper ? IsUpper(c) : IsLower(c)) {
      cased = true;
    } else if (IsCased(c)) {
      return false;
    }
  }
  return cased;
}

Table<NamedMethod> StringMethods() { return {kMethods, std::size(kMethods)}; }

}  // namespace kvasir::text::jinja
