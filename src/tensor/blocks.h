// GGUF's quantized blocks, byte for byte as files hold them. A row of a matrix is a whole number of
// blocks. Source: ggml's block formats. All integers little-endian; `d`, `m`, `dmin` are halves
// (float16.h). The structs are packed, so that a block may lie at any address.
//
// "Element j" counts the values of a block in the order of the row. A nibble pair that holds
// elements j and j + 16 (or j and j + 32) has the lower index in bits 0..3.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace kvasir {

static_assert(std::endian::native == std::endian::little, "weight files are read in place");

/// Values of a block of the simple formats, and of a K-quant super-block.
inline constexpr int kBlockValues = 32;
inline constexpr int kSuperBlockValues = 256;

#pragma pack(push, 1)

/// value j = d * (q - 8); qs[j] holds q of elements j and j + 16.
struct BlockQ4_0 {
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

/// value j = d * q + m; qs as in Q4_0.
struct BlockQ4_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

/// value j = d * (q - 16); q's low 4 bits as in Q4_0, its fifth is bit j of qh (bit j % 8 of byte
/// j / 8).
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

/// value j = d * q + m; q as in Q5_0.
struct BlockQ5_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

/// value j = d * qs[j].
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

/// 16 sub-blocks of 16. Element 128h + 32t + 16p + l (t 0..3, p 0..1, l 0..15): q is 2 bits of
/// qs[32h + 16p + l] at bit 2t; S = scales[8h + 2t + p]; value = d * (S & 15) * q - dmin * (S >>
/// 4).
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d;
  uint16_t dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

/// 16 sub-blocks of 16. Element 128h + 32t + i (i 0..31): q is 2 bits of qs[32h + i] at bit 2t,
/// less 4 where bit 4h + t of hmask[i] is clear. Scales of 6 bits: UnpackScalesQ3_K; value = d *
/// scale * q.
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

/// 8 sub-blocks of 32. Element 32j + l: q is a nibble of qs[32 (j / 2) + l], the low one for even
/// j. 6-bit scales and minimums: UnpackScalesQ4_K; value = d * scale[j] * q - dmin * min[j].
struct BlockQ4_K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

/// As Q4_K with a fifth bit: bit j of qh[l].
struct BlockQ5_K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

/// 16 sub-blocks of 16. Element 128h + 32t + l (l 0..31): low 4 bits are a nibble of
/// ql[64h + 32 (t & 1) + l] (low for t < 2), the high 2 are bits of qh[32h + l] at bit 2t;
/// value = d * scales[8h + 2t + l / 16] * (q - 32).
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

/// value j = d * kIq4NlValues[q]; qs as in Q4_0.
struct BlockIQ4_NL {
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

#pragma pack(pop)

/// The code book of IQ4_NL.
inline constexpr std::array<int8_t, 16> kIq4NlValues = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  113};

/// Scales and minimums (0..63) of the 8 sub-blocks of Q4_K and Q5_K.
struct ScalesQ4_K {
  std::array<uint8_t, 8> scale;
  std::array<uint8_t, 8> min;
};
[[nodiscard]] inline ScalesQ4_K UnpackScalesQ4_K(const uint8_t (&packed)[12]) {
  ScalesQ4_K unpacked;
  for (size_t j = 0; j < 4; ++j) {
    unpacked.scale[j] = packed[j] & 63;
    unpacked.min[j] = packed[j + 4] & 63;
    unpacked.scale[j + 4] = static_cast<uint8_t>((packed[j + 8] & 15) | (packed[j] >> 6) << 4);
    unpacked.min[j + 4] = static_cast<uint8_t>((packed[j + 8] >> 4) | (packed[j + 4] >> 6) << 4);
  }
  return unpacked;
}

/// Scales (-32..31) of the 16 sub-blocks of Q3_K.
[[nodiscard]] inline std::array<int8_t, 16> UnpackScalesQ3_K(const uint8_t (&packed)[12]) {
  std::array<int8_t, 16> unpacked;
  for (size_t k = 0; k < 16; ++k) {
    const int low = k < 8 ? packed[k] & 15 : packed[k - 8] >> 4;
    const int high = (packed[8 + k % 4] >> (2 * (k / 4))) & 3;
    unpacked[k] = static_cast<int8_t>((low | high << 4) - 32);
  }
  return unpacked;
}

}  // namespace kvasir
