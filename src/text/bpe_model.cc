#include "text/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "files/printable.h"
#include "text/unicode_byte_alphabet.h"
#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

/// Up to here a word is joined by scanning its pairs for the lowest rank again and again, which is
/// faster than a heap.
constexpr size_t kShortMax = 48;
/// Scratch beyond this is given back after use.
constexpr size_t kScratchKept = 1 << 16;

std::string ByteToken(int byte) { return fmt::format("<0x{:02X}>", byte); }

template <typename T>
void TrimScratch(std::vector<T>& scratch) {
  if (scratch.capacity() > kScratchKept) {
    scratch.clear();
    scratch.shrink_to_fit();
  }
}

}  // namespace

/// The characters or bytes of a word, before they are joined.
struct BpeModel::Symbols {
  std::vector<int32_t> ids;      ///< -1: no token
  std::vector<uint32_t> begins;  ///< offset in the word; filled where merges go by text
};

struct BpeModel::Node {
  int32_t id;
  uint32_t previous;
  uint32_t next;
  uint32_t rank;  ///< of joining this node with the next
};

bool HasByteAlphabet(const Vocabulary& vocabulary) {
  std::string character;
  for (int byte = 0; byte < 256; ++byte) {
    character.clear();
    AppendUtf8(ByteToChar(static_cast<uint8_t>(byte)), character);
    if (vocabulary.Find(character) < 0) return false;
  }
  return true;
}

BpeModel::BpeModel(const Vocabulary& vocabulary, BpeOptions options)
    : vocabulary_(&vocabulary), options_(std::move(options)) {
  std::string piece;
  for (int byte = 0; byte < 256; ++byte) {
    if (options_.raw_bytes) {
      piece.clear();
      AppendUtf8(ByteToChar(static_cast<uint8_t>(byte)), piece);
    } else {
      piece = ByteToken(byte);
    }
    byte_ids_[byte] = vocabulary.Find(piece);
    KVASIR_CHECK(!options_.raw_bytes || byte_ids_[byte] >= 0);
  }
  if (options_.raw_bytes) return;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.Piece(id);
    if (text.empty() || Utf8Length(static_cast<uint8_t>(text[0])) != text.size()) continue;
    if (vocabulary.Find(text) == id) char_ids_.Set(CodePointAt(text, 0), id);
  }
}

Result<std::unique_ptr<BpeModel>> BpeModel::FromMerges(const Vocabulary& vocabulary,
                                                       BpeOptions options,
                                                       const std::vector<Pair>& merges) {
  std::unique_ptr<BpeModel> model(new BpeModel(vocabulary, std::move(options)));
  const BpeOptions& set = model->options_;
  model->merges_.Reserve(merges.size());
  const size_t prefix_size = set.continuing_subword_prefix.size();
  // Where the neighbours of characters say nothing of the neighbours of symbols, nothing is cut.
  bool may_cut =
      !set.raw_bytes && set.continuing_subword_prefix.empty() && set.end_of_word_suffix.empty();
  std::vector<bool> is_byte(static_cast<size_t>(vocabulary.size()));
  for (const int32_t id : model->byte_ids_) {
    if (may_cut && id >= 0) is_byte[static_cast<size_t>(id)] = true;
  }
  model->filter_ = std::make_unique<NeighbourFilter>();
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right] = merges[i];
    const int32_t left_id = vocabulary.Find(left);
    const int32_t right_id = vocabulary.Find(right);
    const int32_t id =
        vocabulary.FindJoined(left, right.substr(std::min(prefix_size, right.size())));
    if (left_id < 0 || right_id < 0 || id < 0) {
      return MakeError(ErrorCode::kDataLoss,
                       "merge {} joins \"{}\" and \"{}\", but {} is not in the vocabulary", i,
                       files::Printable(left), files::Printable(right),
                       left_id < 0    ? "the first"
                       : right_id < 0 ? "the second"
                                      : "the result");
    }
    model->merges_.Set(left_id, right_id, {static_cast<uint32_t>(i), id});
    if (left.empty() || right.empty() || is_byte[static_cast<size_t>(left_id)] ||
        is_byte[static_cast<size_t>(right_id)]) {
      may_cut = false;
    }
    if (!may_cut) continue;
    model->filter_->Add(CodePointAt(left, PreviousBoundary(left, left.size())),
                        CodePointAt(right, 0));
  }
  if (!may_cut) model->filter_.reset();
  return model;
}

