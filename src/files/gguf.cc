#include "files/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "files/gguf_part.h"
#include "files/mapped_file.h"
#include "files/printable.h"
#include "files/tensor_table.h"

namespace kvasir::files {
namespace {

namespace fs = std::filesystem;

// The name's number has five digits.
constexpr int64_t kMaxParts = 99'999;

template <typename T>
const T* FindAs(const GgufMetadata& metadata, std::string_view key) {
  const GgufValue* value = metadata.Find(key);
  return value == nullptr ? nullptr : std::get_if<T>(value);
}

template <typename T>
std::optional<T> ValueAs(const GgufMetadata& metadata, std::string_view key) {
  const T* value = FindAs<T>(metadata, key);
  return value == nullptr ? std::nullopt : std::optional<T>(*value);
}

// Refuses a part whose own numbers disagree with its place.
Status CheckPart(const fs::path& path, const GgufMetadata& metadata, int64_t number,
                 int64_t parts_count) {
  const int64_t found_number = metadata.Int("split.no").value_or(-1);
  const int64_t found_count = metadata.Int("split.count").value_or(-1);
  if (found_number == number && found_count == parts_count) return Status::Ok();
  return MakeError(
      ErrorCode::kDataLoss,
      "{}: expected part {} of {} (keys split.no {}, split.count {}), found split.no {}, "
      "split.count {}",
      PrintablePath(path), number + 1, parts_count, number, parts_count, found_number, found_count);
}

Status CheckAllPartsExist(const fs::path& first, std::string_view prefix, int64_t parts_count) {
  int64_t missing_count = 0;
  std::string missing;
  for (int64_t number = 0; number < parts_count; ++number) {
    const fs::path path = first.parent_path() / GgufPartName(prefix, number, parts_count);
    std::error_code ignored;
    if (fs::exists(path, ignored)) continue;
    // Three names say enough.
    if (++missing_count <= 3) {
      missing += (missing.empty() ? "" : ", ") + PrintablePath(path.filename());
    } else if (missing_count == 4) {
      missing += ", ...";
    }
  }
  if (missing_count == 0) return Status::Ok();
  return MakeError(ErrorCode::kDataLoss,
                   "{}: expected {} parts, missing {}: {} (incomplete download?)",
                   PrintablePath(first), parts_count, missing_count, missing);
}

}  // namespace

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto at = values.find(key);
  return at == values.end() ? nullptr : &at->second;
}

std::optional<int64_t> GgufMetadata::Int(std::string_view key) const {
  return ValueAs<int64_t>(*this, key);
}

std::optional<double> GgufMetadata::Float(std::string_view key) const {
  if (const auto integer = Int(key); integer.has_value()) return static_cast<double>(*integer);
  return ValueAs<double>(*this, key);
}

std::optional<bool> GgufMetadata::Bool(std::string_view key) const {
  return ValueAs<bool>(*this, key);
}

std::optional<std::string_view> GgufMetadata::String(std::string_view key) const {
  return ValueAs<std::string_view>(*this, key);
}

const std::vector<std::string_view>* GgufMetadata::Strings(std::string_view key) const {
  return FindAs<std::vector<std::string_view>>(*this, key);
}

const std::vector<int64_t>* GgufMetadata::Ints(std::string_view key) const {
  return FindAs<std::vector<int64_t>>(*this, key);
}

const std::vector<double>* GgufMetadata::Floats(std::string_view key) const {
  return FindAs<std::vector<double>>(*this, key);
}

std::string GgufPartName(std::string_view prefix, int64_t number, int64_t parts_count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number + 1, parts_count);
}

std::optional<GgufPartOfName> ParseGgufPartName(std::string_view file_name) {
  // prefix, then "-00001-of-00003.gguf"
  constexpr size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  constexpr std::string_view kEnd = ".gguf";
  constexpr size_t kSuffix = 1 + kDigits + kOf.size() + kDigits + kEnd.size();
  if (file_name.size() <= kSuffix) return std::nullopt;
  const std::string_view suffix = file_name.substr(file_name.size() - kSuffix);
  const auto number_at = [&](size_t at) -> int64_t {
    int64_t number = -1;
    const char* begin = suffix.data() + at;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, number);
    return error == std::errc() && end == begin + kDigits ? number : -1;
  };
  const int64_t number = number_at(1);
  const int64_t count = number_at(1 + kDigits + kOf.size());
  if (suffix[0] != '-' || suffix.substr(1 + kDigits, kOf.size()) != kOf ||
      !suffix.ends_with(kEnd) || number < 1 || count < 1) {
    return std::nullopt;
  }
  return GgufPartOfName{file_name.substr(0, file_name.size() - kSuffix), number - 1, count};
}

Result<GgufFile> OpenGguf(const fs::path& path) {
  std::vector<MappedFile> files;
  KVASIR_ASSIGN_OR_RETURN(MappedFile first, MappedFile::Open(path));
  KVASIR_ASSIGN_OR_RETURN(GgufPart part, ReadGgufPart(first, 0));
  files.push_back(std::move(first));
  GgufFile gguf;
  gguf.version = part.version;
  gguf.metadata = std::move(part.metadata);
  std::vector<TableEntry> entries = std::move(part.entries);

  const int64_t parts_count = gguf.metadata.Int("split.count").value_or(1);
  if (parts_count > 1) {
    const std::string name = path.filename().string();
    const std::optional<GgufPartOfName> place = ParseGgufPartName(name);
    const int64_t number =
        std::clamp<int64_t>(gguf.metadata.Int("split.no").value_or(-1), -1, kMaxParts);
    if (number != 0 && place.has_value()) {
      return MakeError(
          ErrorCode::kInvalidArgument,
          "{}: expected the first part of a split GGUF, this is part {} of {}: open {}",
          PrintablePath(path), number + 1, parts_count,
          Printable(GgufPartName(place->prefix, 0, place->count)));
    }
    if (parts_count > kMaxParts || !place.has_value() || place->number != 0 ||
        place->count != parts_count) {
      return MakeError(
          ErrorCode::kDataLoss,
          "{}: expected a name that ends in -00001-of-{:05}.gguf, because its metadata "
          "says that it is part {} of {}",
          PrintablePath(path), parts_count, number + 1, parts_count);
    }
    KVASIR_RETURN_IF_ERROR(CheckPart(path, gguf.metadata, 0, parts_count));
    KVASIR_RETURN_IF_ERROR(CheckAllPartsExist(path, place->prefix, parts_count));
    for (int64_t i = 1; i < parts_count; ++i) {
      const fs::path sibling = path.parent_path() / GgufPartName(place->prefix, i, parts_count);
      KVASIR_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(sibling));
      KVASIR_ASSIGN_OR_RETURN(GgufPart next, ReadGgufPart(file, files.size()));
      KVASIR_RETURN_IF_ERROR(CheckPart(sibling, next.metadata, i, parts_count));
      files.push_back(std::move(file));
      std::move(next.entries.begin(), next.entries.end(), std::back_inserter(entries));
    }
    const auto expected = gguf.metadata.Int("split.tensors.count");
    if (expected.has_value() && *expected != static_cast<int64_t>(entries.size())) {
      return MakeError(ErrorCode::kDataLoss, "{}: expected {} tensors in its {} parts, found {}",
                       PrintablePath(path), *expected, parts_count, entries.size());
    }
  }
  KVASIR_ASSIGN_OR_RETURN(gguf.weights,
                          TensorTable::Make(path, std::move(files), std::move(entries)));
  return gguf;
}

}  // namespace kvasir::files
