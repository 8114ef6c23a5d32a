#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/normalizer_unicode.h"
#include "text/unicode_byte_alphabet.h"
#include "text/unicode_class.h"
#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

std::string Lossy(std::string_view bytes) {
  std::string out;
  AppendLossy(bytes, out);
  return out;
}

// The examples of the Unicode Standard, section 3.9, tables 3-8 to 3-11.
TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string r(kReplacement);
  EXPECT_EQ(Lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(Lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Utf8, EncodesAndReadsEveryCodePoint) {
  std::string text;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    text.clear();
    AppendUtf8(c, text);
    ASSERT_TRUE(IsValidUtf8(text)) << c;
    ASSERT_EQ(Utf8Length(static_cast<uint8_t>(text[0])), text.size());
    ASSERT_EQ(CodePointAt(text, 0), c);
    ASSERT_EQ(PreviousBoundary(text, text.size()), 0u);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(ClassifyUtf8(text.substr(0, cut)).kind, Utf8Step::Kind::kIncomplete);
    }
  }
}

TEST(Utf8, LossyTextIsValid) {
  Rng rng(31);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(rng.Below(20), '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(rng.Chance(0.5) ? 0x80 + rng.Below(128) : rng.Below(256));
    }
    const std::string text = Lossy(bytes);
    ASSERT_TRUE(IsValidUtf8(text));
    ASSERT_EQ(IsValidUtf8(bytes), text == bytes);
  }
}

TEST(ByteAlphabet, MapsEveryByteAndBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  std::string mapped;
  AppendMapped(bytes, mapped);
  EXPECT_TRUE(IsValidUtf8(mapped));
  std::string back;
  EXPECT_TRUE(AppendUnmapped(mapped, back));
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(ByteToChar(' '), 0x120u);
  EXPECT_EQ(ByteToChar('\n'), 0x10Au);
  EXPECT_EQ(ByteToChar('A'), 'A');
  EXPECT_EQ(CharToByte(0x20), -1);
  std::string kept = "kept";
  EXPECT_FALSE(AppendUnmapped("a中", kept));
  EXPECT_EQ(kept, "kept");
}

TEST(CharClass, KnowsTheKinds) {
  const CharClass* table = CharClassTable();
  const auto has = [&](uint32_t c, CharClass bits) { return (ClassOf(table, c) & bits) != 0; };
  EXPECT_TRUE(has('A', kUpper) && has('a', kLower) && has(0x1C5, kTitle) &&
              has(0x2B0, kModifierLetter) && has(0x5D0, kOtherLetter));
  EXPECT_TRUE(has('5', kDecimal) && has(0x2167, kOtherNumber) && has(0xBD, kOtherNumber));
  EXPECT_TRUE(has(0x301, kMark) && has(0x301, kNonSpacingMark) && has(0x903, kMark) &&
              !has(0x903, kNonSpacingMark));
  EXPECT_TRUE(has(0x85, kSpace) && has(0x3000, kSpace) && !has(0xFEFF, kSpace) &&
              !has(0x200B, kSpace) && !has(0x180E, kSpace));
  EXPECT_TRUE(has('\r', kNewline) && has('\n', kNewline) && !has(0x2028, kNewline));
  EXPECT_TRUE(has(0x4E00, kHan) && has(0x3005, kHan) && has(0x20000, kHan) && !has(0x3042, kHan));
  EXPECT_TRUE(has('_', kWord) && has(0x24B6, kWord) && has(0x301, kWord) && !has('-', kWord));
  EXPECT_TRUE(has('$', kSymbol) && has('!', kPunctuation));
  EXPECT_TRUE(has(0xE0100, kMark));  // beyond the table
  EXPECT_FALSE(has(0x10FFFF, kLetter));
}

std::string Nfc(std::string_view text) {
  std::string out;
  return std::string(Normalize(NormalForm::kNfc, text, out));
}

TEST(Normalize, LeavesNormalizedTextWhereItIs) {
  std::string out;
  for (const std::string_view text : {"plain", "Å é 한글", "中文", "𐍈 no marks"}) {
    EXPECT_EQ(Normalize(NormalForm::kNfc, text, out).data(), text.data());
  }
  EXPECT_TRUE(out.empty());
}

TEST(Normalize, Composes) {
  EXPECT_EQ(Nfc("xe\u0301y"), "x\u00E9y");
  EXPECT_EQ(Nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(Nfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(Nfc("\u2126"), "\u03A9");        // the ohm sign
  EXPECT_EQ(Nfc("\u0958"), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(Nfc("a\u0323\u0307"), "\u1EA1\u0307");
  EXPECT_EQ(Nfc("a\u0307\u0323"), "\u1EA1\u0307");  // put in order
  EXPECT_EQ(Nfc("\u0301"), "\u0301");
}

// From one stable character to the next gives what the whole text at once gives: each half of a
// text normalized before they are joined must not matter to the result.
TEST(Normalize, IsIdempotentAndJoins) {
  Rng rng(32);
  const uint32_t pool[] = {'a',    'e',    0x301,  0x323,  0x307,  0x1100, 0x1161, 0x11A8, 0xAC00,
                           0x1EA1, 0x2126, 0x0958, 0x0344, 0xFB01, 0x3099, 0x304B, 0x1D15E};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t i = rng.Below(10); i > 0; --i) AppendUtf8(pool[rng.Below(std::size(pool))], text);
    for (const NormalForm form :
         {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
      std::string first;
      const std::string once(Normalize(form, text, first));
      std::string second;
      ASSERT_EQ(Normalize(form, once, second), once);
      std::string decomposed_out;
      const std::string decomposed(Normalize(form == NormalForm::kNfkc || form == NormalForm::kNfkd
                                                 ? NormalForm::kNfkd
                                                 : NormalForm::kNfd,
                                             text, decomposed_out));
      std::string third;
      ASSERT_EQ(Normalize(form, decomposed, third), once);
    }
  }
}

}  // namespace
}  // namespace kvasir::text
