#include "files/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "files/json.h"
#include "files/printable.h"

namespace kvasir::files {
namespace {

// PyTorch itself stops at 64.
constexpr size_t kMaxDims = 64;
// {name: {field: [numbers]}} has three levels; unknown fields may bring a few of their own.
constexpr int kMaxHeaderDepth = 16;

std::optional<DType> DTypeOfSafetensors(std::string_view name) {
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI8, DType::kI16, DType::kI32,
        DType::kI64, DType::kU8, DType::kBool, DType::kF8E4M3, DType::kF8E5M2}) {
    if (Info(dtype).name == name) return dtype;
  }
  return std::nullopt;
}

// Collects tensors as the parser walks, so that a header of a million tensors needs no tree, and a
// name or field that comes twice is seen.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::string_view header, std::string_view what) : header_(header), what_(what) {}

  [[nodiscard]] Result<std::vector<HeaderTensor>> Take() {
    if (error_.has_value()) return *std::move(error_);
    return std::move(tensors_);
  }

  bool null() override { return Scalar("null"); }
  bool boolean(bool) override { return Scalar("a boolean"); }
  bool number_float(double, const std::string&) override {
    return Scalar("a number that is no integer below 2^63");
  }
  bool binary(binary_t&) override { return Scalar("binary"); }

  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Scalar("a number that is no integer below 2^63");
    }
    return number_integer(static_cast<int64_t>(value));
  }

  bool number_integer(int64_t value) override {
    if (numbers_ == nullptr || depth_ != 3) return Scalar("a number");
    if (value < 0) {
      return Fail("expected no negative number in '{}', came {}", field_, value);
    }
    if (numbers_->size() >= max_numbers_) {
      return Fail("expected at most {} numbers in '{}', came more", max_numbers_, field_);
    }
    numbers_->push_back(value);
    return true;
  }

  bool string(std::string& value) override {
    if (depth_ != 2 || skip_ || field_ != "dtype") return Scalar("a string");
    const std::optional<DType> dtype = DTypeOfSafetensors(value);
    if (!dtype.has_value()) {
      return Fail(
          "has dtype '{}', supported are F32, F16, BF16, F64, I8, I16, I32, I64, U8, BOOL, "
          "F8_E4M3, "
          "F8_E5M2",
          Printable(value, 40));
    }
    tensor_.dtype = *dtype;
    return true;
  }

  bool start_object(size_t) override {
    if (numbers_ != nullptr || (depth_ == 2 && !skip_ && Known(field_))) {
      return Scalar("an object");
    }
    return Deeper();
  }

  bool key(std::string& name) override {
    if (depth_ == 1) {
      skip_ = name == "__metadata__";
      tensor_ = {};
      tensor_.name = std::move(name);
      has_dtype_ = has_shape_ = has_offsets_ = false;
      offsets_.clear();
    } else if (depth_ == 2 && !skip_) {
      field_ = std::move(name);
      bool* seen = field_ == "dtype"          ? &has_dtype_
                   : field_ == "shape"        ? &has_shape_
                   : field_ == "data_offsets" ? &has_offsets_
                                              : nullptr;
      if (seen != nullptr && *seen) return Fail("expected '{}' once, it comes twice", field_);
      if (seen != nullptr) *seen = true;
    }
    return true;
  }

  bool end_object() override {
    --depth_;
    if (depth_ != 1 || skip_) return true;
    if (!has_dtype_ || !has_shape_ || !has_offsets_) {
      return Fail("expected dtype, shape and data_offsets, '{}' is missing", !has_dtype_ ? "dtype"
                                                                             : !has_shape_
                                                                                 ? "shape"
                                                                                 : "data_offsets");
    }
    if (offsets_.size() != 2) {
      return Fail("expected 2 data_offsets, came {}", offsets_.size());
    }
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    tensors_.push_back(std::move(tensor_));
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ == 0) return FailWhole("expected a JSON object in the header, came an array");
    if (depth_ == 1) return Scalar("an array");
    if (depth_ == 2 && !skip_ && Known(field_)) {
      if (field_ == "dtype") return Scalar("an array");
      numbers_ = field_ == "shape" ? &tensor_.shape : &offsets_;
      max_numbers_ = field_ == "shape" ? kMaxDims : 2;
    } else if (numbers_ != nullptr) {
      return Scalar("an array");
    }
    return Deeper();
  }

  bool end_array() override {
    --depth_;
    if (depth_ == 2) numbers_ = nullptr;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    const size_t at = std::min(position > 0 ? position - 1 : 0, header_.size());
    return FailWhole(fmt::format("expected a header of valid JSON, at {} came: {}",
                                 LineAndColumn(header_, at), JsonReason(error)));
  }

 private:
  static bool Known(std::string_view field) {
    return field == "dtype" || field == "shape" || field == "data_offsets";
  }

  bool Deeper() {
    if (++depth_ <= kMaxHeaderDepth) return true;
    return FailWhole(
        fmt::format("expected a header of at most {} levels, came more", kMaxHeaderDepth));
  }

  // A value that is not one of those a field takes: fine where nobody reads it.
  bool Scalar(std::string_view kind) {
    if (depth_ == 0) {
      return FailWhole(fmt::format("expected a JSON object in the header, came {}", kind));
    }
    if (skip_ && depth_ > 1) return true;
    if (depth_ == 1)
      return Fail("expected an object of dtype, shape and data_offsets, came {}", kind);
    if (depth_ == 2 && !Known(field_)) return true;
    if (depth_ > 2 && numbers_ == nullptr) return true;
    return Fail("expected {} in '{}', came {}",
                field_ == "dtype" ? "a string" : "an array of integers", field_, kind);
  }

  template <typename... Args>
  bool Fail(fmt::format_string<Args...> format, Args&&... args) {
    return FailWhole(fmt::format("tensor '{}' {}", Printable(tensor_.name),
                                 fmt::format(format, std::forward<Args>(args)...)));
  }
  bool FailWhole(std::string_view message) {
    if (!error_.has_value()) error_ = MakeError(ErrorCode::kDataLoss, "{}: {}", what_, message);
    return false;
  }

  std::string_view header_;
  std::string_view what_;
  std::optional<Error> error_;
  std::vector<HeaderTensor> tensors_;

  int depth_ = 0;      // 1 inside the header, 2 inside a tensor, 3 inside one of its arrays
  bool skip_ = false;  // inside __metadata__
  HeaderTensor tensor_;
  std::string field_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t>* numbers_ = nullptr;  // where an array that is read goes
  size_t max_numbers_ = 0;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

