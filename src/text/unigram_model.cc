#include "text/unigram_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

/// An unknown character costs this much more than the worst piece (SentencePiece's constant).
constexpr double kUnknownPenalty = 10.0;
constexpr size_t kScratchKept = 1 << 16;

struct Best {
  double score;
  uint32_t begin;  ///< where the last piece begins
  int32_t id;      ///< kUnreached, kUnknown or a token
};
constexpr int32_t kUnreached = -2;
constexpr int32_t kUnknown = -1;

}  // namespace

Result<std::unique_ptr<UnigramModel>> UnigramModel::Create(const Vocabulary& vocabulary,
                                                           UnigramOptions options) {
  KVASIR_CHECK(options.scores.size() == static_cast<size_t>(vocabulary.size()) &&
               options.matches_text.size() == options.scores.size());
  std::unique_ptr<UnigramModel> model(new UnigramModel(std::move(options)));
  double score_min = 0;
  bool first = true;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.Has(id)) continue;
    const auto index = static_cast<size_t>(id);
    score_min =
        first ? model->options_.scores[index] : std::min(score_min, model->options_.scores[index]);
    first = false;
    const std::string_view piece = vocabulary.Piece(id);
    if (piece.empty() || !model->options_.matches_text[index]) continue;
    if (!model->trie_.Add(piece, id)) {
      return MakeError(ErrorCode::kDataLoss, "Unigram vocabulary of more than {} bytes",
                       ByteTrie::kNodesMax);
    }
  }
  model->unknown_score_ = score_min - kUnknownPenalty;
  for (int byte = 0; byte < 256; ++byte) {
    model->byte_ids_[byte] = vocabulary.Find(fmt::format("<0x{:02X}>", byte));
  }
  return model;
}

void UnigramModel::EncodeUncached(std::string_view word, std::vector<int32_t>& out) const {
  thread_local std::vector<Best> best;  // best[i]: of the ways to cut the first i bytes
  best.assign(word.size() + 1, {0, 0, kUnreached});
  for (size_t begin = 0; begin < word.size();) {
    const size_t character_end = begin + Utf8Length(static_cast<uint8_t>(word[begin]));
    const double score_here = best[begin].score;
    const auto offer = [&](size_t end, double score, int32_t id) {
      if (best[end].id == kUnreached || score > best[end].score) {
        best[end] = {score, static_cast<uint32_t>(begin), id};
      }
    };
    bool character_known = false;
    ByteTrie::Node node = ByteTrie::kRoot;
    for (size_t at = begin; at < word.size(); ++at) {
      node = trie_.Child(node, static_cast<uint8_t>(word[at]));
      if (node == ByteTrie::kNoNode) break;
      const int32_t id = trie_.Value(node);
      if (id < 0) continue;
      offer(at + 1, score_here + options_.scores[static_cast<size_t>(id)], id);
      character_known = character_known || at + 1 == character_end;
    }
    if (!character_known) offer(character_end, score_here + unknown_score_, kUnknown);
    begin = character_end;
  }
  const size_t first = out.size();
  for (size_t end = word.size(); end > 0;) {
    size_t begin = best[end].begin;
    if (best[end].id != kUnknown) {
      out.push_back(best[end].id);
    } else {
      while (begin > 0 && best[begin].id == kUnknown) begin = best[begin].begin;
      AppendUnknown(word.substr(begin, end - begin), out);
    }
    end = begin;
  }
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
  if (best.capacity() > kScratchKept) std::vector<Best>().swap(best);
}

/// In reverse, as the way back through the word goes.
void UnigramModel::AppendUnknown(std::string_view run, std::vector<int32_t>& out) const {
  const bool as_bytes =
      options_.byte_fallback && std::all_of(run.begin(), run.end(), [&](char byte) {
        return byte_ids_[static_cast<uint8_t>(byte)] >= 0;
      });
  if (as_bytes) {
    for (size_t i = run.size(); i-- > 0;) out.push_back(byte_ids_[static_cast<uint8_t>(run[i])]);
  } else if (options_.unk_id >= 0) {
    out.push_back(options_.unk_id);
  }
}

}  // namespace kvasir::text
