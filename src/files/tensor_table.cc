#include "files/tensor_table.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "files/printable.h"

namespace kvasir::files {
namespace {

// A block format's widest field is a half.
uintptr_t Alignment(DType dtype) {
  const DTypeInfo& info = Info(dtype);
  return info.block_values == 1 ? static_cast<uintptr_t>(info.block_bytes) : 2;
}

}  // namespace

Result<std::unique_ptr<TensorTable>> TensorTable::Make(std::filesystem::path source,
                                                       std::vector<MappedFile> files,
                                                       std::vector<TableEntry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const TableEntry& a, const TableEntry& b) { return a.name < b.name; });
  const auto same =
      std::adjacent_find(entries.begin(), entries.end(),
                         [](const TableEntry& a, const TableEntry& b) { return a.name == b.name; });
  if (same != entries.end()) {
    return MakeError(
        ErrorCode::kDataLoss, "{}: expected each tensor once, tensor '{}' comes again{}",
        PrintablePath(files[same->file].path()), Printable(same->name),
        same->file == same[1].file ? std::string()
                                   : " in " + PrintablePath(files[same[1].file].path().filename()));
  }
  std::unique_ptr<TensorTable> table(new TensorTable);
  table->source_ = std::move(source);
  table->files_ = std::move(files);
  table->names_.reserve(entries.size());
  table->slots_.reserve(entries.size());
  for (TableEntry& entry : entries) {
    const bool aligned =
        reinterpret_cast<uintptr_t>(entry.view.data) % Alignment(entry.view.dtype) == 0;
    table->names_.push_back(std::move(entry.name));
    table->slots_.push_back({std::move(entry.view), entry.file, aligned});
  }
  return table;
}

const TensorTable::Slot* TensorTable::FindSlot(std::string_view name) const {
  const auto at = std::lower_bound(names_.begin(), names_.end(), name);
  if (at == names_.end() || *at != name) return nullptr;
  return &slots_[static_cast<size_t>(at - names_.begin())];
}

const TensorView* TensorTable::Find(std::string_view name) const {
  const Slot* slot = FindSlot(name);
  if (slot == nullptr) return nullptr;
  return slot->aligned ? &slot->view : AlignedCopy(*slot);
}

const TensorView* TensorTable::AlignedCopy(const Slot& slot) const {
  const std::lock_guard lock(copies_mutex_);
  Copy& copy = copies_[&slot];
  if (copy.bytes == nullptr) {
    const auto bytes = static_cast<size_t>(slot.view.bytes);
    copy.bytes = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::memcpy(copy.bytes.get(), slot.view.data, bytes);
    files_[slot.file].Release(slot.view.data, slot.view.bytes);
    copy.view = slot.view;
    copy.view.data = copy.bytes.get();
  }
  return &copy.view;
}

std::string TensorTable::FileOf(std::string_view name) const {
  const Slot* slot = FindSlot(name);
  return PrintablePath(slot == nullptr ? source_ : files_[slot->file].path());
}

void TensorTable::Release(std::span<const std::byte> stored) const {
  for (const MappedFile& file : files_) {
    const std::span<const std::byte> bytes = file.bytes();
    // std::less orders pointers of different objects too.
    if (std::less<>()(stored.data(), bytes.data()) ||
        !std::less<>()(stored.data(), bytes.data() + bytes.size())) {
      continue;
    }
    file.Release(stored.data(), static_cast<int64_t>(stored.size()));
    return;
  }
}

}  // namespace kvasir::files
