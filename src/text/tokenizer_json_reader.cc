#include "text/tokenizer_json_reader.h"

#include <charconv>
#include <cstring>

#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

constexpr int kDepthMax = 64;

}  // namespace

bool JsonReader::Fail(std::string_view expected) {
  if (error_.empty()) {
    error_ = expected;
    error_at_ = at_;
  }
  return false;
}

Error JsonReader::error() const {
  return MakeError(ErrorCode::kDataLoss, "JSON: expected {} at byte {}", error_, error_at_ + 1);
}

void JsonReader::SkipSpace() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

char JsonReader::Peek() {
  SkipSpace();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonReader::Consume(char expected) {
  if (failed()) return false;
  if (Peek() != expected) return Fail(std::string("'") + expected + "'");
  ++at_;
  return true;
}

bool JsonReader::EnterScope(char open) {
  first_item_ = true;
  return Consume(open);
}
bool JsonReader::EnterObject() { return EnterScope('{'); }
bool JsonReader::EnterArray() { return EnterScope('['); }

bool JsonReader::NextItem(char close) {
  if (failed()) return false;
  const bool first = first_item_;
  first_item_ = false;
  if (Peek() == close) {
    ++at_;
    return false;
  }
  return first || Consume(',');
}
bool JsonReader::NextElement() { return NextItem(']'); }
bool JsonReader::NextKey(std::string& key) {
  return NextItem('}') && ReadString(key) && Consume(':');
}

bool JsonReader::ReadHex(uint32_t& out) {
  if (text_.size() - at_ < 4) return Fail("four hexadecimal digits");
  const char* begin = text_.data() + at_;
  const auto [end, code] = std::from_chars(begin, begin + 4, out, 16);
  if (code != std::errc() || end != begin + 4) return Fail("four hexadecimal digits");
  at_ += 4;
  return true;
}

bool JsonReader::ReadEscape(std::string& out) {
  if (at_ == text_.size()) return Fail("an escape");
  const char kind = text_[at_++];
  switch (kind) {
    case '"':
    case '\\':
    case '/':
      out += kind;
      return true;
    case 'b':
      out += '\b';
      return true;
    case 'f':
      out += '\f';
      return true;
    case 'n':
      out += '\n';
      return true;
    case 'r':
      out += '\r';
      return true;
    case 't':
      out += '\t';
      return true;
    case 'u':
      break;
    default:
      return Fail("an escape");
  }
  uint32_t code_point = 0;
  if (!ReadHex(code_point)) return false;
  if (code_point >= 0xD800 && code_point < 0xDC00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    uint32_t low = 0;
    if (!ReadHex(low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return Fail("a low surrogate");
    code_point = 0x10000 + (code_point - 0xD800) * 0x400 + (low - 0xDC00);
  } else if (code_point >= 0xD800 && code_point < 0xE000) {
    return Fail("a pair of surrogates");
  }
  AppendUtf8(code_point, out);
  return true;
}

bool JsonReader::ReadString(std::string& out) {
  out.clear();
  if (!Consume('"')) return false;
  for (;;) {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\') ++at_;
    out.append(text_, begin, at_ - begin);
    if (at_ == text_.size()) return Fail("the end of a string");
    if (text_[at_++] == '"') break;
    if (!ReadEscape(out)) return false;
  }
  return IsValidUtf8(out) || Fail("valid UTF-8 in a string");
}

bool JsonReader::SkipString() {
  if (!Consume('"')) return false;
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '"') return true;
    if (c == '\\') ++at_;
  }
  at_ = text_.size();
  return Fail("the end of a string");
}

std::string_view JsonReader::NumberText() {
  if (failed()) return {};
  SkipSpace();
  const size_t begin = at_;
  while (
      at_ < text_.size() &&
      (std::strchr("+-.eE", text_[at_]) != nullptr || (text_[at_] >= '0' && text_[at_] <= '9')) &&
      text_[at_] != '\0') {
    ++at_;
  }
  return text_.substr(begin, at_ - begin);
}

bool JsonReader::ReadInteger(int64_t& out) {
  const std::string_view number = NumberText();
  const char* end = number.data() + number.size();
  const auto [parsed, code] = std::from_chars(number.data(), end, out);
  return (code == std::errc() && parsed == end && !number.empty()) || Fail("an integer");
}

bool JsonReader::ReadNumber(double& out) {
  const std::string_view number = NumberText();
  const char* end = number.data() + number.size();
  const auto [parsed, code] = std::from_chars(number.data(), end, out);
  return (code == std::errc() && parsed == end && !number.empty()) || Fail("a number");
}

std::string_view JsonReader::SkipValue() {
  if (failed()) return {};
  SkipSpace();
  const size_t begin = at_;
  int depth = 0;
  do {
    const char c = Peek();
    if (c == '"') {
      if (!SkipString()) return {};
    } else if (c == '{' || c == '[') {
      if (++depth > kDepthMax) {
        Fail("less nesting");
        return {};
      }
      ++at_;
    } else if (c == '}' || c == ']') {
      if (--depth < 0) {
        Fail("a value");
        return {};
      }
      ++at_;
    } else if (c == ',' || c == ':') {
      if (depth == 0) {
        Fail("a value");
        return {};
      }
      ++at_;
    } else if (c == '\0') {
      Fail("a value");
      return {};
    } else {  // a number or a word: whoever reads the text of the value judges it
      while (at_ < text_.size() && std::strchr(" \n\r\t,:{}[]\"", text_[at_]) == nullptr) ++at_;
      if (at_ == text_.size() && depth > 0) {
        Fail("the end of a value");
        return {};
      }
      if (at_ < text_.size() && text_[at_] == '\0') {
        Fail("a value");
        return {};
      }
    }
  } while (depth > 0);
  return text_.substr(begin, at_ - begin);
}

}  // namespace kvasir::text
