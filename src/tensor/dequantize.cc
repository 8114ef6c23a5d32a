#include "tensor/dequantize.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/blocks.h"
#include "tensor/float16.h"

namespace kvasir {
namespace {

// Value by value; T is what the file holds.
template <typename T, typename Convert>
void DecodePlain(const std::byte* data, std::span<float> out, Convert&& convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    T stored;
    std::memcpy(&stored, data + i * sizeof(T), sizeof(T));
    out[i] = convert(stored);
  }
}

template <typename T>
void DecodeNumber(const std::byte* data, std::span<float> out) {
  DecodePlain<T>(data, out, [](T stored) { return static_cast<float>(stored); });
}

// The code of element j where nibbles hold elements j and j + 16.
int SplitNibble(const uint8_t (&qs)[16], size_t j) { return j < 16 ? qs[j] & 15 : qs[j - 16] >> 4; }
int FifthBit(const uint8_t (&qh)[4], size_t j) { return (qh[j / 8] >> (j % 8) & 1) << 4; }

void DecodeBlock(const BlockQ4_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (size_t j = 0; j < 32; ++j) out[j] = d * static_cast<float>(SplitNibble(block.qs, j) - 8);
}

void DecodeBlock(const BlockQ4_1& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float m = HalfToFloat(block.m);
  for (size_t j = 0; j < 32; ++j) out[j] = d * static_cast<float>(SplitNibble(block.qs, j)) + m;
}

void DecodeBlock(const BlockQ5_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (size_t j = 0; j < 32; ++j) {
    out[j] = d * static_cast<float>((SplitNibble(block.qs, j) | FifthBit(block.qh, j)) - 16);
  }
}

void DecodeBlock(const BlockQ5_1& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float m = HalfToFloat(block.m);
  for (size_t j = 0; j < 32; ++j) {
    out[j] = d * static_cast<float>(SplitNibble(block.qs, j) | FifthBit(block.qh, j)) + m;
  }
}

void DecodeBlock(const BlockQ8_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (size_t j = 0; j < 32; ++j) out[j] = d * static_cast<float>(block.qs[j]);
}

void DecodeBlock(const BlockIQ4_NL& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (size_t j = 0; j < 32; ++j) {
    const auto code = static_cast<size_t>(SplitNibble(block.qs, j));
    out[j] = d * static_cast<float>(kIq4NlValues[code]);
  }
}

void DecodeBlock(const BlockQ2_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  for (size_t h = 0; h < 2; ++h) {
    for (size_t t = 0; t < 4; ++t) {
      for (size_t i = 0; i < 32; ++i) {
        const int scales = block.scales[8 * h + 2 * t + i / 16];
        const int q = block.qs[32 * h + i] >> (2 * t) & 3;
        out[128 * h + 32 * t + i] = d * static_cast<float>(scales & 15) * static_cast<float>(q) -
                                    dmin * static_cast<float>(scales >> 4);
      }
    }
  }
}

void DecodeBlock(const BlockQ3_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const std::array<int8_t, 16> scales = UnpackScalesQ3_K(block.scales);
  for (size_t h = 0; h < 2; ++h) {
    for (size_t t = 0; t < 4; ++t) {
      for (size_t i = 0; i < 32; ++i) {
        const int low = block.qs[32 * h + i] >> (2 * t) & 3;
        const int q = low - ((block.hmask[i] >> (4 * h + t) & 1) != 0 ? 0 : 4);
        out[128 * h + 32 * t + i] =
            d * static_cast<float>(scales[8 * h + 2 * t + i / 16]) * static_cast<float>(q);
      }
    }
  }
}

// Q4_K and Q5_K; high_bit(j, l) is 16 where the fifth bit of element 32j + l is set.
template <typename Block, typename HighBit>
void DecodeQ4OrQ5K(const Block& block, HighBit&& high_bit, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  const ScalesQ4_K scales = UnpackScalesQ4_K(block.scales);
  for (size_t j = 0; j < 8; ++j) {
    const float scale = d * static_cast<float>(scales.scale[j]);
    const float min = dmin * static_cast<float>(scales.min[j]);
    for (size_t l = 0; l < 32; ++l) {
      const int nibble = block.qs[32 * (j / 2) + l] >> (4 * (j % 2)) & 15;
      out[32 * j + l] = scale * static_cast<float>(nibble + high_bit(j, l)) - min;
    }
  }
}

void DecodeBlock(const BlockQ4_K& block, float* out) {
  DecodeQ4OrQ5K(
      block, [](size_t, size_t) { return 0; }, out);
}

void DecodeBlock(const BlockQ5_K& block, float* out) {
  DecodeQ4OrQ5K(
      block, [&](size_t j, size_t l) { return (block.qh[l] >> j & 1) << 4; }, out);
}

void DecodeBlock(const BlockQ6_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (size_t h = 0; h < 2; ++h) {
    for (size_t t = 0; t < 4; ++t) {
      for (size_t l = 0; l < 32; ++l) {
        const int low = block.ql[64 * h + 32 * (t & 1) + l] >> (t < 2 ? 0 : 4) & 15;
        const int high = block.qh[32 * h + l] >> (2 * t) & 3;
        const size_t sub_block = 8 * h + 2 * t + l / 16;
        const float scale = d * static_cast<float>(block.scales[sub_block]);
        out[128 * h + 32 * t + l] = scale * static_cast<float>((low | high << 4) - 32);
      }
    }
  }
}

template <typename Block>
void DecodeBlocks(int64_t block_values, const std::byte* data, std::span<float> out) {
  const auto values = static_cast<size_t>(block_values);
  for (size_t b = 0; b < out.size() / values; ++b) {
    Block block;
    std::memcpy(&block, data + b * sizeof(Block), sizeof(Block));
    DecodeBlock(block, out.data() + b * values);
  }
}

}  // namespace

