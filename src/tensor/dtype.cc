#include "tensor/dtype.h"

#include <array>
#include <cstddef>

#include "base/check.h"
#include "tensor/blocks.h"

namespace kvasir {
namespace {

constexpr size_t kDTypeCount = static_cast<size_t>(DType::kIQ4_NL) + 1;

// In the order of the enum.
constexpr std::array<DTypeInfo, kDTypeCount> kInfos = {{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"F64", 1, 8},
    {"I8", 1, 1},
    {"I16", 1, 2},
    {"I32", 1, 4},
    {"I64", 1, 8},
    {"U8", 1, 1},
    {"BOOL", 1, 1},
    {"F8_E4M3", 1, 1},
    {"F8_E5M2", 1, 1},
    {"Q4_0", kBlockValues, sizeof(BlockQ4_0)},
    {"Q4_1", kBlockValues, sizeof(BlockQ4_1)},
    {"Q5_0", kBlockValues, sizeof(BlockQ5_0)},
    {"Q5_1", kBlockValues, sizeof(BlockQ5_1)},
    {"Q8_0", kBlockValues, sizeof(BlockQ8_0)},
    {"Q2_K", kSuperBlockValues, sizeof(BlockQ2_K)},
    {"Q3_K", kSuperBlockValues, sizeof(BlockQ3_K)},
    {"Q4_K", kSuperBlockValues, sizeof(BlockQ4_K)},
    {"Q5_K", kSuperBlockValues, sizeof(BlockQ5_K)},
    {"Q6_K", kSuperBlockValues, sizeof(BlockQ6_K)},
    {"IQ4_NL", kBlockValues, sizeof(BlockIQ4_NL)},
}};
static_assert(kInfos.back().name == "IQ4_NL" && kInfos.back().block_bytes == 18);

}  // namespace

const DTypeInfo& Info(DType dtype) {
  const auto at = static_cast<size_t>(dtype);
  KVASIR_CHECK(at < kInfos.size(), "dtype {}", at);
  return kInfos[at];
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    if (kInfos[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int64_t RowBytes(DType dtype, int64_t values) {
  const DTypeInfo& info = Info(dtype);
  KVASIR_CHECK(values >= 0 && values % info.block_values == 0,
               "a row of {} {} values is no whole number of blocks", values, info.name);
  return values / info.block_values * info.block_bytes;
}

}  // namespace kvasir
