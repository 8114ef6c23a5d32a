// Where the numbers of a well-formed GGUF file lie, so that tests can make each of them a lie.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::test {

struct GgufField {
  size_t at = 0;
  size_t bytes = 0;
  std::string name;  ///< "length of key 3", "offset of tensor 2"
};

/// Header counts, lengths of strings, types, array counts, integer values, and each tensor's
/// dimensions, type and offset. Of an array of strings the lengths of the first two and the last.
class GgufFieldWalk {
 public:
  explicit GgufFieldWalk(std::string_view file) : file_(file) { Walk(); }
  [[nodiscard]] const std::vector<GgufField>& fields() const& { return fields_; }
  /// Fields whose name begins with `prefix`.
  [[nodiscard]] std::vector<GgufField> Named(std::string_view prefix) const {
    std::vector<GgufField> found;
    for (const GgufField& field : fields_) {
      if (field.name.starts_with(prefix)) found.push_back(field);
    }
    return found;
  }
  [[nodiscard]] uint64_t tensors_count() const { return tensors_count_; }

 private:
  template <typename T>
  T Take(const std::string& name) {
    T value = 0;
    std::memcpy(&value, file_.data() + at_, sizeof(T));
    if (!name.empty()) fields_.push_back({at_, sizeof(T), name});
    at_ += sizeof(T);
    return value;
  }

  void TakeString(const std::string& name) {
    at_ += Take<uint64_t>(name.empty() ? name : "length of " + name);
  }

  static size_t ScalarBytes(uint32_t type) {
    constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kBytes[type];
  }

  void TakeValue(uint32_t type, const std::string& name) {
    constexpr uint32_t kFloat32 = 6;
    constexpr uint32_t kString = 8;
    if (type == kString) return TakeString(name);
    const bool integer = type != kFloat32 && !name.empty();
    if (integer) fields_.push_back({at_, ScalarBytes(type), name});
    at_ += ScalarBytes(type);
  }

  void TakePair(uint64_t index) {
    constexpr uint32_t kArray = 9;
    const std::string key = std::to_string(index);
    TakeString("key " + key);
    const auto type = Take<uint32_t>("type of value " + key);
    if (type != kArray) return TakeValue(type, "value " + key);
    const auto element = Take<uint32_t>("element type of value " + key);
    const auto count = Take<uint64_t>("count of value " + key);
    for (uint64_t i = 0; i < count; ++i) {
      const bool told = i < 2 || i + 1 == count;
      TakeValue(element, told ? "element " + std::to_string(i) + " of value " + key : "");
    }
  }

  void Walk() {
    at_ = 4;
    Take<uint32_t>("version");
    tensors_count_ = Take<uint64_t>("tensors count");
    const auto pairs = Take<uint64_t>("values count");
    for (uint64_t i = 0; i < pairs; ++i) TakePair(i);
    for (uint64_t i = 0; i < tensors_count_; ++i) {
      const std::string tensor = "tensor " + std::to_string(i);
      TakeString("name of " + tensor);
      const auto dims = Take<uint32_t>("dimensions of " + tensor);
      for (uint32_t d = 0; d < dims; ++d) {
        Take<uint64_t>("dimension " + std::to_string(d) + " of " + tensor);
      }
      Take<uint32_t>("type of " + tensor);
      Take<uint64_t>("offset of " + tensor);
    }
  }

  std::string_view file_;
  size_t at_ = 0;
  uint64_t tensors_count_ = 0;
  std::vector<GgufField> fields_;
};

}  // namespace kvasir::test
