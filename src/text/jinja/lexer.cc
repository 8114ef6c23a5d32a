#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "text/jinja/unicode.h"

namespace kvasir::text::jinja {
namespace {

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

int HexDigit(char c) {
  if (IsAsciiDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::size_t SkipSpace(std::string_view text, std::size_t at) {
  return text.size() - TrimLeft(text.substr(at)).size();
}

// Line ends become \n, and one at the very end is dropped (keep_trailing_newline is off).
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

constexpr std::array<std::string_view, 6> kTwoCharOperators = {"//", "**", "==", "!=", ">=", "<="};
constexpr std::string_view kOneCharOperators = "+-/*%~[](){}><=.:|,;";

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), text_(source_) {}

  Result<std::vector<Token>> Run() {
    while (at_ < text_.size()) KVASIR_RETURN_IF_ERROR(Data());
    Add(TokenKind::kEnd, "end of template");
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] Error Fail(std::string_view what) const {
    return MakeError(ErrorCode::kInvalidArgument, "line {}: {}", line_, OneLine(what));
  }

  void Add(TokenKind kind, std::string_view text) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::string(text)});
  }

  // Moves to `to`, counting lines, and notes whether what was passed ended a line.
  void AdvanceTo(std::size_t to) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    line_starting_ = to > 0 && text_[to - 1] == '\n';
    at_ = to;
  }

  [[nodiscard]] bool At(std::size_t at, std::string_view what) const {
    return text_.substr(at, what.size()) == what;
  }

  [[nodiscard]] char SignAt(std::size_t at) const {
    return at < text_.size() && (text_[at] == '-' || text_[at] == '+') ? text_[at] : '\0';
  }

  // The text before a tag, as the tag's sign and lstrip_blocks leave it.
  [[nodiscard]] std::string_view Strip(std::string_view data, char sign, bool is_block) const {
    if (sign == '-') return TrimRight(data);
    if (sign == '+' || !is_block) return data;
    const std::size_t newline = data.rfind('\n');
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !line_starting_) return data;
    return Trim(data.substr(begin)).empty() ? data.substr(0, begin) : data;
  }

  void AddData(std::string_view data) {
    if (!data.empty()) Add(TokenKind::kData, data);
  }

  // One tag with the text before it, or the rest of the text.
  Status Data() {
    std::size_t tag = at_;
    while (true) {
      tag = text_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= text_.size()) {
        AddData(text_.substr(at_));
        AdvanceTo(text_.size());
        return Status::Ok();
      }
      const char second = text_[tag + 1];
      if (second == '{' || second == '%' || second == '#') break;
      ++tag;
    }
    const char kind = text_[tag + 1];
    const std::string_view before = text_.substr(at_, tag - at_);
    const char sign = SignAt(tag + 2);
    AddData(Strip(before, sign, kind != '{'));
    const std::size_t inside = tag + 2 + (sign == '\0' ? 0 : 1);
    if (kind == '%') {
      if (const std::optional<std::size_t> body = RawBegin(inside)) {
        AdvanceTo(*body);
        return Raw();
      }
    }
    AdvanceTo(inside);
    if (kind == '#') return Comment();
    Add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin,
        kind == '%' ? "{%" : "{{");
    return Code(kind == '%');
  }

  // Where the body of {% raw %} begins, if `at` is behind "{%" of one.
  [[nodiscard]] std::optional<std::size_t> RawBegin(std::size_t at) const {
    at = SkipSpace(text_, at);
    if (!At(at, "raw")) return std::nullopt;
    at = SkipSpace(text_, at + 3);
    if (At(at, "-%}")) return SkipSpace(text_, at + 3);
    if (At(at, "%}")) return at + 2;
    return std::nullopt;
  }

  // Behind the end of a tag: "-%}" eats white space, "%}" one newline, "+%}" nothing.
  [[nodiscard]] std::optional<std::size_t> EndOfTag(std::size_t at, std::string_view end) const {
    if (At(at, "-") && At(at + 1, end)) return SkipSpace(text_, at + 1 + end.size());
    if (At(at, "+") && At(at + 1, end)) return at + 1 + end.size();
    if (!At(at, end)) return std::nullopt;
    at += end.size();
    return At(at, "\n") ? at + 1 : at;
  }

  Status Raw() {
    for (std::size_t tag = at_; (tag = text_.find("{%", tag)) != std::string_view::npos; ++tag) {
      const char sign = SignAt(tag + 2);
      std::size_t at = SkipSpace(text_, tag + 2 + (sign == '\0' ? 0 : 1));
      if (!At(at, "endraw")) continue;
      at = SkipSpace(text_, at + 6);
      const std::optional<std::size_t> behind = EndOfTag(at, "%}");
      if (!behind) continue;
      AddData(Strip(text_.substr(at_, tag - at_), sign, true));
      AdvanceTo(*behind);
      return Status::Ok();
    }
    return Fail("a {% raw %} block has no {% endraw %}");
  }

  Status Comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) return Fail("a comment {# has no end #}");
    std::size_t behind = end + 2;
    const char sign = end > at_ ? text_[end - 1] : '\0';
    if (sign == '-') {
      behind = SkipSpace(text_, behind);
    } else if (sign != '+' && At(behind, "\n")) {
      ++behind;
    }
    AdvanceTo(behind);
    return Status::Ok();
  }

  // The inside of {{ }} or {% %}.
  Status Code(bool block) {
    std::string open;  // brackets, innermost last
    while (true) {
      AdvanceTo(SkipSpace(text_, at_));
      if (at_ >= text_.size()) return Fail("the template ends inside a tag");
      if (open.empty()) {
        if (block) {
          if (const auto behind = EndOfTag(at_, "%}")) {
            Add(TokenKind::kBlockEnd, "%}");
            AdvanceTo(*behind);
            return Status::Ok();
          }
        } else if (At(at_, "-}}") || At(at_, "}}")) {
          const bool strip = text_[at_] == '-';
          Add(TokenKind::kVariableEnd, "}}");
          AdvanceTo(strip ? SkipSpace(text_, at_ + 3) : at_ + 2);
          return Status::Ok();
        }
      }
      const char c = text_[at_];
      if (IsAsciiDigit(c)) {
        KVASIR_RETURN_IF_ERROR(Number());
      } else if (c == '\'' || c == '"') {
        KVASIR_RETURN_IF_ERROR(String(c));
      } else if (const std::size_t end = NameEnd(); end > at_) {
        Add(TokenKind::kName, text_.substr(at_, end - at_));
        AdvanceTo(end);
      } else {
        KVASIR_RETURN_IF_ERROR(Operator(open));
      }
    }
  }

  [[nodiscard]] std::size_t NameEnd() const {
    std::size_t end = at_;
    while (end < text_.size()) {
      std::size_t next = end;
      if (!IsWord(DecodeAt(text_, next))) break;
      end = next;
    }
    return end;
  }

  Status Operator(std::string& open) {
    std::string_view op = text_.substr(at_, 2);
    if (std::find(kTwoCharOperators.begin(), kTwoCharOperators.end(), op) ==
        kTwoCharOperators.end()) {
      op = text_.substr(at_, 1);
      if (kOneCharOperators.find(op[0]) == std::string_view::npos) {
        std::size_t next = at_;
        (void)DecodeAt(text_, next);
        return Fail(fmt::format("unexpected character '{}'", text_.substr(at_, next - at_)));
      }
    }
    const char c = op[0];
    if (c == '(' || c == '[' || c == '{') {
      open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) return Fail(fmt::format("unexpected '{}'", c));
      if (open.back() != c) {
        return Fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      }
      open.pop_back();
    }
    Add(TokenKind::kOperator, op);
    AdvanceTo(at_ + op.size());
    return Status::Ok();
  }

  // Digits with single underscores between them; the end of the run.
  [[nodiscard]] std::size_t DigitsEnd(std::size_t at, int base, std::string& digits) const {
    bool after_digit = false;
    while (at < text_.size()) {
      const int value = HexDigit(text_[at]);
      if (value >= 0 && value < base) {
        digits.push_back(text_[at]);
        after_digit = true;
      } else if (text_[at] == '_' && after_digit && at + 1 < text_.size() &&
                 HexDigit(text_[at + 1]) >= 0 && HexDigit(text_[at + 1]) < base) {
        after_digit = false;
      } else {
        break;
      }
      ++at;
    }
    return at;
  }

  Status Number() {
    int base = 10;
    if (text_[at_] == '0' && at_ + 1 < text_.size()) {
      const char kind = static_cast<char>(text_[at_ + 1] | 0x20);
      base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    }
    std::string digits;
    std::size_t end = DigitsEnd(base == 10 ? at_ : at_ + 2, base, digits);
    if (digits.empty()) return Fail("a number without digits");
    if (base == 10) {
      const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
      if (const std::size_t float_end = after_dot ? end : FloatEnd(end, digits); float_end != end) {
        Token token{.kind = TokenKind::kFloat, .line = line_, .text = digits};
        const auto [rest, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), token.number);
        if (error != std::errc()) return Fail(fmt::format("the number {} is out of range", digits));
        tokens_.push_back(std::move(token));
        AdvanceTo(float_end);
        return Status::Ok();
      }
    }
    Token token{.kind = TokenKind::kInteger, .line = line_, .text = digits};
    for (const char c : digits) {
      if (__builtin_mul_overflow(token.integer, static_cast<Integer>(base), &token.integer) ||
          __builtin_add_overflow(token.integer, static_cast<Integer>(HexDigit(c)),
                                 &token.integer)) {
        return Fail(fmt::format("the integer {} is too large (127 bits)", digits));
      }
    }
    tokens_.push_back(std::move(token));
    AdvanceTo(end);
    return Status::Ok();
  }

  // The end of a float whose integer part ends at `end`; `end` where it is an integer.
  [[nodiscard]] std::size_t FloatEnd(std::size_t end, std::string& digits) const {
    std::size_t result = end;
    if (end + 1 < text_.size() && text_[end] == '.' && IsAsciiDigit(text_[end + 1])) {
      digits.push_back('.');
      result = DigitsEnd(end + 1, 10, digits);
    }
    if (result < text_.size() && (text_[result] | 0x20) == 'e') {
      std::size_t exponent = result + 1;
      std::string sign;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) {
        if (text_[exponent] == '-') sign = "-";
        ++exponent;
      }
      if (exponent < text_.size() && IsAsciiDigit(text_[exponent])) {
        digits += "e" + sign;
        result = DigitsEnd(exponent, 10, digits);
      }
    }
    return result;
  }

  Status String(char quote) {
    std::string value;
    std::size_t at = at_ + 1;
    while (true) {
      if (at >= text_.size()) return Fail("a string has no end");
      const char c = text_[at];
      if (c == quote) break;
      if (c == '\\') {
        ++at;
        if (at >= text_.size()) return Fail("a string has no end");
        KVASIR_RETURN_IF_ERROR(Escape(at, value));
      } else {
        value.push_back(c);
        ++at;
      }
    }
    tokens_.push_back({.kind = TokenKind::kString, .line = line_, .text = std::move(value)});
    AdvanceTo(at + 1);
    return Status::Ok();
  }

  // `at` is behind the backslash; the escapes of Python's string literals.
  Status Escape(std::size_t& at, std::string& value) {
    static constexpr std::string_view kFrom = "abfnrtv\\'\"";
    static constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
    const char c = text_[at];
    if (const std::size_t i = kFrom.find(c); i != std::string_view::npos) {
      value.push_back(kTo[i]);
      ++at;
      return Status::Ok();
    }
    if (c == '\n') {
      ++at;
      return Status::Ok();
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      ++at;
      char32_t code = 0;
      KVASIR_RETURN_IF_ERROR(HexEscape(at, c == 'x' ? 2 : c == 'u' ? 4 : 8, code));
      if (code >= 0xd800 && code < 0xdc00 && At(at, "\\u")) {  // a surrogate pair
        std::size_t low_at = at + 2;
        char32_t low = 0;
        KVASIR_RETURN_IF_ERROR(HexEscape(low_at, 4, low));
        if (low >= 0xdc00 && low < 0xe000) {
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
          at = low_at;
        }
      }
      AppendUtf8(value, code);
      return Status::Ok();
    }
    if (c >= '0' && c <= '7') {
      char32_t code = 0;
      for (int i = 0; i < 3 && at < text_.size() && text_[at] >= '0' && text_[at] <= '7'; ++i) {
        code = code * 8 + static_cast<char32_t>(text_[at++] - '0');
      }
      AppendUtf8(value, code);
      return Status::Ok();
    }
    value.push_back('\\');  // an unknown escape stands for itself
    return Status::Ok();
  }

  Status HexEscape(std::size_t& at, int digits, char32_t& code) {
    for (int i = 0; i < digits; ++i, ++at) {
      const int digit = at < text_.size() ? HexDigit(text_[at]) : -1;
      if (digit < 0)
        return Fail(fmt::format("a string escape needs {} hexadecimal digits", digits));
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code > 0x10ffff) return Fail("a string escape is beyond U+10FFFF");
    return Status::Ok();
  }

  std::string source_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace kvasir::text::jinja
