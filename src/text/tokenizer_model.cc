#include "text/tokenizer_model.h"

#include <atomic>
#include <cstring>
#include <memory>

#include "text/tokenizer_hash.h"

namespace kvasir::text {
namespace {

// One cache line an entry: most words of a text fit, and a hit touches one line.
struct alignas(64) Entry {
  static constexpr size_t kKeyBytesMax = 26;
  static constexpr size_t kIdsMax = 8;

  uint32_t owner = 0;  // 0: empty
  uint8_t key_size = 0;
  uint8_t ids_count = 0;
  char key[kKeyBytesMax];
  int32_t ids[kIdsMax];
};
static_assert(sizeof(Entry) == 64);

// 16384 entries x 64 bytes = 1 MiB a thread that encodes: as much as a core's L2 holds. A new word
// takes the place of the one that has the same slot.
constexpr size_t kEntriesCount = 16384;

Entry* ThreadCache() {
  thread_local const std::unique_ptr<Entry[]> cache = std::make_unique<Entry[]>(kEntriesCount);
  return cache.get();
}

std::atomic<uint32_t> next_owner{1};

}  // namespace

TokenizerModel::TokenizerModel() : cache_owner_(next_owner.fetch_add(1)) {}

void TokenizerModel::EncodeWord(std::string_view word, std::vector<int32_t>& out) const {
  if (word.size() > Entry::kKeyBytesMax) {
    EncodeUncached(word, out);
    return;
  }
  const uint64_t hash = HashBytes(word) ^ cache_owner_;
  Entry& entry = ThreadCache()[hash & (kEntriesCount - 1)];
  if (entry.owner == cache_owner_ && entry.key_size == word.size() &&
      std::memcmp(entry.key, word.data(), word.size()) == 0) {
    out.insert(out.end(), entry.ids, entry.ids + entry.ids_count);
    return;
  }
  const size_t size_before = out.size();
  EncodeUncached(word, out);
  const size_t ids_count = out.size() - size_before;
  if (ids_count > Entry::kIdsMax) return;
  entry.owner = cache_owner_;
  entry.key_size = static_cast<uint8_t>(word.size());
  entry.ids_count = static_cast<uint8_t>(ids_count);
  std::memcpy(entry.key, word.data(), word.size());
  std::memcpy(entry.ids, out.data() + size_before, ids_count * sizeof(int32_t));
}

}  // namespace kvasir::text
