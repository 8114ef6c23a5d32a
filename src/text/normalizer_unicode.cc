#include "text/normalizer_unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "base/check.h"
#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

/// Nothing at or above this code point decomposes, composes or has a combining class.
constexpr uint32_t kTableSize = 0x30000;

int Utf8procOptions(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::kNfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::kNfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::kNfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  KVASIR_CHECK(false, "unknown normal form {}", static_cast<int>(form));
}

void AppendMapped(NormalForm form, std::string_view segment, std::string& out) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(segment.data()),
                   static_cast<utf8proc_ssize_t>(segment.size()), &mapped,
                   static_cast<utf8proc_option_t>(Utf8procOptions(form)));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  KVASIR_CHECK(size >= 0, "utf8proc: {}", utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

/// A stable character stays as it is, and what stands before it never acts on it: text may be
/// normalized from one stable character to the next.
bool IsStable(NormalForm form, uint32_t code_point) {
  const bool composing = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  if (code_point >= 0xD800 && code_point < 0xE000) return true;        // not in valid UTF-8
  if (code_point >= 0xAC00 && code_point <= 0xD7A3) return composing;  // Hangul syllables
  const utf8proc_property_t* property =
      utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point));
  if (property->combining_class != 0) return false;
  if (composing) {
    // Vowels and finals of Hangul, and the second characters of composed pairs.
    if ((code_point >= 0x1161 && code_point <= 0x1175) ||
        (code_point >= 0x11A8 && code_point <= 0x11C2)) {
      return false;
    }
    if (property->comb_index != UINT16_MAX && property->comb_index >= 0x8000) return false;
  }
  if (property->decomp_seqindex == UINT16_MAX) return true;
  if (property->decomp_type != 0 && !compatible) return true;
  if (!composing) return false;
  std::string single;
  AppendUtf8(code_point, single);
  std::string mapped;
  AppendMapped(form, single, mapped);
  return mapped == single;
}

std::vector<bool> MakeStableTable(NormalForm form) {
  std::vector<bool> table(kTableSize);
  for (uint32_t c = 0; c < kTableSize; ++c) table[c] = IsStable(form, c);
  return table;
}

const std::vector<bool>& StableTable(NormalForm form) {
  static const std::vector<bool> nfc = MakeStableTable(NormalForm::kNfc);
  if (form == NormalForm::kNfc) return nfc;
  static const std::vector<bool> others[] = {MakeStableTable(NormalForm::kNfd),
                                             MakeStableTable(NormalForm::kNfkc),
                                             MakeStableTable(NormalForm::kNfkd)};
  return others[static_cast<int>(form) - 1];
}

}  // namespace

std::string_view Normalize(NormalForm form, std::string_view text, std::string& out) {
  if (IsAscii(text)) return text;
  const std::vector<bool>& stable = StableTable(form);
  const auto is_stable = [&](uint32_t c) { return c >= kTableSize || stable[c]; };
  size_t done = 0;    // what is before it stands in `out`
  size_t anchor = 0;  // begin of the last stable character
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      anchor = at++;
      continue;
    }
    const size_t here = at;
    if (is_stable(NextCodePoint(text, at))) {
      anchor = here;
      continue;
    }
    while (at < text.size()) {
      size_t next = at;
      if (is_stable(NextCodePoint(text, next))) break;
      at = next;
    }
    out.append(text, done, anchor - done);
    AppendMapped(form, text.substr(anchor, at - anchor), out);
    done = anchor = at;
  }
  if (done == 0) return text;
  out.append(text, done, text.size() - done);
  return out;
}

}  // namespace kvasir::text
