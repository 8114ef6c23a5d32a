#include "text/unicode_class.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

namespace kvasir::text {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// Unicode's Scripts.txt, version 17: Script=Han. utf8proc has no scripts.
constexpr Range kHanRanges[] = {
    {0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},
    {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3},
    {0x16FF0, 0x16FF6}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B81E}, {0x2B820, 0x2CEAD},
    {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D}, {0x30000, 0x3134A},
    {0x31350, 0x33479},
};

// PropList.txt: White_Space.
constexpr Range kSpaceRanges[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
};

// Symbols that are Alphabetic (PropList.txt: Other_Alphabetic of category So): circled letters.
constexpr Range kAlphabeticSymbolRanges[] = {
    {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

// PropList.txt: Join_Control.
constexpr Range kJoinerRanges[] = {{0x200C, 0x200D}};

CharClass FromCategory(utf8proc_category_t category) {
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
      return kUpper | kWord;
    case UTF8PROC_CATEGORY_LL:
      return kLower | kWord;
    case UTF8PROC_CATEGORY_LT:
      return kTitle | kWord;
    case UTF8PROC_CATEGORY_LM:
      return kModifierLetter | kWord;
    case UTF8PROC_CATEGORY_LO:
      return kOtherLetter | kWord;
    case UTF8PROC_CATEGORY_MN:
      return kMark | kNonSpacingMark | kWord;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark | kWord;
    case UTF8PROC_CATEGORY_ND:
      return kDecimal | kWord;
    case UTF8PROC_CATEGORY_NL:
      return kOtherNumber | kWord;
    case UTF8PROC_CATEGORY_NO:
      return kOtherNumber;
    case UTF8PROC_CATEGORY_PC:
      return kPunctuation | kWord;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return kSymbol;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
      return kOther;
    default:
      return 0;
  }
}

std::vector<CharClass> BuildTable() {
  std::vector<CharClass> table(kCharClassTableSize);
  for (uint32_t c = 0; c < kCharClassTableSize; ++c) {
    table[c] = FromCategory(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
  }
  const auto mark = [&](auto& ranges, CharClass bits) {
    for (const Range& range : ranges) {
      for (uint32_t c = range.first; c <= range.last; ++c) {
        table[c] = static_cast<CharClass>(table[c] | bits);
      }
    }
  };
  mark(kHanRanges, kHan);
  mark(kSpaceRanges, kSpace);
  mark(kAlphabeticSymbolRanges, kWord);
  mark(kJoinerRanges, kWord);
  table['\r'] |= kNewline;
  table['\n'] |= kNewline;
  return table;
}

}  // namespace

const CharClass* CharClassTable() {
  static const std::vector<CharClass> table = BuildTable();
  return table.data();
}

CharClass RareCharClass(uint32_t code_point) {
  return FromCategory(utf8proc_category(static_cast<utf8proc_int32_t>(code_point)));
}

}  // namespace kvasir::text
