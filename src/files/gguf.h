// GGUF v2/v3: header, metadata, tensors. Source: the GGUF specification of ggml.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "files/weights.h"

namespace kvasir::files {

/// One metadata value. Integers of all widths are widened to int64 (uint64 above 2^63-1 is
/// refused), both floats to double. Arrays are of one kind. Strings are views into the mapped file.
using GgufValue =
    std::variant<bool, int64_t, double, std::string_view, std::vector<bool>, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string_view>>;

/// Metadata of a GGUF file (the first, where it is split). Typed look-ups give nullopt where the
/// key is absent or of another kind.
class GgufMetadata {
 public:
  [[nodiscard]] const GgufValue* Find(std::string_view key) const;
  [[nodiscard]] std::optional<int64_t> Int(std::string_view key) const;
  [[nodiscard]] std::optional<double> Float(std::string_view key) const;  ///< also from an integer
  [[nodiscard]] std::optional<bool> Bool(std::string_view key) const;
  [[nodiscard]] std::optional<std::string_view> String(std::string_view key) const;
  [[nodiscard]] const std::vector<std::string_view>* Strings(std::string_view key) const;
  [[nodiscard]] const std::vector<int64_t>* Ints(std::string_view key) const;
  [[nodiscard]] const std::vector<double>* Floats(std::string_view key) const;

  std::map<std::string, GgufValue, std::less<>> values;
};

struct GgufFile {
  int version = 0;
  GgufMetadata metadata;
  std::unique_ptr<Weights> weights;  ///< owns the mapping that metadata's strings point into
};

/// The place of one file of a split GGUF, as its name gives it: "m-00002-of-00003.gguf".
struct GgufPartOfName {
  std::string_view prefix;  ///< "m"
  int64_t number = 0;       ///< from 0: here 1
  int64_t count = 0;        ///< 3
};
/// Nullopt where the name is not of that form.
[[nodiscard]] std::optional<GgufPartOfName> ParseGgufPartName(std::string_view file_name);
/// The name of part `number` (from 0) of `parts_count`.
[[nodiscard]] std::string GgufPartName(std::string_view prefix, int64_t number,
                                       int64_t parts_count);

/// Opens `path` and, where metadata says that it is split, its siblings. Checks every length and
/// offset before use. Nested arrays, version 1, big-endian files and unknown tensor types are
/// refused.
[[nodiscard]] Result<GgufFile> OpenGguf(const std::filesystem::path& path);

}  // namespace kvasir::files
