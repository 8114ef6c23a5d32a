// Look-ups that byte-pair encoding makes for every pair of neighbours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvasir::text {

/// What joining two neighbours gives. Lower ranks are joined first.
struct Merge {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t rank = kNone;  ///< kNone: they are not joined
  int32_t id = -1;        ///< the token that both become
};

/// (left id, right id) → Merge. Filled once, then read by any thread.
class MergeTable {
 public:
  void Reserve(size_t merges_count);
  /// A pair that is there already gets the new rank.
  void Set(int32_t left, int32_t right, Merge merge);
  [[nodiscard]] Merge Find(int32_t left, int32_t right) const {
    if (slots_.empty()) return {};
    const size_t mask = slots_.size() - 1;
    for (size_t at = Hash(left, right) & mask;; at = (at + 1) & mask) {
      const Slot& slot = slots_[at];
      if (slot.left == left && slot.right == right) return slot.merge;
      if (slot.left == kEmpty) return {};
    }
  }

 private:
  static constexpr int32_t kEmpty = -1;
  struct Slot {
    int32_t left = kEmpty;
    int32_t right = kEmpty;
    Merge merge;
  };

  [[nodiscard]] static size_t Hash(int32_t left, int32_t right) {
    const uint64_t key =
        static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    const uint64_t mixed = key * 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(mixed ^ mixed >> 32);
  }

  std::vector<Slot> slots_;
  size_t used_ = 0;
};

/// Which characters stand side by side inside any token: where two do not, no token lies across
/// them, and a text may be cut there without a change to its tokens. Rarely says yes for no.
class NeighbourFilter {
 public:
  NeighbourFilter() : ascii_(128 * 128 / 64), rest_(kBits / 64) {}
  void Add(uint32_t left, uint32_t right) {
    uint64_t bit = 0;
    std::vector<uint64_t>& words = Find(left, right, bit);
    words[bit / 64] |= uint64_t{1} << bit % 64;
  }
  [[nodiscard]] bool MayTouch(uint32_t left, uint32_t right) const {
    uint64_t bit = 0;
    const std::vector<uint64_t>& words = const_cast<NeighbourFilter*>(this)->Find(left, right, bit);
    return (words[bit / 64] >> bit % 64 & 1) != 0;
  }

 private:
  static constexpr uint64_t kBits = 1 << 21;  // 256 KiB

  std::vector<uint64_t>& Find(uint32_t left, uint32_t right, uint64_t& bit) {
    if ((left | right) < 128) {
      bit = left * 128 + right;
      return ascii_;
    }
    const uint64_t mixed = (static_cast<uint64_t>(left) << 32 | right) * 0x9E3779B97F4A7C15ull;
    bit = mixed >> 43;  // the upper 21 bits
    return rest_;
  }

  std::vector<uint64_t> ascii_;
  std::vector<uint64_t> rest_;
};

/// Code point → token id, in pages.
class CharIds {
 public:
  CharIds() : pages_(0x110000 >> 8, -1) {}
  void Set(uint32_t code_point, int32_t id);
  /// -1 where the character is not a token.
  [[nodiscard]] int32_t Get(uint32_t code_point) const {
    const int32_t page = pages_[code_point >> 8];
    return page < 0 ? -1 : ids_[static_cast<size_t>(page) + (code_point & 0xFF)];
  }

 private:
  std::vector<int32_t> pages_;  ///< where the page begins in ids_
  std::vector<int32_t> ids_;
};

}  // namespace kvasir::text
