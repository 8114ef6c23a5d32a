#include "text/normalizer_charsmap.h"

#include <algorithm>
#include <cstring>

#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

// A unit of the double array (darts-clone): where its children lie, whether a value ends here, and
// the byte that leads to it. A unit with the top bit set is a value.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) == 1; }
uint32_t Value(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

}  // namespace

Result<CharsMap> CharsMap::Parse(std::string_view blob) {
  uint32_t trie_bytes = 0;
  if (blob.size() >= 4) std::memcpy(&trie_bytes, blob.data(), 4);
  if (blob.size() < 4 || trie_bytes > blob.size() - 4 || trie_bytes % 4 != 0 || trie_bytes == 0) {
    return MakeError(ErrorCode::kDataLoss,
                     "precompiled_charsmap: {} bytes, of which {} should be a trie", blob.size(),
                     trie_bytes);
  }
  CharsMap map;
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), blob.data() + 4, trie_bytes);
  map.replacements_ = blob.substr(4 + trie_bytes);
  if (!IsValidUtf8(map.replacements_)) {
    return MakeError(ErrorCode::kDataLoss, "precompiled_charsmap: a replacement is not UTF-8");
  }
  for (size_t begin = 0; begin < map.replacements_.size();) {
    const size_t end = std::min(map.replacements_.find('\0', begin), map.replacements_.size());
    map.replacement_bytes_max_ = std::max(map.replacement_bytes_max_, end - begin);
    begin = end + 1;
  }
  // Unicode's longest has 33 (U+FDFA). Every character of a text may be replaced.
  constexpr size_t kReplacementBytesMax = 256;
  if (map.replacement_bytes_max_ > kReplacementBytesMax) {
    return MakeError(ErrorCode::kDataLoss,
                     "precompiled_charsmap: a replacement of {} bytes, at most {} are allowed",
                     map.replacement_bytes_max_, kReplacementBytesMax);
  }
  return map;
}

std::optional<CharsMap::Match> CharsMap::Find(std::string_view text, bool longest) const {
  std::optional<Match> found;
  size_t position = Offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte == 0) break;  // zero ends every key
    position ^= byte;
    if (position >= units_.size() || Label(units_[position]) != byte) break;
    const uint32_t unit = units_[position];
    position ^= Offset(unit);
    if (!HasLeaf(unit)) continue;
    if (position >= units_.size()) break;
    const size_t begin = Value(units_[position]);
    if (begin >= replacements_.size()) break;
    // A broken map may point into the middle of a character.
    if ((static_cast<uint8_t>(replacements_[begin]) & 0xC0) == 0x80) break;
    size_t end = replacements_.find('\0', begin);
    if (end == std::string::npos) end = replacements_.size();
    found = Match{i + 1, std::string_view(replacements_).substr(begin, end - begin)};
    if (!longest) break;
  }
  return found;
}

}  // namespace kvasir::text
