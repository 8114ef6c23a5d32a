#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "files/printable.h"

namespace kvasir::text::jinja {
namespace {

struct Expansion {
  char16_t code_point;
  char16_t text[4];
};

struct Range {
  char32_t first;
  char32_t last;
};

// Full case mappings (Unicode SpecialCasing.txt, unconditional) where utf8proc has simple ones.
// clang-format off
constexpr Expansion kUpper[] = {
    {0x00df, u"\u0053\u0053"}, {0x0149, u"\u02bc\u004e"}, {0x01f0, u"\u004a\u030c"},
    {0x0390, u"\u0399\u0308\u0301"}, {0x03b0, u"\u03a5\u0308\u0301"}, {0x0587, u"\u0535\u0552"},
    {0x1e96, u"\u0048\u0331"}, {0x1e97, u"\u0054\u0308"}, {0x1e98, u"\u0057\u030a"},
    {0x1e99, u"\u0059\u030a"}, {0x1e9a, u"\u0041\u02be"}, {0x1f50, u"\u03a5\u0313"},
    {0x1f52, u"\u03a5\u0313\u0300"}, {0x1f54, u"\u03a5\u0313\u0301"},
    {0x1f56, u"\u03a5\u0313\u0342"}, {0x1f80, u"\u1f08\u0399"}, {0x1f81, u"\u1f09\u0399"},
    {0x1f82, u"\u1f0a\u0399"}, {0x1f83, u"\u1f0b\u0399"}, {0x1f84, u"\u1f0c\u0399"},
    {0x1f85, u"\u1f0d\u0399"}, {0x1f86, u"\u1f0e\u0399"}, {0x1f87, u"\u1f0f\u0399"},
    {0x1f88, u"\u1f08\u0399"}, {0x1f89, u"\u1f09\u0399"}, {0x1f8a, u"\u1f0a\u0399"},
    {0x1f8b, u"\u1f0b\u0399"}, {0x1f8c, u"\u1f0c\u0399"}, {0x1f8d, u"\u1f0d\u0399"},
    {0x1f8e, u"\u1f0e\u0399"}, {0x1f8f, u"\u1f0f\u0399"}, {0x1f90, u"\u1f28\u0399"},
    {0x1f91, u"\u1f29\u0399"}, {0x1f92, u"\u1f2a\u0399"}, {0x1f93, u"\u1f2b\u0399"},
    {0x1f94, u"\u1f2c\u0399"}, {0x1f95, u"\u1f2d\u0399"}, {0x1f96, u"\u1f2e\u0399"},
    {0x1f97, u"\u1f2f\u0399"}, {0x1f98, u"\u1f28\u0399"}, {0x1f99, u"\u1f29\u0399"},
    {0x1f9a, u"\u1f2a\u0399"}, {0x1f9b, u"\u1f2b\u0399"}, {0x1f9c, u"\u1f2c\u0399"},
    {0x1f9d, u"\u1f2d\u0399"}, {0x1f9e, u"\u1f2e\u0399"}, {0x1f9f, u"\u1f2f\u0399"},
    {0x1fa0, u"\u1f68\u0399"}, {0x1fa1, u"\u1f69\u0399"}, {0x1fa2, u"\u1f6a\u0399"},
    {0x1fa3, u"\u1f6b\u0399"}, {0x1fa4, u"\u1f6c\u0399"}, {0x1fa5, u"\u1f6d\u0399"},
    {0x1fa6, u"\u1f6e\u0399"}, {0x1fa7, u"\u1f6f\u0399"}, {0x1fa8, u"\u1f68\u0399"},
    {0x1fa9, u"\u1f69\u0399"}, {0x1faa, u"\u1f6a\u0399"}, {0x1fab, u"\u1f6b\u0399"},
    {0x1fac, u"\u1f6c\u0399"}, {0x1fad, u"\u1f6d\u0399"}, {0x1fae, u"\u1f6e\u0399"},
    {0x1faf, u"\u1f6f\u0399"}, {0x1fb2, u"\u1fba\u0399"}, {0x1fb3, u"\u0391\u0399"},
    {0x1fb4, u"\u0386\u0399"}, {0x1fb6, u"\u0391\u0342"}, {0x1fb7, u"\u0391\u0342\u0399"},
    {0x1fbc, u"\u0391\u0399"}, {0x1fc2, u"\u1fca\u0399"}, {0x1fc3, u"\u0397\u0399"},
    {0x1fc4, u"\u0389\u0399"}, {0x1fc6, u"\u0397\u0342"}, {0x1fc7, u"\u0397\u0342\u0399"},
    {0x1fcc, u"\u0397\u0399"}, {0x1fd2, u"\u0399\u0308\u0300"}, {0x1fd3, u"\u0399\u0308\u0301"},
    {0x1fd6, u"\u0399\u0342"}, {0x1fd7, u"\u0399\u0308\u0342"}, {0x1fe2, u"\u03a5\u0308\u0300"},
    {0x1fe3, u"\u03a5\u0308\u0301"}, {0x1fe4, u"\u03a1\u0313"}, {0x1fe6, u"\u03a5\u0342"},
    {0x1fe7, u"\u03a5\u0308\u0342"}, {0x1ff2, u"\u1ffa\u0399"}, {0x1ff3, u"\u03a9\u0399"},
    {0x1ff4, u"\u038f\u0399"}, {0x1ff6, u"\u03a9\u0342"}, {0x1ff7, u"\u03a9\u0342\u0399"},
    {0x1ffc, u"\u03a9\u0399"}, {0xfb00, u"\u0046\u0046"}, {0xfb01, u"\u0046\u0049"},
    {0xfb02, u"\u0046\u004c"}, {0xfb03, u"\u0046\u0046\u0049"}, {0xfb04, u"\u0046\u0046\u004c"},
    {0xfb05, u"\u0053\u0054"}, {0xfb06, u"\u0053\u0054"}, {0xfb13, u"\u0544\u0546"},
    {0xfb14, u"\u0544\u0535"}, {0xfb15, u"\u0544\u053b"}, {0xfb16, u"\u054e\u0546"},
    {0xfb17, u"\u0544\u053d"},
};

constexpr Expansion kTitle[] = {
    {0x00df, u"\u0053\u0073"}, {0x0149, u"\u02bc\u004e"}, {0x01f0, u"\u004a\u030c"},
    {0x0390, u"\u0399\u0308\u0301"}, {0x03b0, u"\u03a5\u0308\u0301"}, {0x0587, u"\u0535\u0582"},
    {0x1e96, u"\u0048\u0331"}, {0x1e97, u"\u0054\u0308"}, {0x1e98, u"\u0057\u030a"},
    {0x1e99, u"\u0059\u030a"}, {0x1e9a, u"\u0041\u02be"}, {0x1f50, u"\u03a5\u0313"},
    {0x1f52, u"\u03a5\u0313\u0300"}, {0x1f54, u"\u03a5\u0313\u0301"},
    {0x1f56, u"\u03a5\u0313\u0342"}, {0x1fb2, u"\u1fba\u0345"}, {0x1fb4, u"\u0386\u0345"},
    {0x1fb6, u"\u0391\u0342"}, {0x1fb7, u"\u0391\u0342\u0345"}, {0x1fc2, u"\u1fca\u0345"},
    {0x1fc4, u"\u0389\u0345"}, {0x1fc6, u"\u0397\u0342"}, {0x1fc7, u"\u0397\u0342\u0345"},
    {0x1fd2, u"\u0399\u0308\u0300"}, {0x1fd3, u"\u0399\u0308\u0301"}, {0x1fd6, u"\u0399\u0342"},
    {0x1fd7, u"\u0399\u0308\u0342"}, {0x1fe2, u"\u03a5\u0308\u0300"},
    {0x1fe3, u"\u03a5\u0308\u0301"}, {0x1fe4, u"\u03a1\u0313"}, {0x1fe6, u"\u03a5\u0342"},
    {0x1fe7, u"\u03a5\u0308\u0342"}, {0x1ff2, u"\u1ffa\u0345"}, {0x1ff4, u"\u038f\u0345"},
    {0x1ff6, u"\u03a9\u0342"}, {0x1ff7, u"\u03a9\u0342\u0345"}, {0xfb00, u"\u0046\u0066"},
    {0xfb01, u"\u0046\u0069"}, {0xfb02, u"\u0046\u006c"}, {0xfb03, u"\u0046\u0066\u0069"},
    {0xfb04, u"\u0046\u0066\u006c"}, {0xfb05, u"\u0053\u0074"}, {0xfb06, u"\u0053\u0074"},
    {0xfb13, u"\u0544\u0576"}, {0xfb14, u"\u0544\u0565"}, {0xfb15, u"\u0544\u056b"},
    {0xfb16, u"\u054e\u0576"}, {0xfb17, u"\u0544\u056d"},
};
constexpr Range kDigitNotDecimal[] = {
    {0xb2, 0xb3}, {0xb9, 0xb9}, {0x1369, 0x1371}, {0x19da, 0x19da}, {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089}, {0x2460, 0x2468}, {0x2474, 0x247c}, {0x2488, 0x2490},
    {0x24ea, 0x24ea}, {0x24f5, 0x24fd}, {0x24ff, 0x24ff}, {0x2776, 0x277e}, {0x2780, 0x2788},
    {0x278a, 0x2792}, {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a},
    {0x1f100, 0x1f10a},
};
constexpr Range kOtherLowercase[] = {
    {0xaa, 0xaa}, {0xba, 0xba}, {0x2b0, 0x2b8}, {0x2c0, 0x2c1}, {0x2e0, 0x2e4}, {0x345, 0x345},
    {0x37a, 0x37a}, {0x1d2c, 0x1d6a}, {0x1d78, 0x1d78}, {0x1d9b, 0x1dbf}, {0x2071, 0x2071},
    {0x207f, 0x207f}, {0x2090, 0x209c}, {0x2170, 0x217f}, {0x24d0, 0x24e9}, {0x2c7c, 0x2c7d},
    {0xa69c, 0xa69d}, {0xa770, 0xa770}, {0xa7f8, 0xa7f9}, {0xab5c, 0xab5f}, {0x10780, 0x10780},
    {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba},
};
constexpr Range kOtherUppercase[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169},
    {0x1f170, 0x1f189},
};
// clang-format on

template <std::size_t N>
bool InRanges(const Range (&ranges)[N], char32_t c) {
  const Range* at = std::lower_bound(std::begin(ranges), std::end(ranges), c,
                                     [](const Range& r, char32_t value) { return r.last < value; });
  return at != std::end(ranges) && at->first <= c;
}

template <std::size_t N>
const char16_t* Expanded(const Expansion (&table)[N], char32_t c) {
  const Expansion* at =
      std::lower_bound(std::begin(table), std::end(table), c,
                       [](const Expansion& e, char32_t value) { return e.code_point < value; });
  return at != std::end(table) && at->code_point == c ? at->text : nullptr;
}

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

void AppendExpansion(std::string& out, const char16_t* text) {
  for (; *text != 0; ++text) AppendUtf8(out, *text);
}

void AppendUpper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (const char16_t* text = Expanded(kUpper, c)) {
    AppendExpansion(out, text);
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void AppendTitle(std::string& out, char32_t c) {
  if (const char16_t* text = Expanded(kTitle, c)) {
    AppendExpansion(out, text);
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

// Word_Break properties that a final sigma looks through: marks, formats, and some punctuation.
bool IsCaseIgnorable(char32_t c) {
  if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xb7 || c == 0x2019) {
    return true;
  }
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return false;
  }
}

constexpr char32_t kCapitalSigma = 0x3a3;

bool SigmaIsFinal(std::string_view text, std::size_t sigma, std::size_t after) {
  bool letter_before = false;
  for (std::size_t at = sigma; at > 0;) {
    do {
      --at;
    } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
    std::size_t end = at;
    const char32_t c = DecodeAt(text, end);
    if (IsCaseIgnorable(c)) continue;
    letter_before = IsCased(c);
    break;
  }
  if (!letter_before) return false;
  while (after < text.size()) {
    const char32_t c = DecodeAt(text, after);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

// `at` is behind `c`, which began at `begin`.
void AppendLower(std::string& out, char32_t c, std::string_view text, std::size_t begin,
                 std::size_t at) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {  // I with dot above: i and a combining dot
    AppendUtf8(out, 'i');
    AppendUtf8(out, 0x307);
  } else if (c == kCapitalSigma) {
    AppendUtf8(out, SigmaIsFinal(text, begin, at) ? 0x3c2 : 0x3c3);
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

}  // namespace

char32_t DecodeAt(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) {
    ++at;
    return first;
  }
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  char32_t c = first & (0xffU >> (length + 1));
  bool valid = first >= 0xc2 && first <= 0xf4 && at + length <= text.size();
  for (std::size_t i = 1; valid && i < length; ++i) {
    valid = (byte(at + i) & 0xc0) == 0x80;
    c = (c << 6) | (byte(at + i) & 0x3fU);
  }
  valid = valid && !(length == 3 && c < 0x800) && !(length == 4 && (c < 0x10000 || c > 0x10ffff)) &&
          !(c >= 0xd800 && c < 0xe000);
  if (!valid) {
    ++at;
    return 0xfffd;
  }
  at += length;
  return c;
}

void AppendUtf8(std::string& out, char32_t c) {
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xc0 | (c >> 6)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | (c >> 12)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else {
    out.push_back(static_cast<char>(0xf0 | (c >> 18)));
    out.push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  }
}

std::size_t CountCodePoints(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
    } else {
      (void)DecodeAt(text, at);
    }
  }
  return count;
}

std::size_t OffsetOf(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) (void)DecodeAt(text, at);
  return at;
}