Status CheckSize(const HeaderTensor& tensor, int64_t data_bytes, std::string_view what) {
  const std::string name = Printable(tensor.name);
  if (tensor.begin > tensor.end) {
    return MakeError(ErrorCode::kDataLoss,
                     "{}: tensor '{}' expected data_offsets in order, came [{}, {}]", what, name,
                     tensor.begin, tensor.end);
  }
  int64_t bytes = Info(tensor.dtype).block_bytes;
  bool overflow = false;
  for (const int64_t dim : tensor.shape) overflow |= __builtin_mul_overflow(bytes, dim, &bytes);
  if (overflow || bytes != tensor.end - tensor.begin) {
    return MakeError(
        ErrorCode::kDataLoss,
        "{}: tensor '{}' of shape {} in {} expected {} bytes, its data_offsets [{}, {}] "
        "hold {}",
        what, name, ToString(tensor.shape), Info(tensor.dtype).name,
        overflow ? std::string("more than 2^63") : std::to_string(bytes), tensor.begin, tensor.end,
        tensor.end - tensor.begin);
  }
  if (tensor.end > data_bytes) {
    return MakeError(ErrorCode::kDataLoss,
                     "{}: tensor '{}' expected bytes [{}, {}), the file has only {} bytes of data: "
                     "cut short (incomplete download?)",
                     what, name, tensor.begin, tensor.end, data_bytes);
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<HeaderTensor>> ParseSafetensorsHeader(std::string_view header,
                                                         int64_t data_bytes,
                                                         std::string_view what) {
  HeaderReader reader(header, what);
  try {
    nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  } catch (const nlohmann::json::exception& error) {
    return MakeError(ErrorCode::kDataLoss, "{}: expected a header of valid JSON, came: {}", what,
                     JsonReason(error));
  }
  KVASIR_ASSIGN_OR_RETURN(std::vector<HeaderTensor> tensors, reader.Take());
  std::sort(tensors.begin(), tensors.end(), [](const HeaderTensor& a, const HeaderTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  int64_t covered = 0;
  const HeaderTensor* previous = nullptr;
  for (const HeaderTensor& tensor : tensors) {
    KVASIR_RETURN_IF_ERROR(CheckSize(tensor, data_bytes, what));
    if (tensor.begin != covered) {
      return MakeError(
          ErrorCode::kDataLoss,
          "{}: tensor '{}' expected to begin at byte {}, where {} ends, but begins at {}: {}", what,
          Printable(tensor.name), covered,
          previous == nullptr ? std::string("the header")
                              : "tensor '" + Printable(previous->name) + "'",
          tensor.begin, tensor.begin < covered ? "they overlap" : "there is a hole");
    }
    covered = tensor.end;
    previous = &tensor;
  }
  if (covered != data_bytes) {
    return MakeError(
        ErrorCode::kDataLoss,
        "{}: expected {} bytes of data after the header, the file has {}: {} belong to "
        "no tensor",
        what, covered, data_bytes, data_bytes - covered);
  }
  return tensors;
}

}  // namespace kvasir::files
