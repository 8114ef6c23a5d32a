#include "files/gguf_part.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/log.h"
#include "files/ggml_types.h"
#include "files/printable.h"

namespace kvasir::files {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kMaxKeyBytes = 65535;        // the format's limit
constexpr uint64_t kMaxTensorNameBytes = 1024;  // ggml's own limit is 64
constexpr uint32_t kMaxDims = 4;                // ggml's limit
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = 1 << 20;
// The least a key with its value, and a tensor's description, can take: their counts are checked
// against the bytes that are left before anything is reserved.
constexpr uint64_t kMinKeyValueBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;
constexpr uint64_t kAnyLength = std::numeric_limits<uint64_t>::max();
// Elements of all arrays together: sixty times the largest vocabulary with its scores, types and
// merges. A widened element takes up to 16 bytes, so metadata never takes more than 1 GiB.
constexpr uint64_t kMaxArrayElements = uint64_t{1} << 26;

enum ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Bytes of one element, for strings the least; 0 for what is no element.
uint64_t ElementBytes(uint32_t type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
      return 2;
    case kUint32:
    case kInt32:
    case kFloat32:
      return 4;
    case kString:
    case kUint64:
    case kInt64:
    case kFloat64:
      return 8;
    default:
      return 0;
  }
}

class Reader {
 public:
  Reader(const MappedFile& file, size_t file_number)
      : file_number_(file_number),
        text_(file.text()),
        data_(file.bytes().data()),
        what_(PrintablePath(file.path())) {}

  Result<GgufPart> Read() {
    uint64_t tensors_count = 0;
    uint64_t values_count = 0;
    KVASIR_RETURN_IF_ERROR(ReadHeader(tensors_count, values_count));
    for (uint64_t i = 0; i < values_count; ++i) {
      item_ = fmt::format("metadata entry {} of {}", i + 1, values_count);
      KVASIR_RETURN_IF_ERROR(ReadKeyValue());
    }
    KVASIR_RETURN_IF_ERROR(ReadAlignment());
    if (tensors_count > Left() / kMinTensorBytes) {
      return Broken(
          "expected {} tensors, the {} bytes left hold at most {}: cut short "
          "(incomplete download?)",
          tensors_count, Left(), Left() / kMinTensorBytes);
    }
    placed_.reserve(tensors_count);
    for (uint64_t i = 0; i < tensors_count; ++i) {
      item_ = fmt::format("tensor {} of {}", i + 1, tensors_count);
      KVASIR_RETURN_IF_ERROR(ReadTensor());
    }
    KVASIR_RETURN_IF_ERROR(PlaceTensors());
    return std::move(part_);
  }

 private:
  struct Placed {
    TableEntry entry;
    int64_t offset = 0;  // from the start of the data section
  };

  [[nodiscard]] uint64_t Left() const { return text_.size() - at_; }

