// AVX-512 with VNNI as the kernels' templates see it. Included by *_avx512.cc files only; see
// simd_avx2.h on linkage and for what each function does.
#pragma once

// GCC 12's own header makes "undefined" vectors by reading a variable that it never sets.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

namespace kvasir::kernels::cpu {
namespace {

struct Avx512 {
  static constexpr int kLanes = 16;
  /// Four byte products, unsigned x signed, straight into 32 bits (vpdpbusd).
  static constexpr bool kHasDotProduct = true;
  using Float = __m512;
  using Int = __m512i;
  using Mask = __mmask16;

  static Float Zero() { return _mm512_setzero_ps(); }
  static Float Set1(float value) { return _mm512_set1_ps(value); }
  static Float Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, Float a) { _mm512_storeu_ps(p, a); }
  static Float Add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float Sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float Mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float Div(Float a, Float b) { return _mm512_div_ps(a, b); }
  static Float Fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float Fnma(Float a, Float b, Float c) { return _mm512_fnmadd_ps(a, b, c); }
  static Float FmaAddSub(Float a, Float b, Float c) { return _mm512_fmaddsub_ps(a, b, c); }
  static Float Max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static Float Min(Float a, Float b) { return _mm512_min_ps(a, b); }
  static Float Round(Float a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Float Abs(Float a) { return _mm512_andnot_ps(Set1(-0.0f), a); }
  static Float CopySign(Float magnitude, Float sign) {
    return _mm512_or_ps(magnitude, _mm512_and_ps(Set1(-0.0f), sign));
  }
  static Mask Less(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static Float Select(Mask mask, Float yes, Float no) {
    return _mm512_mask_blend_ps(mask, no, yes);
  }

  static __mmask16 TailMask(int count) { return static_cast<__mmask16>((1u << count) - 1); }
  static Float LoadFirst(const float* p, int count) {
    return _mm512_maskz_loadu_ps(TailMask(count), p);
  }
  static void StoreFirst(float* p, Float a, int count) {
    _mm512_mask_storeu_ps(p, TailMask(count), a);
  }

  static __m256 UpperHalf(Float a) { return _mm512_extractf32x8_ps(a, 1); }
  static float ReduceAdd(Float a) {
    const __m256 sum8 = _mm256_add_ps(_mm512_castps512_ps256(a), UpperHalf(a));
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(sum8), _mm256_extractf128_ps(sum8, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
  }
  static float ReduceMax(Float a) {
    const __m256 max8 = _mm256_max_ps(_mm512_castps512_ps256(a), UpperHalf(a));
    __m128 max = _mm_max_ps(_mm256_castps256_ps128(max8), _mm256_extractf128_ps(max8, 1));
    max = _mm_max_ps(max, _mm_movehl_ps(max, max));
    return _mm_cvtss_f32(_mm_max_ss(max, _mm_movehdup_ps(max)));
  }

  static Float SwapPairs(Float a) { return _mm512_permute_ps(a, 0xB1); }
  static Float LoadDoubled(const float* p) {
    const __m512 half = _mm512_castps256_ps512(_mm256_loadu_ps(p));
    const Int order = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(order, half);
  }

  static Float LoadHalf(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static __m256i TwoHalves(const void* a, const void* b) {
    const __m128i low = _mm_loadu_si128(static_cast<const __m128i*>(a));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low),
                                   _mm_loadu_si128(static_cast<const __m128i*>(b)), 1);
  }
  /// 8 values at each of two places.
  static Float LoadTwo(const void* a, const void* b) {
    const __m256 low = _mm256_loadu_ps(static_cast<const float*>(a));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low),
                              _mm256_loadu_ps(static_cast<const float*>(b)), 1);
  }
  static Float LoadTwoHalf(const void* a, const void* b) {
    return _mm512_cvtph_ps(TwoHalves(a, b));
  }
  static Float LoadTwoBf16(const void* a, const void* b) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(TwoHalves(a, b)), 16));
  }
  static Float LoadBf16(const void* p) {
    const Int wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static void StoreHalf(void* p, Float a) {
    _mm256_storeu_si256(static_cast<__m256i*>(p),
                        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void StoreBf16(void* p, Float a) {
    const Int bits = _mm512_castps_si512(a);
    const Int high = _mm512_srli_epi32(bits, 16);
    const Int odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const Int bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
    const Int rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    const Int wide = _mm512_mask_or_epi32(rounded, is_nan, high, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(wide));
  }

  static Int ZeroInt() { return _mm512_setzero_si512(); }
  static Int Set1Int(int32_t value) { return _mm512_set1_epi32(value); }
  static Int Set1Byte(int8_t value) { return _mm512_set1_epi8(value); }
  static Int LoadInt(const void* p) { return _mm512_loadu_si512(p); }
  static void StoreInt(void* p, Int a) { _mm512_storeu_si512(p, a); }
  static Int AddInt(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int SubInt(Int a, Int b) { return _mm512_sub_epi32(a, b); }
  static Int And(Int a, Int b) { return _mm512_and_si512(a, b); }
  static Int Or(Int a, Int b) { return _mm512_or_si512(a, b); }
  static Int OrAnd(Int a, Int b, Int c) { return _mm512_ternarylogic_epi32(a, b, c, 0xF8); }
  template <int kBits>
  static Int ShiftLeft32(Int a) {
    return _mm512_slli_epi32(a, kBits);
  }
  template <int kBits>
  static Int Shift16(Int a) {
    if constexpr (kBits > 0) return _mm512_slli_epi16(a, kBits);
    if constexpr (kBits < 0) return _mm512_srli_epi16(a, -kBits);
    return a;
  }
  static Float ToFloat(Int a) { return _mm512_cvtepi32_ps(a); }
  static Int ToInt(Float a) { return _mm512_cvtps_epi32(a); }
  static Float AsFloat(Int a) { return _mm512_castsi512_ps(a); }
  static Int AsInt(Float a) { return _mm512_castps_si512(a); }
  static Int LoadU8(const void* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static Int LoadS8(const void* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static Int Lookup(const void* table, Int codes) {
    const __m128i row = _mm_loadu_si128(static_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(row), codes);
  }
  /// acc + the dot products of four unsigned bytes of `weights` and four signed ones of `x`.
  static Int DotProduct(Int acc, Int weights, Int x) {
    return _mm512_dpbusd_epi32(acc, weights, x);
  }

  static float QuantizeBlock(const float* x, int8_t* q, int32_t* sums) {
    const Float x0 = Load(x);
    const Float x1 = Load(x + 16);
    const Int m = _mm512_max_epi32(AsInt(Abs(x0)), AsInt(Abs(x1)));
    const __m256i m8 = _mm256_max_epi32(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
    __m128i max = _mm_max_epi32(_mm256_castsi256_si128(m8), _mm256_extracti128_si256(m8, 1));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0x4E));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0xB1));
    const float amax = _mm_cvtss_f32(_mm_castsi128_ps(max));
    const float inverse = amax < 1e-36f ? 0.0f : 127.0f / amax;
    const Float scale = Set1(inverse);
    const Int i0 = ToInt(Mul(x0, scale));
    const Int i1 = ToInt(Mul(x1, scale));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(i0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(i1));
    sums[0] = _mm512_reduce_add_epi32(i0);
    sums[1] = _mm512_reduce_add_epi32(i1);
    return amax < 1e-36f ? 0.0f : amax / 127.0f;
  }
};

}  // namespace
}  // namespace kvasir::kernels::cpu
