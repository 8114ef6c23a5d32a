// Python's arithmetic, and numbers as text.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/strings.h"
#include "text/jinja/functions.h"
#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace kvasir::text::jinja {
namespace {

[[noreturn]] void FailOverflow() { Fail("integer too large (127 bits are kept)"); }

std::string_view Symbol(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    default:
      return "**";
  }
}

Integer FloorDivide(Integer a, Integer b) {
  const Integer quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Integer IntegerPower(Integer base, Integer exponent) {
  Integer result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) FailOverflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) FailOverflow();
  }
  return result;
}

Value IntegerOperation(Operator op, Integer a, Integer b) {
  Integer result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) FailOverflow();
      return Value::Int(result);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) FailOverflow();
      return Value::Int(result);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) FailOverflow();
      return Value::Int(result);
    case Operator::kDivide:
      if (b == 0) Fail("division by zero");
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDivide:
      if (b == 0) Fail("integer division or modulo by zero");
      if (b == -1) return IntegerOperation(Operator::kSubtract, 0, a);
      return Value::Int(FloorDivide(a, b));
    case Operator::kModulo:
      if (b == 0) Fail("integer modulo by zero");
      if (b == -1) return Value::Int(0);
      return Value::Int(a - FloorDivide(a, b) * b);
    default:
      break;
  }
  if (b >= 0) {
    if (a == 0 || a == 1) return Value::Int(b == 0 ? 1 : a);
    if (a == -1) return Value::Int((b & 1) != 0 ? -1 : 1);
    return Value::Int(IntegerPower(a, b));
  }
  if (a == 0) Fail("0.0 cannot be raised to a negative power");
  return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)));
}

double FloatModulo(double a, double b) {
  double result = std::fmod(a, b);
  if (result != 0) {
    if ((b < 0) != (result < 0)) result += b;
  } else {
    result = std::copysign(0.0, b);
  }
  return result;
}

Value FloatOperation(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(a + b);
    case Operator::kSubtract:
      return Value::Float(a - b);
    case Operator::kMultiply:
      return Value::Float(a * b);
    case Operator::kDivide:
      if (b == 0) Fail("float division by zero");
      return Value::Float(a / b);
    case Operator::kFloorDivide: {
      if (b == 0) Fail("float floor division by zero");
      const double modulo = FloatModulo(a, b);
      const double quotient = (a - modulo) / b;
      double floored = std::floor(quotient);
      if (quotient - floored > 0.5) floored += 1;
      return Value::Float(quotient == 0 ? std::copysign(0.0, a / b) : floored);
    }
    case Operator::kModulo:
      if (b == 0) Fail("float modulo by zero");
      return Value::Float(FloatModulo(a, b));
    default:
      break;
  }
  if (a == 0 && b < 0) Fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::floor(b) != b) Fail("a power with a complex result");
  const double result = std::pow(a, b);
  if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) Fail("a power that is too large");
  return Value::Float(result);
}

}  // namespace

Value Runtime::BinaryNumeric(Operator op, const Value& a, const Value& b) {
  if (a.integral() && b.integral()) return IntegerOperation(op, a.AsInt(), b.AsInt());
  return FloatOperation(op, a.AsDouble(), b.AsDouble());
}

Value Runtime::Negate(const Value& value) {
  if (value.undefined()) FailUndefined(value);
  if (value.integral()) return IntegerOperation(Operator::kSubtract, 0, value.AsInt());
  if (!value.numeric()) Fail("bad operand type for unary -: '{}'", TypeName(value));
  return Value::Float(-value.AsDouble());
}

