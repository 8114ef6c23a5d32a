// Python's string formatting: '%s' % values and '{}'.format(values).
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja/functions.h"
#include "text/jinja/unicode.h"

namespace kvasir::text::jinja {
namespace {

constexpr int kWidthMax = 1'000'000;
constexpr int kPrecisionMax = 300;

// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  int width = 0;
  char grouping = '\0';
  int precision = -1;
  char type = '\0';
};

int ParseNumber(std::string_view text, std::size_t& at, int limit) {
  int value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = value * 10 + (text[at++] - '0');
    if (value > limit) Fail("a width or precision in a format is larger than {}", limit);
  }
  return value;
}

bool IsAlign(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

Spec ParseSpec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  if (!text.empty()) {
    std::size_t behind_first = 0;
    (void)DecodeAt(text, behind_first);
    if (behind_first < text.size() && IsAlign(text[behind_first])) {
      spec.fill = std::string(text.substr(0, behind_first));
      spec.align = text[behind_first];
      at = behind_first + 1;
    } else if (IsAlign(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  const auto next_is = [&](std::string_view set) {
    return at < text.size() && set.find(text[at]) != std::string_view::npos;
  };
  if (next_is("+- ")) spec.sign = text[at++];
  if (next_is("#")) {
    spec.alternate = true;
    ++at;
  }
  if (next_is("0")) {
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    ++at;
  }
  spec.width = ParseNumber(text, at, kWidthMax);
  if (next_is(",_")) spec.grouping = text[at++];
  if (next_is(".")) {
    ++at;
    if (!next_is("0123456789")) Fail("format specifier missing precision");
    spec.precision = ParseNumber(text, at, kPrecisionMax);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) Fail("invalid format specifier '{}'", text);
  return spec;
}

std::string Repeat(std::string_view fill, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += fill;
  return out;
}

// `sign` stands before padding of the kind '='.
std::string Pad(const Spec& spec, std::string_view sign, std::string_view body,
                char default_align) {
  const std::size_t length = CountCodePoints(body) + sign.size();
  const auto width = static_cast<std::size_t>(spec.width);
  const std::size_t missing = width > length ? width - length : 0;
  const char align = spec.align == '\0' ? default_align : spec.align;
  std::string out;
  if (align == '=') return out.append(sign).append(Repeat(spec.fill, missing)).append(body);
  const std::size_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  return out.append(Repeat(spec.fill, left))
      .append(sign)
      .append(body)
      .append(Repeat(spec.fill, missing - left));
}

std::string Group(const std::string& digits, char separator, std::size_t every) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out;
}

std::string DigitsOf(Integer value, int base, bool upper) {
  auto magnitude = static_cast<unsigned __int128>(value);
  if (value < 0) magnitude = ~magnitude + 1;
  std::string digits;
  do {
    const int digit = static_cast<int>(magnitude % static_cast<unsigned>(base));
    digits.insert(digits.begin(), "0123456789abcdef"[digit]);
    magnitude /= static_cast<unsigned>(base);
  } while (magnitude > 0);
  return upper ? Upper(digits) : digits;
}

// The magnitude of a float by printf's rules, which are Python's here.
std::string FloatDigits(double value, char type, int precision, bool alternate) {
  if (std::isnan(value) || std::isinf(value)) {
    const std::string text = std::isnan(value) ? "nan" : "inf";
    return type >= 'A' && type <= 'Z' ? Upper(text) : text;
  }
  const char format[] = {'%',
                         alternate ? '#' : '.',
                         alternate ? '.' : '*',
                         alternate ? '*' : type,
                         alternate ? type : '\0',
                         '\0'};
  std::array<char, 1024> buffer{};
  const int size = std::snprintf(buffer.data(), buffer.size(), format, precision, std::fabs(value));
  return std::string(buffer.data(), static_cast<std::size_t>(size));
}

std::string SignOf(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

std::string FormatFloatSpec(double value, Spec spec) {
  std::string body;
  const bool percent = spec.type == '%';
  if (percent) value *= 100;
  if (spec.type == '\0' || spec.type == 'n') {
    body = spec.precision < 0
               ? FormatFloat(std::fabs(value))
               : FloatDigits(value, 'g', std::max(spec.precision, 1), spec.alternate);
    if (spec.precision >= 0 && body.find_first_of(".en") == std::string::npos) {
      // Without a type there is always a digit behind the point, where it fits the precision.
      if (static_cast<int>(body.size()) < spec.precision) body += ".0";
    }
  } else if (std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos) {
    int precision = spec.precision < 0 ? 6 : spec.precision;
    if ((spec.type == 'g' || spec.type == 'G') && precision == 0) precision = 1;
    body = FloatDigits(value, percent ? 'f' : spec.type, precision, spec.alternate);
    if (percent) body.push_back('%');
  } else {
    Fail("unknown format code '{}' for object of type 'float'", spec.type);
  }
  if (spec.grouping != '\0') {
    const std::size_t end = std::min(body.find_first_not_of("0123456789"), body.size());
    body = Group(body.substr(0, end), spec.grouping, 3) + body.substr(end);
  }
  return Pad(spec, SignOf(std::signbit(value) && !std::isnan(value), spec.sign), body, '>');
}

std::string FormatIntegerSpec(Integer value, const Spec& spec) {
  const char type = spec.type == '\0' || spec.type == 'n' ? 'd' : spec.type;
  if (type == 'c') {
    std::string text;
    AppendUtf8(text, value < 0 || value > 0x10ffff ? 0xfffd : static_cast<char32_t>(value));
    return Pad(spec, "", text, '<');
  }
  if (std::string_view("eEfFgG%").find(type) != std::string_view::npos) {
    return FormatFloatSpec(static_cast<double>(value), spec);
  }
  if (spec.precision >= 0) Fail("precision not allowed in integer format specifier");
  const int base = type == 'd' ? 10 : type == 'b' ? 2 : type == 'o' ? 8 : 16;
  if (type != 'd' && type != 'b' && type != 'o' && type != 'x' && type != 'X') {
    Fail("unknown format code '{}' for object of type 'int'", type);
  }
  std::string sign = SignOf(value < 0, spec.sign);
  if (spec.alternate && base != 10) sign += std::string("0") + type;
  std::string digits = DigitsOf(value, base, type == 'X');
  if (spec.grouping != '\0') digits = Group(digits, spec.grouping, base == 10 ? 3 : 4);
  return Pad(spec, sign, digits, '>');
}

std::string FormatTextSpec(std::string_view text, const Spec& spec) {
  if (spec.type != '\0' && spec.type != 's') {
    Fail("unknown format code '{}' for object of type 'str'", spec.type);
  }
  if (spec.align == '=') Fail("'=' alignment not allowed in string format specifier");
  if (spec.precision >= 0) {
    text = text.substr(0, OffsetOf(text, static_cast<std::size_t>(spec.precision)));
  }
  return Pad(spec, "", text, '<');
}

std::string FormatValue(Runtime& runtime, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return runtime.ToString(value);
  Spec spec = ParseSpec(spec_text);
  if (value.Is(Kind::kFloat)) return FormatFloatSpec(value.AsDouble(), spec);
  if (value.Is(Kind::kInt) || (value.Is(Kind::kBool) && spec.type != '\0' && spec.type != 's')) {
    return FormatIntegerSpec(value.AsInt(), spec);
  }
  if (value.string()) return FormatTextSpec(value.Text(), spec);
  if (value.Is(Kind::kBool)) return FormatIntegerSpec(value.AsInt(), spec);
  Fail("unsupported format string passed to {}.__format__", TypeName(value));
}

std::string AsciiRepr(std::string_view repr) {
  std::string out;
  for (std::size_t at = 0; at < repr.size();) {
    const char32_t c = DecodeAt(repr, at);
    if (c < 0x80) {
      out.push_back(static_cast<char>(c));
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  return out;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments)
      : runtime_(runtime), arguments_(arguments) {}

  std::string Run(std::string_view format, int depth = 0) {
    if (depth > 1) Fail("Max string recursion exceeded");
    std::string out;
    for (std::size_t at = 0; at < format.size(); ++at) {
      const char c = format[at];
      const char following = at + 1 < format.size() ? format[at + 1] : '\0';
      if ((c == '{' || c == '}') && following == c) {
        out.push_back(c);
        ++at;
      } else if (c == '{') {
        at = Field(format, at + 1, out, depth);
        runtime_.CheckSize(out.size());
      } else if (c == '}') {
        Fail("Single '}}' encountered in format string");
      } else {
        out.push_back(c);
      }
    }
    return out;
  }

 private:
  // A replacement field from behind its "{"; where its "}" is.
  std::size_t Field(std::string_view format, std::size_t begin, std::string& out, int depth) {
    std::size_t end = begin;
    for (int open = 1; end < format.size(); ++end) {
      if (format[end] == '{') ++open;
      if (format[end] == '}' && --open == 0) break;
    }
    if (end >= format.size()) Fail("expected '}}' before end of string");
    const std::string_view field = format.substr(begin, end - begin);
    std::size_t name_end = 0;
    for (bool bracket = false; name_end < field.size(); ++name_end) {
      if (field[name_end] == '[') bracket = true;
      if (field[name_end] == ']') bracket = false;
      if (!bracket && (field[name_end] == '!' || field[name_end] == ':')) break;
    }
    Value value = Lookup(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    char conversion = '\0';
    if (rest.starts_with('!')) {
      if (rest.size() < 2) Fail("end of string while looking for conversion specifier");
      conversion = rest[1];
      rest.remove_prefix(2);
    }
    if (!rest.empty() && rest[0] != ':') Fail("expected ':' after conversion specifier");
    const std::string spec = rest.empty() ? "" : Run(rest.substr(1), depth + 1);
    if (conversion == 'r' || conversion == 'a') {
      std::string repr;
      runtime_.AppendRepr(repr, value);
      value = runtime_.String(conversion == 'a' ? AsciiRepr(repr) : repr);
    } else if (conversion == 's') {
      value = runtime_.String(runtime_.ToString(value));
    } else if (conversion != '\0') {
      Fail("Unknown conversion specifier {}", conversion);
    }
    out += FormatValue(runtime_, value, spec);
    return end;
  }

  Value Lookup(std::string_view name) {
    const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = Argument(name.substr(0, first_end));
    for (std::size_t at = first_end; at < name.size();) {
      const bool attribute = name[at] == '.';
      const std::size_t end =
          attribute ? std::min(name.find_first_of(".[", at + 1), name.size()) : name.find(']', at);
      if (end == std::string_view::npos) Fail("Missing ']' in format string");
      const std::string key(name.substr(at + 1, end - at - 1));
      if (key.empty()) Fail("Empty attribute in format string");
      const std::optional<Integer> index = attribute ? std::nullopt : ParseInteger(key, 10);
      const Value text = runtime_.String(key);
      value = attribute ? runtime_.Attribute(value, text.AsStr())
                        : runtime_.Item(value, index ? Value::Int(*index) : text);
      if (value.undefined()) FailUndefined(value);
      at = attribute ? end : end + 1;
    }
    return value;
  }

  Value Argument(std::string_view name) {
    std::size_t index = next_;
    if (name.empty()) {
      ++next_;
    } else if (const std::optional<Integer> number = ParseInteger(name, 10); number) {
      if (*number < 0 || *number > 1'000'000) Fail("'{}' is no argument of format()", name);
      index = static_cast<std::size_t>(*number);
    } else {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      Fail("format() has no argument '{}'", name);
    }
    if (index >= arguments_.positional.size()) {
      Fail("Replacement index {} out of range for positional args tuple", index);
    }
    return arguments_.positional[index];
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& values) : runtime_(runtime), values_(values) {}

  std::string Run(std::string_view format) {
    std::string out;
    for (std::size_t at = 0; at < format.size();) {
      if (format[at] != '%') {
        out.push_back(format[at++]);
        continue;
      }
      ++at;
      Directive(format, at, out);
      runtime_.CheckSize(out.size());
    }
    // Python takes whatever has items, except a tuple, for a mapping whose keys may go unused.
    const bool mapping = values_.Is(Kind::kDict) || values_.Is(Kind::kList) ||
                         values_.Is(Kind::kRange) || values_.undefined();
    const bool all_used =
        values_.Is(Kind::kTuple) ? next_ == values_.AsList().items.size() : next_ > 0 || mapping;
    if (!all_used) Fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  void Directive(std::string_view format, std::size_t& at, std::string& out) {
    std::optional<Value> value;
    if (at < format.size() && format[at] == '(') {
      const std::size_t end = format.find(')', at);
      if (end == std::string_view::npos) Fail("incomplete format key");
      if (!values_.Is(Kind::kDict)) Fail("format requires a mapping");
      const std::string key(format.substr(at + 1, end - at - 1));
      const Value* found = values_.AsDict().Get(key);
      if (found == nullptr) Fail("KeyError: '{}'", key);
      value = *found;
      at = end + 1;
    }
    Spec spec;
    bool left = false;
    bool zero = false;
    for (; at < format.size(); ++at) {
      const char c = format[at];
      if (c == '-') {
        left = true;
      } else if (c == '0') {
        zero = true;
      } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
        spec.sign = c;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c != ' ') {
        break;
      }
    }
    spec.width = Number(format, at, kWidthMax, left);
    if (at < format.size() && format[at] == '.') {
      ++at;
      bool ignored = false;
      spec.precision = Number(format, at, kPrecisionMax, ignored);
    }
    while (at < format.size() && (format[at] == 'l' || format[at] == 'h' || format[at] == 'L'))
      ++at;
    if (at >= format.size()) Fail("incomplete format");
    const char type = format[at++];
    if (type == '%') {
      out.push_back('%');
      return;
    }
    if (!value) value = NextValue();
    spec.align = left ? '<' : '>';
    const bool number = std::string_view("diuxXoeEfFgG").find(type) != std::string_view::npos;
    if (zero && !left && number) {
      spec.align = '=';
      spec.fill = "0";
    }
    out += Convert(*value, type, spec);
  }

  int Number(std::string_view format, std::size_t& at, int limit, bool& left) {
    if (at < format.size() && format[at] == '*') {
      ++at;
      const Value value = NextValue();
      if (!value.integral()) Fail("* wants int");
      Integer number = value.AsInt();
      if (number < 0) {
        left = true;
        number = -number;
      }
      if (number > limit) Fail("a width or precision in a format is larger than {}", limit);
      return static_cast<int>(number);
    }
    return ParseNumber(format, at, limit);
  }

  Value NextValue() {
    if (values_.Is(Kind::kTuple)) {
      if (next_ >= values_.AsList().items.size()) Fail("not enough arguments for format string");
      return values_.AsList().items[next_++];
    }
    if (next_++ > 0) Fail("not enough arguments for format string");
    return values_;
  }

  std::string Convert(const Value& value, char type, Spec spec) {
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        std::string text;
        if (type == 's') {
          text = runtime_.ToString(value);
        } else {
          runtime_.AppendRepr(text, value);
          if (type == 'a') text = AsciiRepr(text);
        }
        return FormatTextSpec(text, spec);
      }
      case 'c':
        if (value.string()) return FormatTextSpec(value.Text(), spec);
        [[fallthrough]];
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X': {
        if (value.undefined()) FailUndefined(value);
        const bool decimal = type == 'd' || type == 'i' || type == 'u';
        if (!value.integral() &&
            !(decimal && value.Is(Kind::kFloat) && std::fabs(value.AsDouble()) < 1e38)) {
          Fail("%{} format: a real number is required, not {}", type, TypeName(value));
        }
        const Integer number =
            value.integral() ? value.AsInt() : static_cast<Integer>(value.AsDouble());
        spec.type = decimal ? 'd' : type;
        if (spec.precision > 0 && decimal) {
          std::string digits = DigitsOf(number, 10, false);
          const auto precision = static_cast<std::size_t>(spec.precision);
          if (digits.size() < precision) digits.insert(0, precision - digits.size(), '0');
          return Pad(spec, SignOf(number < 0, spec.sign), digits, '>');
        }
        spec.precision = -1;
        return FormatIntegerSpec(number, spec);
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.undefined()) FailUndefined(value);
        if (!value.numeric()) Fail("must be real number, not {}", TypeName(value));
        spec.type = type;
        return FormatFloatSpec(value.AsDouble(), spec);
      default:
        Fail("unsupported format character '{}'", type);
    }
  }

  Runtime& runtime_;
  const Value& values_;
  std::size_t next_ = 0;
};

}  // namespace

std::string PercentFormat(Runtime& runtime, std::string_view format, const Value& values) {
  runtime.StepBytes(format.size());
  return PercentFormatter(runtime, values).Run(format);
}

std::string BraceFormat(Runtime& runtime, std::string_view format, const Arguments& arguments) {
  runtime.StepBytes(format.size());
  return BraceFormatter(runtime, arguments).Run(format);
}

}  // namespace kvasir::text::jinja