std::unique_ptr<BpeModel> BpeModel::FromRanks(const Vocabulary& vocabulary, BpeOptions options,
                                              std::vector<uint32_t> ranks) {
  KVASIR_CHECK(!options.raw_bytes && ranks.size() == static_cast<size_t>(vocabulary.size()) &&
               !ranks.empty());
  std::unique_ptr<BpeModel> model(new BpeModel(vocabulary, std::move(options)));
  model->ranks_ = std::move(ranks);
  model->filter_ = std::make_unique<NeighbourFilter>();
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view piece = vocabulary.Piece(id);
    if (model->ranks_[static_cast<size_t>(id)] == Merge::kNone || piece.empty()) continue;
    size_t at = 0;
    uint32_t previous = NextCodePoint(piece, at);
    while (at < piece.size()) {
      const uint32_t code_point = NextCodePoint(piece, at);
      model->filter_->Add(previous, code_point);
      previous = code_point;
    }
  }
  return model;
}

void BpeModel::EncodeUncached(std::string_view word, std::vector<int32_t>& out) const {
  if (options_.ignore_merges && EncodeWhole(word, out)) return;
  if (filter_ != nullptr && EncodeSegments(word, out)) return;
  thread_local Symbols symbols;
  symbols.ids.clear();
  symbols.begins.clear();
  ToSymbols(word, symbols);
  if (ByRanks()) {
    Join<true>(word, symbols, out);
  } else {
    Join<false>(word, symbols, out);
  }
  TrimScratch(symbols.ids);
  TrimScratch(symbols.begins);
}

/// The word as one token.
bool BpeModel::EncodeWhole(std::string_view word, std::vector<int32_t>& out) const {
  int32_t id = -1;
  if (options_.raw_bytes) {
    if (word.size() > vocabulary_->piece_bytes_max()) return false;
    thread_local std::string mapped;
    mapped.clear();
    AppendMapped(word, mapped);
    id = vocabulary_->Find(mapped);
  } else {
    id = vocabulary_->Find(word);
  }
  if (id < 0) return false;
  out.push_back(id);
  return true;
}

/// Cuts the word where no token lies across, and encodes the segments: false where there is none
/// such place.
bool BpeModel::EncodeSegments(std::string_view word, std::vector<int32_t>& out) const {
  size_t begin = 0;
  size_t at = 0;
  uint32_t previous = NextCodePoint(word, at);
  bool previous_known = char_ids_.Get(previous) >= 0;
  while (at < word.size()) {
    const size_t here = at;
    const uint32_t code_point = NextCodePoint(word, at);
    const bool known = char_ids_.Get(code_point) >= 0;
    // Unknown neighbours may become one token.
    if (previous_known && known && !filter_->MayTouch(previous, code_point)) {
      EncodeWord(word.substr(begin, here - begin), out);
      begin = here;
    }
    previous = code_point;
    previous_known = known;
  }
  if (begin == 0) return false;
  EncodeWord(word.substr(begin), out);
  return true;
}

void BpeModel::ToSymbols(std::string_view word, Symbols& symbols) const {
  if (options_.raw_bytes) {
    symbols.ids.resize(word.size());
    for (size_t i = 0; i < word.size(); ++i) {
      symbols.ids[i] = byte_ids_[static_cast<uint8_t>(word[i])];
    }
    return;
  }
  const bool plain =
      options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty();
  bool unk_pending = false;
  std::string decorated;
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    const uint32_t code_point = NextCodePoint(word, at);
    std::string_view character = word.substr(begin, at - begin);
    int32_t id = -1;
    if (plain) {
      id = char_ids_.Get(code_point);
    } else {
      decorated.clear();
      if (begin > 0) decorated += options_.continuing_subword_prefix;
      decorated += character;
      if (at == word.size()) decorated += options_.end_of_word_suffix;
      character = decorated;
      id = vocabulary_->Find(character);
    }
    if (ByRanks()) {  // what stays unknown is spelled in bytes after the joining
      symbols.ids.push_back(id);
      symbols.begins.push_back(static_cast<uint32_t>(begin));
    } else if (id >= 0) {
      if (unk_pending) symbols.ids.push_back(options_.unk_id);
      unk_pending = false;
      symbols.ids.push_back(id);
    } else {
      AppendUnknown(character, unk_pending, symbols);
    }
  }
  if (unk_pending) symbols.ids.push_back(options_.unk_id);
}

void BpeModel::AppendUnknown(std::string_view character, bool& unk_pending,
                             Symbols& symbols) const {
  if (options_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char byte) {
        return byte_ids_[static_cast<uint8_t>(byte)] >= 0;
      })) {
    for (const char byte : character) {
      symbols.ids.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    }
    return;
  }
  if (options_.unk_id < 0) return;
  if (unk_pending && !options_.fuse_unk) symbols.ids.push_back(options_.unk_id);
  unk_pending = true;
}

bool BpeModel::HasByteTokens(std::string_view bytes) const {
  return std::all_of(bytes.begin(), bytes.end(),
                     [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)] >= 0; });
}

template <bool kByRanks>
Merge BpeModel::FindMerge(std::string_view word, int32_t left, int32_t right, uint32_t begin,
                          uint32_t end) const {
  if constexpr (kByRanks) {
    const int32_t id = vocabulary_->Find(word.substr(begin, end - begin));
    if (id < 0) return {};
    return {ranks_[static_cast<size_t>(id)], id};
  } else {
    return merges_.Find(left, right);
  }
}

