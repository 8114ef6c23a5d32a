#include "plan/number_format.h"

#include <algorithm>
#include <charconv>

#include "base/strings.h"
#include "files/printable.h"
#include "tensor/dtype.h"

namespace kvasir::plan {
namespace {

constexpr int64_t kGroupLeast = 16;
constexpr int64_t kGroupMost = 1024;

NumberFormat Plain(std::string_view name, int64_t bytes, Math math) {
  NumberFormat format;
  format.name = name;
  format.block_bytes = bytes;
  format.math = math;
  return format;
}

NumberFormat Blocks(std::string_view name, int64_t values, int64_t bytes, Math math) {
  NumberFormat format = Plain(name, bytes, math);
  format.block_values = values;
  return format;
}

// GGUF's types that this build does not compute on; block sizes are those of the GGUF
// specification.
constexpr struct {
  std::string_view name;
  int64_t values;
  int64_t bytes;
} kOtherGgufTypes[] = {
    {"IQ1_S", 256, 50}, {"IQ1_M", 256, 56},   {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74},
    {"IQ2_S", 256, 82}, {"IQ3_XXS", 256, 98}, {"IQ3_S", 256, 110},  {"IQ4_XS", 256, 136},
    {"TQ1_0", 256, 54}, {"TQ2_0", 256, 66},
};

// Types of blocks that are multiplied as bytes with sums in integers.
const std::vector<NumberFormat>& GgufFormats() {
  static const std::vector<NumberFormat> formats = [] {
    std::vector<NumberFormat> all;
    for (const DType dtype :
         {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K,
          DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL}) {
      const DTypeInfo& info = Info(dtype);
      all.push_back(Blocks(info.name, info.block_values, info.block_bytes, Math::kI8));
    }
    for (const auto& type : kOtherGgufTypes) {
      all.push_back(Blocks(type.name, type.values, type.bytes, Math::kI8));
    }
    return all;
  }();
  return formats;
}

// "int4", "int4-g128".
Result<NumberFormat> ParseInt4(std::string_view name) {
  int64_t group = 128;
  constexpr std::string_view kStart = "int4-g";
  if (name != "int4") {
    const std::string_view digits = name.substr(kStart.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), group);
    if (error != std::errc() || end != digits.data() + digits.size() || group < kGroupLeast ||
        group > kGroupMost || group % 2 != 0) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "expected an even group of {} to {} values, such as int4-g128, got '{}'",
                       kGroupLeast, kGroupMost, name);
    }
  }
  // Codes of 4 bits and a scale of 16 bits a group.
  return Blocks(fmt::format("int4-g{}", group), group, group / 2 + 2, Math::kBF16);
}

}  // namespace

std::string_view MathName(Math math) {
  switch (math) {
    case Math::kF32:
      return "f32";
    case Math::kBF16:
      return "bf16";
    case Math::kF8:
      return "fp8";
    case Math::kI8:
      return "int8";
    case Math::kF4:
      return "fp4";
  }
  return "";
}

int64_t NumberFormat::Bytes(int64_t rows, int64_t cols) const {
  int64_t bytes = rows * ((cols + block_values - 1) / block_values) * block_bytes;
  if (tile_rows > 0) {
    const int64_t across = tile_cols > 0 ? (cols + tile_cols - 1) / tile_cols : 1;
    bytes += (rows + tile_rows - 1) / tile_rows * across * tile_bytes;
  }
  return bytes;
}

Result<NumberFormat> ParseWeightFormat(std::string_view name) {
  const std::string lower = LowerCase(name);
  if (lower == "f32") return Plain(lower, 4, Math::kF32);
  if (lower == "f16" || lower == "bf16") return Plain(lower, 2, Math::kBF16);
  if (lower == "fp8") {
    NumberFormat format = Plain(lower, 1, Math::kF8);
    format.tile_rows = format.tile_cols = 128;
    format.tile_bytes = 4;
    return format;
  }
  if (lower == "int8") {
    NumberFormat format = Plain(lower, 1, Math::kI8);
    format.tile_rows = 1;
    format.tile_bytes = 4;
    return format;
  }
  if (lower == "int4" || lower.starts_with("int4-g")) return ParseInt4(lower);
  if (lower == "mxfp4") return Blocks(lower, 32, 17, Math::kF4);
  if (lower == "nvfp4") return Blocks(lower, 16, 9, Math::kF4);
  for (const NumberFormat& format : GgufFormats()) {
    if (LowerCase(format.name) == lower) return format;
  }
  return MakeError(ErrorCode::kInvalidArgument, "expected as-shipped or one of {}, got '{}'",
                   WeightFormatNames(), files::Printable(name, 40));
}

Result<NumberFormat> ParseKvFormat(std::string_view name) {
  const std::string lower = LowerCase(name);
  if (lower == "f32") return Plain(lower, 4, Math::kF32);
  if (lower == "f16" || lower == "bf16") return Plain(lower, 2, Math::kBF16);
  if (lower == "fp8") return Plain(lower, 1, Math::kF8);
  if (lower == "int8") return Blocks(lower, 32, 34, Math::kI8);
  return MakeError(ErrorCode::kInvalidArgument, "expected one of {}, got '{}'", KvFormatNames(),
                   files::Printable(name, 40));
}

std::string WeightFormatNames() {
  std::string names = "bf16, f16, f32, fp8, int8, int4, int4-g16 to int4-g1024, mxfp4, nvfp4";
  for (const NumberFormat& format : GgufFormats()) names += ", " + format.name;
  return names;
}

std::string KvFormatNames() { return "bf16, f16, f32, fp8, int8"; }

}  // namespace kvasir::plan
