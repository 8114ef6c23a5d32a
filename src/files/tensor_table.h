// The Weights of every file format: mapped files and a sorted table of the tensors in them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "files/mapped_file.h"
#include "files/weights.h"

namespace kvasir::files {

/// One tensor as a parser found it; `view.data` points into mapped file number `file`.
struct TableEntry {
  std::string name;
  TensorView view;
  size_t file = 0;
};

class TensorTable final : public Weights {
 public:
  /// `source` names the whole in messages. Refuses two tensors of one name.
  [[nodiscard]] static Result<std::unique_ptr<TensorTable>> Make(std::filesystem::path source,
                                                                 std::vector<MappedFile> files,
                                                                 std::vector<TableEntry> entries);

  [[nodiscard]] const std::vector<std::string>& names() const override { return names_; }
  [[nodiscard]] const TensorView* Find(std::string_view name) const override;
  [[nodiscard]] std::string FileOf(std::string_view name) const override;
  void Release(std::span<const std::byte> stored) const override;

 private:
  struct Slot {
    TensorView view;
    size_t file = 0;
    bool aligned = true;
  };

  TensorTable() = default;
  [[nodiscard]] const Slot* FindSlot(std::string_view name) const;
  [[nodiscard]] const TensorView* AlignedCopy(const Slot& slot) const;

  std::filesystem::path source_;
  std::vector<MappedFile> files_;
  std::vector<std::string> names_;  ///< sorted
  std::vector<Slot> slots_;         ///< as names_

  // A format may place numbers at odd addresses, where a kernel must not read them. Such tensors
  // (rare: writers pad) are copied when they are first asked for.
  struct Copy {
    TensorView view;
    std::unique_ptr<std::byte[]> bytes;
  };
  mutable std::mutex copies_mutex_;
  mutable std::map<const Slot*, Copy> copies_;
};

}  // namespace kvasir::files