bool IsSpace(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool IsAlpha(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }

bool IsDigit(char32_t c) { return IsDecimal(c) || InRanges(kDigitNotDecimal, c); }

bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsLower(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LL || InRanges(kOtherLowercase, c);
}

bool IsUpper(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LU || InRanges(kOtherUppercase, c);
}

bool IsCased(char32_t c) { return IsLower(c) || IsUpper(c) || Category(c) == UTF8PROC_CATEGORY_LT; }

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsWord(char32_t c) { return c == '_' || IsAlpha(c) || IsNumeric(c); }

std::string Upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) AppendUpper(out, DecodeAt(text, at));
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = DecodeAt(text, at);
    AppendLower(out, c, text, begin, at);
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = DecodeAt(text, at);
    if (IsUpper(c)) {
      AppendLower(out, c, text, begin, at);
    } else if (IsLower(c)) {
      AppendUpper(out, c);
    } else {
      AppendUtf8(out, c);
    }
  }
  return out;
}

std::string Title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = DecodeAt(text, at);
    if (in_word) {
      AppendLower(out, c, text, begin, at);
    } else {
      AppendTitle(out, c);
    }
    in_word = IsCased(c);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = DecodeAt(text, at);
    if (begin == 0) {
      AppendTitle(out, c);
    } else {
      AppendLower(out, c, text, begin, at);
    }
  }
  return out;
}

std::string_view TrimLeft(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t next = at;
    if (!IsSpace(DecodeAt(text, next))) break;
    at = next;
  }
  return text.substr(at);
}

std::string_view TrimRight(std::string_view text) {
  while (!text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xc0) == 0x80) --last;
    std::size_t end = last;
    if (!IsSpace(DecodeAt(text, end)) || end != text.size()) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string OneLine(std::string_view message) {
  constexpr size_t kMessageBytesMax = 500;
  return files::Printable(message, kMessageBytesMax);
}

}  // namespace kvasir::text::jinja
