// The pieces of a vocabulary: id to string and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir::text {

/// Ids above this are refused: the largest vocabularies in use have 262,144 tokens.
inline constexpr int64_t kTokenIdMax = (1 << 24) - 1;
inline constexpr size_t kPieceBytesMax = 1 << 16;

/// Strings by id in one block of memory. Ids without a string have none.
class StringsById {
 public:
  /// Later strings of the same id replace earlier ones. 0 <= id <= kTokenIdMax.
  void Set(int32_t id, std::string_view text);
  void Reserve(size_t ids_count, size_t bytes);

  [[nodiscard]] int size() const { return static_cast<int>(slots_.size()); }
  [[nodiscard]] bool Has(int32_t id) const {
    return id >= 0 && id < size() && slots_[static_cast<size_t>(id)].begin != kNone;
  }
  /// Empty where the id has none.
  [[nodiscard]] std::string_view Get(int32_t id) const {
    if (!Has(id)) return {};
    const Slot& slot = slots_[static_cast<size_t>(id)];
    return std::string_view(bytes_).substr(slot.begin, slot.size);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Slot {
    uint32_t begin = kNone;
    uint32_t size = 0;
  };
  std::vector<Slot> slots_;
  std::string bytes_;
};

/// Pieces as stored in the file, with the way back from string to id. Filled once, then immutable.
class Vocabulary {
 public:
  void Reserve(size_t pieces_count, size_t bytes);
  /// A string that has an id keeps the first one for look-ups. KVASIR_CHECKs the id's range.
  void Add(int32_t id, std::string_view piece);
  /// Takes the piece of `id` out of look-ups by string; Piece() still has it.
  void Hide(int32_t id);

  /// One more than the largest id.
  [[nodiscard]] int size() const { return pieces_.size(); }
  [[nodiscard]] bool Has(int32_t id) const { return pieces_.Has(id); }
  [[nodiscard]] std::string_view Piece(int32_t id) const { return pieces_.Get(id); }
  /// -1 where there is none.
  [[nodiscard]] int32_t Find(std::string_view piece) const;
  /// Find(a + b) without building it.
  [[nodiscard]] int32_t FindJoined(std::string_view a, std::string_view b) const;
  /// Bytes of the longest piece.
  [[nodiscard]] size_t piece_bytes_max() const { return piece_bytes_max_; }

 private:
  static constexpr int32_t kEmpty = -1;
  static constexpr int32_t kHidden = -2;
  struct Slot {
    uint32_t tag = 0;  ///< upper half of the hash
    int32_t id = kEmpty;
  };

  void Grow(size_t slots_count);
  [[nodiscard]] size_t Locate(std::string_view piece) const;

  StringsById pieces_;
  std::vector<Slot> slots_;
  size_t used_ = 0;
  size_t piece_bytes_max_ = 0;
};

}  // namespace kvasir::text
