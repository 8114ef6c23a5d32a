// AVX2 as the kernels' templates see it. Included by *_avx2.cc files only.
//
// Everything here and in the kernel templates has internal linkage: a function compiled for one
// instruction set must never be the copy that the linker keeps for code that runs on any machine.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace kvasir::kernels::cpu {
namespace {

struct Avx2 {
  static constexpr int kLanes = 8;
  /// Byte products are signed x |signed| in saturating 16-bit pairs (vpmaddubsw).
  static constexpr bool kHasDotProduct = false;
  using Float = __m256;
  using Int = __m256i;
  using Mask = __m256;

  static Float Zero() { return _mm256_setzero_ps(); }
  static Float Set1(float value) { return _mm256_set1_ps(value); }
  static Float Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, Float a) { _mm256_storeu_ps(p, a); }
  static Float Add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float Sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float Mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float Div(Float a, Float b) { return _mm256_div_ps(a, b); }
  /// a b + c
  static Float Fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  /// c - a b
  static Float Fnma(Float a, Float b, Float c) { return _mm256_fnmadd_ps(a, b, c); }
  /// Even lanes a b - c, odd lanes a b + c.
  static Float FmaAddSub(Float a, Float b, Float c) { return _mm256_fmaddsub_ps(a, b, c); }
  /// A NaN in b stays; one in a gives b.
  static Float Max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static Float Min(Float a, Float b) { return _mm256_min_ps(a, b); }
  static Float Round(Float a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Float Abs(Float a) { return _mm256_andnot_ps(Set1(-0.0f), a); }
  static Float CopySign(Float magnitude, Float sign) {
    return _mm256_or_ps(magnitude, _mm256_and_ps(Set1(-0.0f), sign));
  }
  static Mask Less(Float a, Float b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static Float Select(Mask mask, Float yes, Float no) { return _mm256_blendv_ps(no, yes, mask); }

  static __m256i TailMask(int count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane);
  }
  /// The first `count` lanes; zeros beyond, which are not read.
  static Float LoadFirst(const float* p, int count) {
    return _mm256_maskload_ps(p, TailMask(count));
  }
  static void StoreFirst(float* p, Float a, int count) {
    _mm256_maskstore_ps(p, TailMask(count), a);
  }

  static float ReduceAdd(Float a) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
  }
  static float ReduceMax(Float a) {
    __m128 max = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    max = _mm_max_ps(max, _mm_movehl_ps(max, max));
    return _mm_cvtss_f32(_mm_max_ss(max, _mm_movehdup_ps(max)));
  }

