#include "text/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "text/unicode_class.h"

namespace kvasir::text {
namespace {

constexpr size_t kContentBytesMax = 1024;

/// The class of the character before `at`, or 0.
CharClass ClassBefore(std::string_view text, size_t at) {
  if (at == 0) return 0;
  return ClassOf(CharClassTable(), CodePointAt(text, PreviousBoundary(text, at)));
}
CharClass ClassBehind(std::string_view text, size_t at) {
  return at == text.size() ? CharClass{0} : ClassOf(CharClassTable(), CodePointAt(text, at));
}

}  // namespace

Status AddedTokenMatcher::Add(std::string_view content, const AddedToken& token) {
  if (content.empty() || content.size() > kContentBytesMax) {
    return MakeError(ErrorCode::kDataLoss, "added token {}: {} bytes, expected 1 to {}", token.id,
                     content.size(), kContentBytesMax);
  }
  if (!trie_.Add(content, static_cast<int32_t>(tokens_.size()))) {
    return MakeError(ErrorCode::kDataLoss, "added tokens of more than {} bytes",
                     ByteTrie::kNodesMax);
  }
  tokens_.push_back(token);
  tokens_.back().bracketed = content.front() == '<' && content.back() == '>';
  tokens_.back().content.clear();
  const auto start = static_cast<uint8_t>(content[0]);
  if (!starts_[start]) {
    starts_[start] = true;
    ++starts_count_;
    only_start_ = content[0];
  }
  return Status::Ok();
}

size_t AddedTokenMatcher::NextStart(std::string_view text, size_t at) const {
  if (starts_count_ == 1) {
    const void* found = std::memchr(text.data() + at, only_start_, text.size() - at);
    return found == nullptr ? text.size()
                            : static_cast<size_t>(static_cast<const char*>(found) - text.data());
  }
  while (at < text.size() && !starts_[static_cast<uint8_t>(text[at])]) ++at;
  return at;
}

/// Index of the longest token at `at`, or -1.
int32_t AddedTokenMatcher::LongestAt(std::string_view text, size_t at, size_t& end) const {
  int32_t found = -1;
  ByteTrie::Node node = ByteTrie::kRoot;
  while (at < text.size()) {
    node = trie_.Child(node, static_cast<uint8_t>(text[at]));
    if (node == ByteTrie::kNoNode) break;
    ++at;
    if (trie_.Value(node) >= 0) {
      found = trie_.Value(node);
      end = at;
    }
  }
  return found;
}

std::vector<size_t> AddedTokenMatcher::Starts(std::string_view text, bool special_only) const {
  std::vector<size_t> starts;
  for (size_t at = starts_count_ == 0 ? text.size() : NextStart(text, 0); at < text.size();
       at = NextStart(text, at + 1)) {
    ByteTrie::Node node = ByteTrie::kRoot;
    bool wanted = false;
    size_t end = at;
    while (end < text.size() && !wanted) {
      node = trie_.Child(node, static_cast<uint8_t>(text[end]));
      if (node == ByteTrie::kNoNode) break;
      ++end;
      if (const int32_t found = trie_.Value(node); found >= 0) {
        const AddedToken& token = tokens_[static_cast<size_t>(found)];
        wanted = token.special || (token.bracketed && !special_only);
      }
    }
    // Runs of blanks, which some vocabularies add, forge nothing.
    const bool blank = text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r';
    const bool cut_off = node != ByteTrie::kNoNode && end == text.size() && !blank;
    if (wanted || cut_off) starts.push_back(at);
    if (at + 1 >= text.size()) break;
  }
  return starts;
}

void AddedTokenMatcher::Split(std::string_view text, bool parse_special,
                              std::vector<Segment>& out) const {
  size_t done = 0;
  for (size_t at = starts_count_ == 0 ? text.size() : NextStart(text, 0); at < text.size();
       at = NextStart(text, at)) {
    size_t begin = at;
    size_t end = at;
    const int32_t found = LongestAt(text, at, end);
    if (found < 0) {
      ++at;
      continue;
    }
    at = end;
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    if (token.special && !parse_special) continue;
    if (token.single_word &&
        ((ClassBefore(text, begin) & kWord) != 0 || (ClassBehind(text, end) & kWord) != 0)) {
      continue;
    }
    if (token.lstrip) {
      while (begin > done && (ClassBefore(text, begin) & kSpace) != 0) {
        begin = PreviousBoundary(text, begin);
      }
    }
    if (token.rstrip) {
      while ((ClassBehind(text, end) & kSpace) != 0) {
        end += Utf8Length(static_cast<uint8_t>(text[end]));
      }
    }
    if (begin > done) out.push_back({text.substr(done, begin - done), -1});
    out.push_back({text.substr(begin, end - begin), token.id});
    done = at = end;
  }
  if (done < text.size()) out.push_back({text.substr(done), -1});
}

}  // namespace kvasir::text