float F8E4M3ToFloat(uint8_t bits) {
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  // Bias 7, 3 mantissa bits: normal (8 + m) * 2^(e - 10), subnormal m * 2^-9.
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1.0p-9f;
  return sign * std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
}

float F8E5M2ToFloat(uint8_t bits) { return HalfToFloat(static_cast<uint16_t>(bits << 8)); }

void Dequantize(DType dtype, const std::byte* data, std::span<float> out) {
  const int64_t block_values = Info(dtype).block_values;
  KVASIR_CHECK(out.size() % static_cast<size_t>(block_values) == 0,
               "{} {} values are no whole number of blocks", out.size(), Info(dtype).name);
  switch (dtype) {
    case DType::kF32:
      if (!out.empty()) std::memcpy(out.data(), data, out.size() * sizeof(float));
      return;
    case DType::kF16:
      return DecodePlain<uint16_t>(data, out, HalfToFloat);
    case DType::kBF16:
      return DecodePlain<uint16_t>(data, out, Bf16ToFloat);
    case DType::kF64:
      return DecodeNumber<double>(data, out);
    case DType::kI8:
      return DecodeNumber<int8_t>(data, out);
    case DType::kI16:
      return DecodeNumber<int16_t>(data, out);
    case DType::kI32:
      return DecodeNumber<int32_t>(data, out);
    case DType::kI64:
      return DecodeNumber<int64_t>(data, out);
    case DType::kU8:
      return DecodeNumber<uint8_t>(data, out);
    case DType::kBool:
      return DecodePlain<uint8_t>(data, out, [](uint8_t b) { return b != 0 ? 1.0f : 0.0f; });
    case DType::kF8E4M3:
      return DecodePlain<uint8_t>(data, out, F8E4M3ToFloat);
    case DType::kF8E5M2:
      return DecodePlain<uint8_t>(data, out, F8E5M2ToFloat);
    case DType::kQ4_0:
      return DecodeBlocks<BlockQ4_0>(block_values, data, out);
    case DType::kQ4_1:
      return DecodeBlocks<BlockQ4_1>(block_values, data, out);
    case DType::kQ5_0:
      return DecodeBlocks<BlockQ5_0>(block_values, data, out);
    case DType::kQ5_1:
      return DecodeBlocks<BlockQ5_1>(block_values, data, out);
    case DType::kQ8_0:
      return DecodeBlocks<BlockQ8_0>(block_values, data, out);
    case DType::kQ2_K:
      return DecodeBlocks<BlockQ2_K>(block_values, data, out);
    case DType::kQ3_K:
      return DecodeBlocks<BlockQ3_K>(block_values, data, out);
    case DType::kQ4_K:
      return DecodeBlocks<BlockQ4_K>(block_values, data, out);
    case DType::kQ5_K:
      return DecodeBlocks<BlockQ5_K>(block_values, data, out);
    case DType::kQ6_K:
      return DecodeBlocks<BlockQ6_K>(block_values, data, out);
    case DType::kIQ4_NL:
      return DecodeBlocks<BlockIQ4_NL>(block_values, data, out);
  }
  KVASIR_CHECK(false, "dtype {}", static_cast<int>(dtype));
}

}  // namespace kvasir