  /// x0 x1 x2 x3 ... -> x1 x0 x3 x2 ...
  static Float SwapPairs(Float a) { return _mm256_permute_ps(a, 0xB1); }
  /// kLanes / 2 values, each in two neighbouring lanes.
  static Float LoadDoubled(const float* p) {
    const __m256 half = _mm256_castps128_ps256(_mm_loadu_ps(p));
    return _mm256_permutevar8x32_ps(half, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
  }

  static Float LoadHalf(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static Float LoadBf16(const void* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static void StoreHalf(void* p, Float a) {
    _mm_storeu_si128(static_cast<__m128i*>(p),
                     _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  /// To nearest even; NaN stays NaN (tensor/float16.h).
  static void StoreBf16(void* p, Float a) {
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i wide = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(wide, wide), 0xD8);
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }

  static Int ZeroInt() { return _mm256_setzero_si256(); }
  static Int Set1Int(int32_t value) { return _mm256_set1_epi32(value); }
  static Int Set1Byte(int8_t value) { return _mm256_set1_epi8(value); }
  static Int LoadInt(const void* p) { return _mm256_loadu_si256(static_cast<const Int*>(p)); }
  static void StoreInt(void* p, Int a) { _mm256_storeu_si256(static_cast<Int*>(p), a); }
  static Int AddInt(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int SubInt(Int a, Int b) { return _mm256_sub_epi32(a, b); }
  static Int And(Int a, Int b) { return _mm256_and_si256(a, b); }
  static Int Or(Int a, Int b) { return _mm256_or_si256(a, b); }
  /// a | (b & c)
  static Int OrAnd(Int a, Int b, Int c) { return Or(a, And(b, c)); }
  template <int kBits>
  static Int ShiftLeft32(Int a) {
    return _mm256_slli_epi32(a, kBits);
  }
  /// Logical shift of 16-bit lanes, to the left where kBits > 0.
  template <int kBits>
  static Int Shift16(Int a) {
    if constexpr (kBits > 0) return _mm256_slli_epi16(a, kBits);
    if constexpr (kBits < 0) return _mm256_srli_epi16(a, -kBits);
    return a;
  }
  static Float ToFloat(Int a) { return _mm256_cvtepi32_ps(a); }
  static Int ToInt(Float a) { return _mm256_cvtps_epi32(a); }
  static Float AsFloat(Int a) { return _mm256_castsi256_ps(a); }
  static Int AsInt(Float a) { return _mm256_castps_si256(a); }
  /// kLanes bytes, one a lane.
  static Int LoadU8(const void* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  static Int LoadS8(const void* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  /// A 16-byte table looked up by the low 4 bits of each byte.
  static Int Lookup(const void* table, Int codes) {
    const __m128i row = _mm_loadu_si128(static_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(row), codes);
  }

  static Int AbsByte(Int a) { return _mm256_abs_epi8(a); }
  /// a with the sign of b applied, bytewise; 0 where b is.
  static Int SignByte(Int a, Int b) { return _mm256_sign_epi8(a, b); }
  /// Sums of two neighbouring products of unsigned and signed bytes, saturating at 16 bits.
  static Int MulPairs(Int unsigned_a, Int signed_b) {
    return _mm256_maddubs_epi16(unsigned_a, signed_b);
  }
  static Int Add16(Int a, Int b) { return _mm256_add_epi16(a, b); }
  /// Keeps the compiler from moving integer sums about: it would hold all the terms of a long sum
  /// in memory to add them up last.
  static Int Pinned(Int a) {
    __asm__("" : "+x"(a));
    return a;
  }
  /// Sums of two neighbouring 16-bit lanes, in 32 bits.
  static Int SumPairs(Int a) { return _mm256_madd_epi16(a, _mm256_set1_epi16(1)); }

  /// Quantizes 32 values to q = round(x / d), d = max|x| / 127; the sums of q over each half go to
  /// `sums`. A NaN or infinity makes d so, and with it all that is multiplied by it.
  static float QuantizeBlock(const float* x, int8_t* q, int32_t* sums) {
    const Float x0 = Load(x);
    const Float x1 = Load(x + 8);
    const Float x2 = Load(x + 16);
    const Float x3 = Load(x + 24);
    // As integers, magnitudes order like the floats they are, and NaN is above all.
    const Int m01 = _mm256_max_epi32(AsInt(Abs(x0)), AsInt(Abs(x1)));
    const Int m23 = _mm256_max_epi32(AsInt(Abs(x2)), AsInt(Abs(x3)));
    const Int m = _mm256_max_epi32(m01, m23);
    __m128i max = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0x4E));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0xB1));
    const float amax = _mm_cvtss_f32(_mm_castsi128_ps(max));
    // Below this 127 / amax overflows; such a block is as good as zero.
    const float inverse = amax < 1e-36f ? 0.0f : 127.0f / amax;
    const Float scale = Set1(inverse);
    const Int i0 = ToInt(Mul(x0, scale));
    const Int i1 = ToInt(Mul(x1, scale));
    const Int i2 = ToInt(Mul(x2, scale));
    const Int i3 = ToInt(Mul(x3, scale));
    const Int order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const Int packed = _mm256_packs_epi16(_mm256_packs_epi32(i0, i1), _mm256_packs_epi32(i2, i3));
    StoreInt(q, _mm256_permutevar8x32_epi32(packed, order));
    const Int s0 = _mm256_add_epi32(i0, i1);
    const Int s1 = _mm256_add_epi32(i2, i3);
    const Int pairs = _mm256_hadd_epi32(s0, s1);  // s0 s0 s1 s1 | s0 s0 s1 s1
    const __m128i folded =
        _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    const __m128i both = _mm_hadd_epi32(folded, folded);
    sums[0] = _mm_cvtsi128_si32(both);
    sums[1] = _mm_extract_epi32(both, 1);
    return amax < 1e-36f ? 0.0f : amax / 127.0f;
  }
};

}  // namespace
}  // namespace kvasir::kernels::cpu
