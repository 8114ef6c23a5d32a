// The fast joins equal the definition, tried on random vocabularies.
#include "text/bpe_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/rng.h"
#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

using Ids = std::vector<int32_t>;

std::vector<std::string> Characters(const std::string& text) {
  std::vector<std::string> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8Length(static_cast<uint8_t>(text[at]));
    characters.push_back(text.substr(at, length));
    at += length;
  }
  return characters;
}

/// Joins the pair of lowest rank, leftmost first, until rank() has none: quadratic and plain.
template <typename Rank>
std::vector<std::string> JoinPlainly(std::vector<std::string> symbols, Rank rank) {
  for (;;) {
    size_t best = symbols.size();
    uint32_t best_rank = Merge::kNone;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const uint32_t found = rank(symbols[i], symbols[i + 1]);
      if (found < best_rank) {
        best_rank = found;
        best = i;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

struct Made {
  Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
};

/// Characters of `alphabet` and tokens made by joining two tokens at random.
Made RandomVocabulary(Rng& rng, const std::vector<std::string>& alphabet, int merges_count) {
  Made made;
  std::vector<std::string> pieces = alphabet;
  for (size_t i = 0; i < pieces.size(); ++i) {
    made.vocabulary.Add(static_cast<int32_t>(i), pieces[i]);
  }
  for (int i = 0; i < merges_count; ++i) {
    const std::string left = pieces[rng.Below(pieces.size())];
    const std::string right = pieces[rng.Below(pieces.size())];
    const std::pair pair(left, right);
    if (left.size() + right.size() > 24) continue;
    if (std::find(made.merges.begin(), made.merges.end(), pair) != made.merges.end()) continue;
    made.merges.push_back(pair);
    if (made.vocabulary.Find(left + right) < 0) {
      made.vocabulary.Add(made.vocabulary.size(), left + right);
      pieces.push_back(left + right);
    }
  }
  return made;
}

std::string RandomWord(Rng& rng, const std::vector<std::string>& alphabet, size_t size_max) {
  std::string word;
  for (uint64_t i = rng.Below(size_max) + 1; i > 0; --i)
    word += alphabet[rng.Below(alphabet.size())];
  return word;
}

const std::vector<std::string> kAlphabet = {"a", "b", "c", "▁", "é", "中"};

TEST(BpeModel, EqualsTheDefinitionByMerges) {
  Rng rng(21);
  for (int round = 0; round < 40; ++round) {
    const Made made = RandomVocabulary(rng, kAlphabet, 30);
    std::vector<BpeModel::Pair> pairs;
    std::map<std::pair<std::string, std::string>, uint32_t> ranks;
    for (const auto& merge : made.merges) {
      ranks[merge] = static_cast<uint32_t>(pairs.size());
      pairs.push_back({merge.first, merge.second});
    }
    const auto model = BpeModel::FromMerges(made.vocabulary, {}, pairs);
    ASSERT_TRUE(model.ok()) << model.error().message;
    for (int i = 0; i < 60; ++i) {
      const std::string word = RandomWord(rng, kAlphabet, i % 3 == 0 ? 300 : 30);
      Ids ids;
      (*model)->EncodeWord(word, ids);
      Ids expected;
      for (const std::string& symbol :
           JoinPlainly(Characters(word), [&](const std::string&left, const std::string&right) {
             const auto found = ranks.find({left, right});
             return found == ranks.end() ? Merge::kNone : found->second;
           })) {
        expected.push_back(made.vocabulary.Find(symbol));
      }
      ASSERT_EQ(ids, expected) << word;
    }
  }
}

TEST(BpeModel, EqualsTheDefinitionByRanks) {
  Rng rng(22);
  for (int round = 0; round < 40; ++round) {
    const Made made = RandomVocabulary(rng, kAlphabet, 30);
    std::vector<uint32_t> ranks;
    for (int32_t id = 0; id < made.vocabulary.size(); ++id) {
      ranks.push_back(rng.Chance(0.1) ? Merge::kNone : static_cast<uint32_t>(rng.Below(12)));
    }
    const auto model = BpeModel::FromRanks(made.vocabulary, {}, ranks);
    for (int i = 0; i < 60; ++i) {
      const std::string word = RandomWord(rng, kAlphabet, i % 3 == 0 ? 300 : 30);
      Ids ids;
      model->EncodeWord(word, ids);
      Ids expected;
      for (const std::string& symbol :
           JoinPlainly(Characters(word), [&](const std::string&left, const std::string&right) {
             const int32_t id = made.vocabulary.Find(left + right);
             return id < 0 ? Merge::kNone : ranks[static_cast<size_t>(id)];
           })) {
        expected.push_back(made.vocabulary.Find(symbol));
      }
      ASSERT_EQ(ids, expected) << word;
    }
  }
}

TEST(BpeModel, RefusesMergesOutsideTheVocabulary) {
  Vocabulary vocabulary;
  vocabulary.Add(0, "a");
  vocabulary.Add(1, "b");
  const auto message = [&](const std::vector<BpeModel::Pair>& merges) {
    const auto model = BpeModel::FromMerges(vocabulary, {}, merges);
    return model.ok() ? std::string() : model.error().message;
  };
  EXPECT_EQ(message({{"a", "b"}}),
            "merge 0 joins \"a\" and \"b\", but the result is not in the vocabulary");
  EXPECT_EQ(message({{"x", "b"}}),
            "merge 0 joins \"x\" and \"b\", but the first is not in the vocabulary");
}

}  // namespace
}  // namespace kvasir::text
