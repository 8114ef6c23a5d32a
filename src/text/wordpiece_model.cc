#include "text/wordpiece_model.h"

#include <algorithm>

#include "text/unicode_utf8.h"

namespace kvasir::text {

void WordPieceModel::EncodeUncached(std::string_view word, std::vector<int32_t>& out) const {
  const size_t first = out.size();
  const auto unknown = [&] {
    out.resize(first);
    if (options_.unk_id >= 0) out.push_back(options_.unk_id);
  };
  const auto characters_count = std::count_if(word.begin(), word.end(), [](char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  });
  if (characters_count > options_.word_characters_max) return unknown();
  for (size_t begin = 0; begin < word.size();) {
    const std::string& prefix = begin == 0 ? options_.first_prefix : options_.continuing_prefix;
    size_t end = std::min(word.size(), begin + vocabulary_->piece_bytes_max());
    while (end > begin && end < word.size() && (static_cast<uint8_t>(word[end]) & 0xC0) == 0x80) {
      --end;
    }
    int32_t id = -1;
    while (end > begin) {
      id = vocabulary_->FindJoined(prefix, word.substr(begin, end - begin));
      if (id >= 0) break;
      end = PreviousBoundary(word, end);
    }
    if (id < 0) return unknown();
    out.push_back(id);
    begin = end;
  }
}

void WordLevelModel::EncodeUncached(std::string_view word, std::vector<int32_t>& out) const {
  const int32_t id = vocabulary_->Find(word);
  if (id >= 0) {
    out.push_back(id);
  } else if (unk_id_ >= 0) {
    out.push_back(unk_id_);
  }
}

}  // namespace kvasir::text