  template <typename... Args>
  Error Broken(fmt::format_string<Args...> format, Args&&... args) const {
    return MakeError(ErrorCode::kDataLoss, "{}: {}", what_,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  template <typename T>
  Status Take(T& value) {
    if (Left() < sizeof(T)) {
      return Broken(
          "expected {} bytes of {} at byte {}, the file ends after {}: cut short "
          "(incomplete download?)",
          sizeof(T), item_, at_, Left());
    }
    std::memcpy(&value, text_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return Status::Ok();
  }

  Status TakeString(std::string_view& value, uint64_t max_bytes, std::string_view kind) {
    uint64_t length = 0;
    KVASIR_RETURN_IF_ERROR(Take(length));
    if (length > max_bytes) {
      return Broken("{}: expected a {} of at most {} bytes, its length says {}", item_, kind,
                    max_bytes, length);
    }
    if (length > Left()) {
      return Broken(
          "{}: expected a {} of {} bytes at byte {}, the file ends after {}: cut short "
          "(incomplete download?)",
          item_, kind, length, at_, Left());
    }
    value = text_.substr(at_, length);
    at_ += length;
    return Status::Ok();
  }

  Status ReadHeader(uint64_t& tensors_count, uint64_t& values_count) {
    item_ = "the header";
    if (!text_.starts_with(kMagic)) {
      return Broken("expected a GGUF file, which begins with 'GGUF', found '{}'",
                    Printable(text_.substr(0, kMagic.size())));
    }
    at_ = kMagic.size();
    uint32_t version = 0;
    KVASIR_RETURN_IF_ERROR(Take(version));
    if ((version & 0xFFFF) == 0 && version != 0) {
      return MakeError(ErrorCode::kUnsupported,
                       "{}: expected a little-endian GGUF, this one is big-endian (version bytes "
                       "{:#010x}): convert the model again for this machine",
                       what_, version);
    }
    if (version != 2 && version != 3) {
      return MakeError(ErrorCode::kUnsupported, "{}: expected GGUF version 2 or 3, found {}{}",
                       what_, version,
                       version == 1 ? ": convert the model again with a current tool" : "");
    }
    part_.version = static_cast<int>(version);
    KVASIR_RETURN_IF_ERROR(Take(tensors_count));
    KVASIR_RETURN_IF_ERROR(Take(values_count));
    if (values_count > Left() / kMinKeyValueBytes) {
      return Broken(
          "expected {} metadata entries, the {} bytes left hold at most {}: cut short "
          "(incomplete download?)",
          values_count, Left(), Left() / kMinKeyValueBytes);
    }
    if (tensors_count > Left() / kMinTensorBytes) {
      return Broken(
          "expected {} tensors, the {} bytes left hold at most {}: cut short "
          "(incomplete download?)",
          tensors_count, Left(), Left() / kMinTensorBytes);
    }
    return Status::Ok();
  }

  Status ReadKeyValue() {
    std::string_view key;
    KVASIR_RETURN_IF_ERROR(TakeString(key, kMaxKeyBytes, "key"));
    item_ = fmt::format("key '{}'", Printable(key));
    uint32_t type = 0;
    KVASIR_RETURN_IF_ERROR(Take(type));
    GgufValue value;
    if (type == kArray) {
      KVASIR_RETURN_IF_ERROR(ReadArray(value));
    } else {
      KVASIR_RETURN_IF_ERROR(ReadScalar(type, value));
    }
    if (!part_.metadata.values.emplace(std::string(key), std::move(value)).second) {
      return Broken("{}: expected each key once, it comes again", item_);
    }
    return Status::Ok();
  }

  template <typename T>
  Status TakeInteger(int64_t& value) {
    T stored = 0;
    KVASIR_RETURN_IF_ERROR(Take(stored));
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (stored > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Broken("{}: expected an integer below 2^63, came {}", item_, stored);
      }
    }
    value = static_cast<int64_t>(stored);  // NOLINT(bugprone-signed-char-misuse): an i8 is a number
    return Status::Ok();
  }

  Status TakeIntegerOf(uint32_t type, int64_t& value) {
    switch (type) {
      case kUint8:
        return TakeInteger<uint8_t>(value);
      case kInt8:
        return TakeInteger<int8_t>(value);
      case kUint16:
        return TakeInteger<uint16_t>(value);
      case kInt16:
        return TakeInteger<int16_t>(value);
      case kUint32:
        return TakeInteger<uint32_t>(value);
      case kInt32:
        return TakeInteger<int32_t>(value);
      case kUint64:
        return TakeInteger<uint64_t>(value);
      default:
        return TakeInteger<int64_t>(value);
    }
  }

  Status TakeFloatOf(uint32_t type, double& value) {
    if (type == kFloat64) return Take(value);
    float narrow = 0;
    KVASIR_RETURN_IF_ERROR(Take(narrow));
    value = static_cast<double>(narrow);
    return Status::Ok();
  }

  Status TakeBool(bool& value) {
    uint8_t stored = 0;
    KVASIR_RETURN_IF_ERROR(Take(stored));
    if (stored > 1) return Broken("{}: expected a boolean of 0 or 1, came {}", item_, stored);
    value = stored == 1;
    return Status::Ok();
  }

  Error UnknownType(uint32_t type) const {
    return Broken("{}: expected a value type from 0 to 12, came {}", item_, type);
  }

  Status ReadScalar(uint32_t type, GgufValue& value) {
    if (ElementBytes(type) == 0) return UnknownType(type);
    if (type == kBool) return TakeBool(value.emplace<bool>());
    if (type == kString) {
      return TakeString(value.emplace<std::string_view>(), kAnyLength, "string");
    }
    if (type == kFloat32 || type == kFloat64) return TakeFloatOf(type, value.emplace<double>());
    return TakeIntegerOf(type, value.emplace<int64_t>());
  }

  // One array, element by element: take(element) reads one.
  template <typename T, typename TakeElement>
  Status ReadElements(uint64_t count, GgufValue& value, TakeElement&& take) {
    auto& elements = value.emplace<std::vector<T>>();
    elements.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      T element{};
      KVASIR_RETURN_IF_ERROR(take(element));
      elements.push_back(element);
    }
    return Status::Ok();
  }

  Status ReadArray(GgufValue& value) {
    uint32_t type = 0;
    uint64_t count = 0;
    KVASIR_RETURN_IF_ERROR(Take(type));
    KVASIR_RETURN_IF_ERROR(Take(count));
    if (type == kArray) {
      return MakeError(ErrorCode::kUnsupported,
                       "{}: {}: expected an array of plain values, came an array of arrays", what_,
                       item_);
    }
    const uint64_t element_bytes = ElementBytes(type);
    if (element_bytes == 0) return UnknownType(type);
    if (count > Left() / element_bytes) {
      return Broken(
          "{}: expected an array of {} elements, the {} bytes left hold at most {}: cut short "
          "(incomplete download?)",
          item_, count, Left(), Left() / element_bytes);
    }
    if (count > kMaxArrayElements - array_elements_) {
      return Broken("{}: expected at most {} array elements in all metadata, came more", item_,
                    kMaxArrayElements);
    }
    array_elements_ += count;
    if (type == kBool) {
      return ReadElements<bool>(count, value, [&](bool& element) { return TakeBool(element); });
    }
    if (type == kString) {
      return ReadElements<std::string_view>(count, value, [&](std::string_view& element) {
        return TakeString(element, kAnyLength, "string");
      });
    }
    if (type == kFloat32 || type == kFloat64) {
      return ReadElements<double>(count, value,
                                  [&](double& element) { return TakeFloatOf(type, element); });
    }
    return ReadElements<int64_t>(count, value,
                                 [&](int64_t& element) { return TakeIntegerOf(type, element); });
  }

  Status ReadAlignment() {
    const GgufValue* value = part_.metadata.Find("general.alignment");
    if (value == nullptr) return Status::Ok();
    const auto* alignment = std::get_if<int64_t>(value);
    if (alignment == nullptr) {
      return Broken("key 'general.alignment': expected an integer, came another kind");
    }
    if (*alignment < 1 || *alignment > kMaxAlignment ||
        !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
      return Broken("key 'general.alignment': expected a power of two up to {}, came {}",
                    kMaxAlignment, *alignment);
    }
    alignment_ = *alignment;
    return Status::Ok();
  }

  Status ReadTensor() {
    std::string_view name;
    KVASIR_RETURN_IF_ERROR(TakeString(name, kMaxTensorNameBytes, "tensor name"));
    item_ = fmt::format("tensor '{}'", Printable(name));
    uint32_t dims_count = 0;
    KVASIR_RETURN_IF_ERROR(Take(dims_count));
    if (dims_count < 1 || dims_count > kMaxDims) {
      return Broken("{}: expected 1 to {} dimensions, came {}", item_, kMaxDims, dims_count);
    }
    Shape shape(dims_count);
    for (uint32_t i = 0; i < dims_count; ++i) {
      uint64_t dim = 0;
      KVASIR_RETURN_IF_ERROR(Take(dim));
      if (dim == 0 || dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Broken("{}: expected a dimension from 1 to 2^63 - 1, came {}", item_, dim);
      }
      // ggml counts from the innermost dimension.
      shape[dims_count - 1 - i] = static_cast<int64_t>(dim);
    }
    uint32_t type = 0;
    uint64_t offset = 0;
    KVASIR_RETURN_IF_ERROR(Take(type));
    KVASIR_RETURN_IF_ERROR(Take(offset));
    const std::optional<DType> dtype = DTypeOfGgml(type);
    if (!dtype.has_value()) {
      const std::string_view known = GgmlTypeName(type);
      return MakeError(ErrorCode::kUnsupported, "{}: {}: has type {}{}, supported are {}", what_,
                       item_, type, known.empty() ? "" : fmt::format(" ({})", known),
                       SupportedGgmlTypes());
    }
    KVASIR_ASSIGN_OR_RETURN(const int64_t bytes, TensorBytes(*dtype, shape));
    if (offset % static_cast<uint64_t>(alignment_) != 0) {
      return Broken("{}: expected an offset that is a multiple of {}, came {}", item_, alignment_,
                    offset);
    }
    if (offset > text_.size()) {
      return Broken(
          "{}: expected its data at offset {}, the file has {} bytes in all: cut short "
          "(incomplete download?)",
          item_, offset, text_.size());
    }
    Placed placed;
    placed.entry = {std::string(name), {*dtype, std::move(shape), nullptr, bytes}, file_number_};
    placed.offset = static_cast<int64_t>(offset);
    placed_.push_back(std::move(placed));
    return Status::Ok();
  }

  Result<int64_t> TensorBytes(DType dtype, const Shape& shape) const {
    const DTypeInfo& info = Info(dtype);
    if (shape.back() % info.block_values != 0) {
      return Broken("{}: of shape {} in {}: expected rows of a multiple of {} values, came {}",
                    item_, ToString(shape), info.name, info.block_values, shape.back());
    }
    int64_t bytes = info.block_bytes;
    bool overflow = __builtin_mul_overflow(bytes, shape.back() / info.block_values, &bytes);
    for (size_t i = 0; i + 1 < shape.size(); ++i) {
      overflow |= __builtin_mul_overflow(bytes, shape[i], &bytes);
    }
    // Compared with the file before placement too, so that sums of offset and size cannot wrap.
    if (overflow || bytes > static_cast<int64_t>(text_.size())) {
      return Broken(
          "{}: of shape {} in {} expected {} bytes, the file has {} in all: cut short "
          "(incomplete download?)",
          item_, ToString(shape), info.name,
          overflow ? std::string("more than 2^63") : std::to_string(bytes), text_.size());
    }
    return bytes;
  }

  // Data starts after the table, aligned; tensors must lie in it, one after the other.
  Status PlaceTensors() {
    if (placed_.empty()) return Status::Ok();
    const auto file_bytes = static_cast<int64_t>(text_.size());
    const int64_t data_start = RoundUp(static_cast<int64_t>(at_));
    std::sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) {
      return std::pair(a.offset, a.entry.view.bytes) < std::pair(b.offset, b.entry.view.bytes);
    });
    int64_t covered = 0;
    const std::string* previous = nullptr;
    part_.entries.reserve(placed_.size());
    for (Placed& placed : placed_) {
      TensorView& view = placed.entry.view;
      const int64_t end = placed.offset + view.bytes;
      if (data_start + end > file_bytes) {
        return Broken(
            "tensor '{}': of shape {} in {} expected bytes [{}, {}) of the data section, "
            "the file has {} bytes of data: cut short (incomplete download?)",
            Printable(placed.entry.name), ToString(view.shape), Info(view.dtype).name,
            placed.offset, end, std::max<int64_t>(0, file_bytes - data_start));
      }
      // ggml writes one tensor after the other, each padded to the alignment, and reads no others.
      if (placed.offset != RoundUp(covered)) {
        return Broken(
            "tensor '{}': expected to begin at byte {}, where {} ends, but begins at {}: {}",
            Printable(placed.entry.name), RoundUp(covered),
            previous == nullptr ? std::string("the table")
                                : "tensor '" + Printable(*previous) + "'",
            placed.offset, placed.offset < covered ? "they overlap" : "there is a hole");
      }
      view.data = data_ + data_start + placed.offset;
      covered = end;
      part_.entries.push_back(std::move(placed.entry));
      previous = &part_.entries.back().name;
    }
    if (const int64_t surplus = file_bytes - RoundUp(data_start + covered); surplus > 0) {
      LogWarning("{}: {} bytes after the last tensor belong to none", what_, surplus);
    }
    return Status::Ok();
  }

  [[nodiscard]] int64_t RoundUp(int64_t at) const {
    return (at + alignment_ - 1) / alignment_ * alignment_;
  }

  size_t file_number_;
  std::string_view text_;
  const std::byte* data_;
  std::string what_;
  size_t at_ = 0;
  std::string item_;  // what is being read, for messages
  uint64_t array_elements_ = 0;
  int64_t alignment_ = kDefaultAlignment;
  std::vector<Placed> placed_;
  GgufPart part_;
};

}  // namespace

Result<GgufPart> ReadGgufPart(const MappedFile& file, size_t file_number) {
  return Reader(file, file_number).Read();
}

}  // namespace kvasir::files