Value Runtime::Binary(Operator op, const Value& a, const Value& b) {
  if (a.numeric() && b.numeric()) return BinaryNumeric(op, a, b);
  if (op == Operator::kModulo && a.string()) {
    std::string text = PercentFormat(*this, a.Text(), b);
    return a.markup() ? Markup(std::move(text)) : String(std::move(text));
  }
  if (a.undefined()) FailUndefined(a);
  if (b.undefined()) FailUndefined(b);
  if (op == Operator::kAdd) {
    if (a.string() && b.string()) {
      CheckSize(a.Text().size() + b.Text().size());
      if (a.markup() || b.markup()) {
        return Markup((a.markup() ? a.Text() : EscapeHtml(a.Text())) +
                      (b.markup() ? b.Text() : EscapeHtml(b.Text())));
      }
      return String(a.Text() + b.Text());
    }
    if (a.sequence() && a.kind() == b.kind()) {
      const std::vector<Value>& left = a.AsList().items;
      const std::vector<Value>& right = b.AsList().items;
      Step(left.size() + right.size());
      List* list = NewList(left.size() + right.size());
      for (const Value& item : left) Append(*list, item);
      for (const Value& item : right) Append(*list, item);
      return Value::Of(list, a.Is(Kind::kTuple));
    }
    if (a.string() || a.sequence()) {
      Fail("can only concatenate {} (not \"{}\") to {}", TypeName(a), TypeName(b), TypeName(a));
    }
  }
  if (op == Operator::kMultiply && (a.integral() || b.integral())) {
    const Value& repeated = a.integral() ? b : a;
    const Integer count = std::max<Integer>(a.integral() ? a.AsInt() : b.AsInt(), 0);
    const auto checked = [&](std::size_t bytes) {
      if (bytes > 0 && count > static_cast<Integer>(options.limits.value_bytes / bytes)) {
        Fail("a repetition larger than allowed ({} bytes)", options.limits.value_bytes);
      }
    };
    if (repeated.string()) {
      checked(repeated.Text().size());
      std::string text;
      if (!repeated.Text().empty()) {
        text.reserve(repeated.Text().size() * static_cast<std::size_t>(count));
        for (Integer i = 0; i < count; ++i) text += repeated.Text();
      }
      return repeated.markup() ? Markup(std::move(text)) : String(std::move(text));
    }
    if (repeated.sequence()) {
      const std::size_t size = repeated.AsList().items.size();
      checked(size * sizeof(Value));
      List* list = NewList();
      for (Integer i = 0; size > 0 && i < count; ++i) {
        Step(size);
        for (std::size_t k = 0; k < size; ++k) Append(*list, repeated.AsList().items[k]);
      }
      return Value::Of(list, repeated.Is(Kind::kTuple));
    }
  }
  Fail("unsupported operand type(s) for {}: '{}' and '{}'", Symbol(op), TypeName(a), TypeName(b));
}

std::string FormatInteger(Integer value) {
  if (value >= INT64_MIN && value <= INT64_MAX) return std::to_string(static_cast<int64_t>(value));
  auto magnitude = static_cast<unsigned __int128>(value);
  if (value < 0) magnitude = ~magnitude + 1;
  std::string digits;
  for (; magnitude > 0; magnitude /= 10) {
    digits.push_back(static_cast<char>('0' + static_cast<int>(magnitude % 10)));
  }
  if (value < 0) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest digits that read back the same: d[.ddd]e[+-]xx.
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  std::string out;
  if (text.front() == '-') {
    out.push_back('-');
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  int exponent = 0;
  const std::string_view exponent_text = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  const auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  }
  const int whole = exponent + 1;  // digits before the point
  if (count <= whole) {
    const int zeros = whole - count;
    return out + digits + std::string(static_cast<std::size_t>(zeros), '0') + ".0";
  }
  const auto point = static_cast<std::size_t>(whole);
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

namespace {

// Python's separators in numbers: single underscores between digits.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == 0 || i + 1 == text.size() ||
               std::isalnum(static_cast<unsigned char>(text[i - 1])) == 0 ||
               std::isalnum(static_cast<unsigned char>(text[i + 1])) == 0) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

std::optional<Integer> ParseInteger(std::string_view text, int base) {
  text = Trim(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(text[1] | 0x20);
    const int prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
      base = prefix;
      text.remove_prefix(2);
      if (text.starts_with('_')) text.remove_prefix(1);
    }
  }
  if (base == 0) base = 10;
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  Integer value = 0;
  for (const char c : *digits) {
    const char lower = static_cast<char>(c | 0x20);
    int digit = 99;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (lower >= 'a' && lower <= 'z') digit = lower - 'a' + 10;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<Integer>(base), &value) ||
        __builtin_add_overflow(value, static_cast<Integer>(digit), &value)) {
      FailOverflow();
    }
  }
  return negative ? -value : value;
}

std::optional<double> ParseFloat(std::string_view text) {
  text = Trim(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  std::optional<std::string> clean = WithoutUnderscores(text);
  if (!clean || clean->empty()) return std::nullopt;
  std::string lower = Lower(*clean);
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = HUGE_VAL;
  } else if (lower == "nan") {
    value = std::nan("");
  } else {
    if (lower[0] != '.' && (lower[0] < '0' || lower[0] > '9')) return std::nullopt;
    const char* end = lower.data() + lower.size();
    const auto [rest, error] = std::from_chars(lower.data(), end, value);
    if (rest != end || error == std::errc::invalid_argument) return std::nullopt;
    if (error == std::errc::result_out_of_range) {
      value = lower.find("e-") != std::string::npos ? 0.0 : HUGE_VAL;
    }
  }
  return negative ? -value : value;
}

}  // namespace kvasir::text::jinja