template <bool kByRanks>
void BpeModel::Join(std::string_view word, Symbols& symbols, std::vector<int32_t>& out) const {
  if (symbols.ids.size() <= kShortMax) {
    JoinShort<kByRanks>(word, symbols, out);
  } else {
    JoinLong<kByRanks>(word, symbols, out);
  }
}

template <bool kByRanks>
void BpeModel::JoinShort(std::string_view word, Symbols& symbols, std::vector<int32_t>& out) const {
  int32_t* ids = symbols.ids.data();
  uint32_t* begins = symbols.begins.data();
  size_t count = symbols.ids.size();
  Merge merges[kShortMax];
  const auto end_of = [&](size_t i) {
    return i + 1 < count ? begins[i + 1] : static_cast<uint32_t>(word.size());
  };
  const auto find = [&](size_t i) {
    if constexpr (kByRanks) {
      return FindMerge<true>(word, ids[i], ids[i + 1], begins[i], end_of(i + 1));
    } else {
      return FindMerge<false>(word, ids[i], ids[i + 1], 0, 0);
    }
  };
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == Merge::kNone) break;
    ids[best] = merges[best].id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      merges[i] = merges[i + 1];
      if constexpr (kByRanks) begins[i] = begins[i + 1];
    }
    --count;
    if (best + 1 < count) merges[best] = find(best);
    if (best > 0) merges[best - 1] = find(best - 1);
  }
  if constexpr (kByRanks) {
    for (size_t i = 0; i < count; ++i) {
      AppendSymbol(word.substr(begins[i], end_of(i) - begins[i]), ids[i], out);
    }
  } else {
    out.insert(out.end(), ids, ids + count);
  }
}

template <bool kByRanks>
void BpeModel::JoinLong(std::string_view word, Symbols& symbols, std::vector<int32_t>& out) const {
  constexpr uint32_t kEnd = UINT32_MAX;
  thread_local std::vector<Node> nodes;
  thread_local std::vector<uint64_t> heap;  // rank << 32 | index of the left node
  const auto count = static_cast<uint32_t>(symbols.ids.size());
  nodes.resize(count);
  heap.clear();
  const auto begin_of = [&](uint32_t i) { return kByRanks ? symbols.begins[i] : 0; };
  const auto end_of = [&](uint32_t i) {
    if (!kByRanks) return uint32_t{0};
    return nodes[i].next == kEnd ? static_cast<uint32_t>(word.size())
                                 : symbols.begins[nodes[i].next];
  };
  const auto find = [&](uint32_t i) -> Merge {
    const uint32_t next = nodes[i].next;
    if (next == kEnd) return {};
    return FindMerge<kByRanks>(word, nodes[i].id, nodes[next].id, begin_of(i), end_of(next));
  };
  const auto key = [](uint32_t rank, uint32_t i) { return static_cast<uint64_t>(rank) << 32 | i; };

  for (uint32_t i = 0; i < count; ++i) {
    nodes[i] = {symbols.ids[i], i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1, Merge::kNone};
  }
  for (uint32_t i = 0; i + 1 < count; ++i) {
    nodes[i].rank = find(i).rank;
    if (nodes[i].rank != Merge::kNone) heap.push_back(key(nodes[i].rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto refresh = [&](uint32_t i) {
    nodes[i].rank = find(i).rank;
    if (nodes[i].rank == Merge::kNone) return;
    heap.push_back(key(nodes[i].rank, i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto i = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    if (nodes[i].rank != rank) continue;  // one of the two was joined with another meanwhile
    const uint32_t gone = nodes[i].next;
    nodes[i].id = find(i).id;
    nodes[i].next = nodes[gone].next;
    nodes[gone].rank = Merge::kNone;
    if (nodes[i].next != kEnd) nodes[nodes[i].next].previous = i;
    refresh(i);
    if (nodes[i].previous != kEnd) refresh(nodes[i].previous);
  }
  for (uint32_t i = 0; i != kEnd; i = nodes[i].next) {
    if constexpr (kByRanks) {
      AppendSymbol(word.substr(begin_of(i), end_of(i) - begin_of(i)), nodes[i].id, out);
    } else {
      out.push_back(nodes[i].id);
    }
  }
  TrimScratch(nodes);
  TrimScratch(heap);
}

/// SentencePiece: what is no token becomes its bytes.
void BpeModel::AppendSymbol(std::string_view symbol, int32_t id, std::vector<int32_t>& out) const {
  if (id >= 0) {
    out.push_back(id);
    return;
  }
  if (options_.byte_fallback && HasByteTokens(symbol)) {
    for (const char byte : symbol) out.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
  } else if (options_.unk_id >= 0) {
    out.push_back(options_.unk_id);
  }
}

}  // namespace kvasir::text
