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

/// One metadata value. Integers of all widths are widened to int64 (uint64 above 2^63-1 is refused),
/// both floats to double. Arrays are of one kind. Strings are views into the mapped file.
using GgufValue = std::variant<bool, int64_t, double, std::string_view, std::vector<bool>,
                               std::vector<int64_t>, std::vector<double>, std::vector<std::string_view>>;

/// Metadata of a GGUF file (the first, where it is split). Typed look-ups give nullopt where the key
/// is absent or of another kind.
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

/// Opens `path` and, where metadata says that it is split, its siblings. Checks every length and
/// offset before use.
[[nodiscard]] Result<GgufFile> OpenGguf(const std::filesystem::path& path);

}  // namespace kvasir::files
