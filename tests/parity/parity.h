// What the parity tests share: stored weights at random, views of them, and bit-for-bit equality.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "kernels/backend.h"
#include "tensor/blocks.h"
#include "tensor/float16.h"
#include "tensor/tensor.h"

namespace kvasir::kernels {

inline const std::vector<DType>& WeightTypes() {
  static const std::vector<DType> types = {DType::kF32,  DType::kF16,   DType::kBF16, DType::kQ4_0,
                                           DType::kQ4_1, DType::kQ5_0,  DType::kQ5_1, DType::kQ8_0,
                                           DType::kQ2_K, DType::kQ3_K,  DType::kQ4_K, DType::kQ5_K,
                                           DType::kQ6_K, DType::kIQ4_NL};
  return types;
}

/// All but the reference.
inline std::vector<std::string> FastBackends() {
  std::vector<std::string> names;
  for (const std::string_view name : AvailableBackends()) {
    if (name != "ref") names.emplace_back(name);
  }
  return names;
}

inline std::unique_ptr<Backend> Make(std::string_view name, ThreadPool& pool) {
  return std::move(MakeBackend(name, pool).value());
}

inline std::vector<float> RandomFloats(Rng& rng, int64_t count, double scale = 1.0) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>((rng.Uniform() * 2.0 - 1.0) * scale);
  return values;
}

/// A stored weight [rows, cols] with its bytes.
struct Stored {
  std::vector<std::byte> bytes;
  TensorView view;
};

enum class Fill { kRandom, kAllOnes, kAllZeros };

/// Codes and inner scales are any bits (or all ones, all zeros: the ends of their ranges); halves
/// and floats are moderate numbers.
inline Stored MakeStored(DType dtype, int64_t rows, int64_t cols, Rng& rng,
                         Fill fill = Fill::kRandom) {
  Stored stored;
  const int64_t bytes = rows * RowBytes(dtype, cols);
  stored.bytes.resize(static_cast<size_t>(bytes));
  for (std::byte& byte : stored.bytes) {
    byte = fill == Fill::kRandom    ? static_cast<std::byte>(rng.Below(256))
           : fill == Fill::kAllOnes ? std::byte{0xFF}
                                    : std::byte{0};
  }
  const auto half = [&] {
    return FloatToHalf(static_cast<float>((rng.Uniform() * 2.0 - 1.0) * 0.01));
  };
  const auto number = [&] { return static_cast<float>(rng.Uniform() * 2.0 - 1.0); };
  const auto blocks = [&]<typename Block>(Block) {
    for (size_t at = 0; at < stored.bytes.size(); at += sizeof(Block)) {
      Block block;
      std::memcpy(&block, stored.bytes.data() + at, sizeof(Block));
      block.d = half();
      if constexpr (requires { block.m; }) block.m = half();
      if constexpr (requires { block.dmin; }) block.dmin = half();
      std::memcpy(stored.bytes.data() + at, &block, sizeof(Block));
    }
  };
  const auto values = [&]<typename T>(T, auto&& convert) {
    for (size_t at = 0; at < stored.bytes.size(); at += sizeof(T)) {
      const T value = convert(number());
      std::memcpy(stored.bytes.data() + at, &value, sizeof(T));
    }
  };
  switch (dtype) {
    case DType::kF32:
      values(float{}, [](float x) { return x; });
      break;
    case DType::kF16:
      values(uint16_t{}, FloatToHalf);
      break;
    case DType::kBF16:
      values(uint16_t{}, FloatToBf16);
      break;
    case DType::kQ4_0:
      blocks(BlockQ4_0{});
      break;
    case DType::kQ4_1:
      blocks(BlockQ4_1{});
      break;
    case DType::kQ5_0:
      blocks(BlockQ5_0{});
      break;
    case DType::kQ5_1:
      blocks(BlockQ5_1{});
      break;
    case DType::kQ8_0:
      blocks(BlockQ8_0{});
      break;
    case DType::kIQ4_NL:
      blocks(BlockIQ4_NL{});
      break;
    case DType::kQ2_K:
      blocks(BlockQ2_K{});
      break;
    case DType::kQ3_K:
      blocks(BlockQ3_K{});
      break;
    case DType::kQ4_K:
      blocks(BlockQ4_K{});
      break;
    case DType::kQ5_K:
      blocks(BlockQ5_K{});
      break;
    case DType::kQ6_K:
      blocks(BlockQ6_K{});
      break;
    default:
      ADD_FAILURE() << "no weights of " << Info(dtype).name;
  }
  stored.view.dtype = dtype;
  stored.view.shape = {rows, cols};
  stored.view.data = stored.bytes.data();
  stored.view.bytes = bytes;
  return stored;
}

inline ::testing::AssertionResult SameBits(const float* a, const float* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (std::memcmp(a + i, b + i, sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << "value " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult SameBits(const std::vector<float>& a,
                                           const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " " << b.size();
  return SameBits(a.data(), b.data(), static_cast<int64_t>(a.size()));
}

}  // namespace kvasir::kernels
