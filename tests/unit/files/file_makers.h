// Byte writers for crafted files.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "support/temp_folder.h"

namespace kvasir::files {

using test::TempFolder;

/// Where a length, count, offset or type lies in a crafted file.
struct Field {
  size_t at = 0;
  size_t bytes = 0;
  std::string name;
};

/// Little-endian bytes, with the places of the fields that a broken file may lie in.
class ByteWriter {
 public:
  template <typename T>
  ByteWriter& Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  /// A number that a corruption test sets to other values.
  template <typename T>
  ByteWriter& Marked(T value, std::string name) {
    fields_.push_back({bytes_.size(), sizeof(T), std::move(name)});
    return Number(value);
  }
  ByteWriter& Raw(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  /// A GGUF string: its length, then its bytes.
  ByteWriter& String(std::string_view text) {
    return Marked<uint64_t>(text.size(), "length of " + std::string(text)).Raw(text);
  }
  /// Key and type of one GGUF metadata entry; its value follows.
  ByteWriter& Key(std::string_view key, uint32_t type) {
    return String(key).Marked(type, "type of " + std::string(key));
  }
  /// One entry of GGUF's tensor table; `ne` as GGUF has it, innermost first.
  ByteWriter& Tensor(std::string_view name, const std::vector<uint64_t>& ne, uint32_t type,
                     uint64_t offset) {
    String(name).Marked(static_cast<uint32_t>(ne.size()), "dimensions of " + std::string(name));
    for (const uint64_t dim : ne) Marked(dim, "dimension of " + std::string(name));
    return Marked(type, "type of " + std::string(name))
        .Marked(offset, "offset of " + std::string(name));
  }
  ByteWriter& Pad(size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  ByteWriter& GgufHeader(uint64_t tensors_count, uint64_t values_count, uint32_t version = 3) {
    return Raw("GGUF")
        .Marked(version, "version")
        .Marked(tensors_count, "tensors count")
        .Marked(values_count, "values count");
  }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] const std::vector<Field>& fields() const { return fields_; }

 private:
  std::string bytes_;
  std::vector<Field> fields_;
};

/// A safetensors file of `header` and `data`.
inline std::string Safetensors(std::string_view header, std::string_view data) {
  return ByteWriter().Number<uint64_t>(header.size()).Raw(header).Raw(data).bytes();
}

/// Whether a message is one line for people: no control character, not absurdly long.
inline bool IsOneLine(const std::string& message) {
  if (message.empty() || message.size() > 8192) return false;
  for (const char c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  }
  return true;
}

/// Fails unless `result` is an error of one line that holds each of `parts`.
template <typename R>
void ExpectError(const R& result, const std::vector<std::string>& parts) {
  ASSERT_FALSE(result.ok()) << "expected an error with: " << ::testing::PrintToString(parts);
  const std::string& message = result.error().message;
  EXPECT_TRUE(IsOneLine(message)) << message;
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
  }
}

}  // namespace kvasir::files
