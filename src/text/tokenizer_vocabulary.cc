#include "text/tokenizer_vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "text/tokenizer_hash.h"

namespace kvasir::text {
namespace {

constexpr size_t kSlotsMin = 64;

uint32_t Tag(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

}  // namespace

void StringsById::Set(int32_t id, std::string_view text) {
  KVASIR_CHECK(id >= 0 && id <= kTokenIdMax, "token id {}", id);
  const auto index = static_cast<size_t>(id);
  if (index >= slots_.size()) slots_.resize(index + 1);
  KVASIR_CHECK(bytes_.size() + text.size() < kNone, "vocabulary of more than 4 GiB");
  slots_[index] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(text.size())};
  bytes_.append(text);
}

void StringsById::Reserve(size_t ids_count, size_t bytes) {
  slots_.reserve(ids_count);
  bytes_.reserve(bytes);
}

void Vocabulary::Reserve(size_t pieces_count, size_t bytes) {
  pieces_.Reserve(pieces_count, bytes);
  Grow(std::bit_ceil(pieces_count * 2 + kSlotsMin));
}

void Vocabulary::Add(int32_t id, std::string_view piece) {
  if (slots_.size() < (used_ + 1) * 2) Grow(std::max(kSlotsMin, slots_.size() * 2));
  pieces_.Set(id, piece);
  piece_bytes_max_ = std::max(piece_bytes_max_, piece.size());
  const size_t at = Locate(piece);
  if (slots_[at].id != kEmpty) return;
  slots_[at] = {Tag(HashBytes(piece)), id};
  ++used_;
}

void Vocabulary::Hide(int32_t id) {
  const size_t at = slots_.empty() ? 0 : Locate(pieces_.Get(id));
  if (!slots_.empty() && slots_[at].id == id) slots_[at].id = kHidden;
}

int32_t Vocabulary::Find(std::string_view piece) const {
  if (slots_.empty() || piece.size() > piece_bytes_max_) return -1;
  return std::max(slots_[Locate(piece)].id, -1);
}

int32_t Vocabulary::FindJoined(std::string_view a, std::string_view b) const {
  constexpr size_t kOnStack = 256;
  const size_t size = a.size() + b.size();
  if (size > kOnStack) return Find(std::string(a).append(b));
  char joined[kOnStack];
  std::memcpy(joined, a.data(), a.size());
  std::memcpy(joined + a.size(), b.data(), b.size());
  return Find({joined, size});
}

void Vocabulary::Grow(size_t slots_count) {
  if (slots_count <= slots_.size()) return;
  std::vector<Slot> old(slots_count);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id >= 0) slots_[Locate(pieces_.Get(slot.id))] = slot;
  }
}

/// The slot that holds `piece`, or the empty one where it would go.
size_t Vocabulary::Locate(std::string_view piece) const {
  const uint64_t hash = HashBytes(piece);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.id == kEmpty) return at;
    if (slot.id >= 0 && slot.tag == Tag(hash) && pieces_.Get(slot.id) == piece) return at;
  }
}

}  // namespace kvasir::text
