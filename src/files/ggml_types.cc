#include "files/ggml_types.h"

#include <array>

namespace kvasir::files {
namespace {

struct GgmlType {
  uint32_t number;
  std::string_view name;
  std::optional<DType> dtype = std::nullopt;
};

constexpr std::array kGgmlTypes = {
    GgmlType{0, "F32", DType::kF32},
    GgmlType{1, "F16", DType::kF16},
    GgmlType{30, "BF16", DType::kBF16},
    GgmlType{28, "F64", DType::kF64},
    GgmlType{24, "I8", DType::kI8},
    GgmlType{25, "I16", DType::kI16},
    GgmlType{26, "I32", DType::kI32},
    GgmlType{27, "I64", DType::kI64},
    GgmlType{2, "Q4_0", DType::kQ4_0},
    GgmlType{3, "Q4_1", DType::kQ4_1},
    GgmlType{6, "Q5_0", DType::kQ5_0},
    GgmlType{7, "Q5_1", DType::kQ5_1},
    GgmlType{8, "Q8_0", DType::kQ8_0},
    GgmlType{10, "Q2_K", DType::kQ2_K},
    GgmlType{11, "Q3_K", DType::kQ3_K},
    GgmlType{12, "Q4_K", DType::kQ4_K},
    GgmlType{13, "Q5_K", DType::kQ5_K},
    GgmlType{14, "Q6_K", DType::kQ6_K},
    GgmlType{20, "IQ4_NL", DType::kIQ4_NL},
    GgmlType{4, "Q4_2"},
    GgmlType{5, "Q4_3"},
    GgmlType{9, "Q8_1"},
    GgmlType{15, "Q8_K"},
    GgmlType{16, "IQ2_XXS"},
    GgmlType{17, "IQ2_XS"},
    GgmlType{18, "IQ3_XXS"},
    GgmlType{19, "IQ1_S"},
    GgmlType{21, "IQ3_S"},
    GgmlType{22, "IQ2_S"},
    GgmlType{23, "IQ4_XS"},
    GgmlType{29, "IQ1_M"},
    GgmlType{31, "Q4_0_4_4"},
    GgmlType{32, "Q4_0_4_8"},
    GgmlType{33, "Q4_0_8_8"},
    GgmlType{34, "TQ1_0"},
    GgmlType{35, "TQ2_0"},
    GgmlType{36, "IQ4_NL_4_4"},
    GgmlType{37, "IQ4_NL_4_8"},
    GgmlType{38, "IQ4_NL_8_8"},
    GgmlType{39, "MXFP4"},
    GgmlType{40, "NVFP4"},
    GgmlType{41, "Q1_0"},
    GgmlType{42, "Q2_0"},
};

const GgmlType* FindType(uint32_t number) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

}  // namespace

std::optional<DType> DTypeOfGgml(uint32_t type) {
  const GgmlType* known = FindType(type);
  return known == nullptr ? std::nullopt : known->dtype;
}

std::string_view GgmlTypeName(uint32_t type) {
  const GgmlType* known = FindType(type);
  return known == nullptr ? std::string_view() : known->name;
}

std::string SupportedGgmlTypes() {
  std::string names;
  for (const GgmlType& type : kGgmlTypes) {
    if (!type.dtype.has_value()) continue;
    if (!names.empty()) names += ", ";
    names += type.name;
  }
  return names;
}

}  // namespace kvasir::files
