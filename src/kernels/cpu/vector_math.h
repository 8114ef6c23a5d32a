// exp, tanh and what activations need of them, a vector at a time. Included by *_avx2.cc and
// *_avx512.cc only; internal linkage (see simd_avx2.h). Constants: Cephes (S. Moshier), single
// precision; erfc: Numerical Recipes 6.2, with a relative error below 1.2e-7 everywhere.
#pragma once

#include "kernels/elementwise.h"

namespace kvasir::kernels::cpu {
namespace {

/// Within 2 ulp where the result is a normal float; 0 below that, infinity above, NaN of NaN.
template <class V>
[[gnu::always_inline]] inline typename V::Float Exp(typename V::Float x) {
  using Float = typename V::Float;
  const Float lowest = V::Set1(-87.33654f);  // exp of it is the smallest normal float
  const Float highest = V::Set1(88.72283f);  // beyond it exp overflows
  const Float clamped = V::Min(V::Set1(89.0f), V::Max(lowest, x));
  const Float n = V::Round(V::Mul(clamped, V::Set1(1.44269504088896341f)));
  // x - n ln 2 in two steps, the first exact.
  Float r = V::Fnma(n, V::Set1(0.693359375f), clamped);
  r = V::Fnma(n, V::Set1(-2.12194440e-4f), r);
  Float p = V::Set1(1.9875691500e-4f);
  p = V::Fma(p, r, V::Set1(1.3981999507e-3f));
  p = V::Fma(p, r, V::Set1(8.3334519073e-3f));
  p = V::Fma(p, r, V::Set1(4.1665795894e-2f));
  p = V::Fma(p, r, V::Set1(1.6666665459e-1f));
  p = V::Fma(p, r, V::Set1(5.0000001201e-1f));
  p = V::Add(V::Fma(p, V::Mul(r, r), r), V::Set1(1.0f));
  // 2^n in two factors, since n reaches 128.
  const typename V::Int whole = V::ToInt(n);
  const typename V::Int half = V::ToInt(V::Mul(n, V::Set1(0.5f)));
  const auto power = [](typename V::Int e) {
    return V::AsFloat(V::template ShiftLeft32<23>(V::AddInt(e, V::Set1Int(127))));
  };
  const Float scaled = V::Mul(V::Mul(p, power(half)), power(V::SubInt(whole, half)));
  const Float infinity = V::Set1(__builtin_inff());
  const Float capped = V::Select(V::Less(highest, x), infinity, scaled);
  return V::Select(V::Less(x, lowest), V::Zero(), capped);
}

/// 1 / (1 + exp(-x))
template <class V>
[[gnu::always_inline]] inline typename V::Float Sigmoid(typename V::Float x) {
  const typename V::Float one = V::Set1(1.0f);
  return V::Div(one, V::Add(one, Exp<V>(V::Sub(V::Zero(), x))));
}

template <class V>
[[gnu::always_inline]] inline typename V::Float Tanh(typename V::Float x) {
  using Float = typename V::Float;
  const Float magnitude = V::Abs(x);
  // Near zero a polynomial in x^2, elsewhere 1 - 2 / (exp(2 |x|) + 1).
  const Float z = V::Mul(x, x);
  Float p = V::Set1(-5.70498872745e-3f);
  p = V::Fma(p, z, V::Set1(2.06390887954e-2f));
  p = V::Fma(p, z, V::Set1(-5.37397155531e-2f));
  p = V::Fma(p, z, V::Set1(1.33314422036e-1f));
  p = V::Fma(p, z, V::Set1(-3.33332819422e-1f));
  const Float small = V::Fma(V::Mul(p, z), x, x);
  const Float one = V::Set1(1.0f);
  const Float e = Exp<V>(V::Add(magnitude, magnitude));
  const Float large = V::CopySign(V::Sub(one, V::Div(V::Set1(2.0f), V::Add(e, one))), x);
  return V::Select(V::Less(magnitude, V::Set1(0.625f)), small, large);
}

/// c tanh(x / c)
template <class V>
[[gnu::always_inline]] inline typename V::Float SoftCap(typename V::Float x, float cap) {
  return V::Mul(V::Set1(cap), Tanh<V>(V::Div(x, V::Set1(cap))));
}

/// x / 2 * erfc(-x / sqrt 2)
template <class V>
[[gnu::always_inline]] inline typename V::Float Gelu(typename V::Float x) {
  using Float = typename V::Float;
  const Float one = V::Set1(1.0f);
  const Float z = V::Mul(V::Abs(x), V::Set1(0.70710678118654752f));
  const Float t = V::Div(one, V::Fma(V::Set1(0.5f), z, one));
  Float p = V::Set1(0.17087277f);
  p = V::Fma(p, t, V::Set1(-0.82215223f));
  p = V::Fma(p, t, V::Set1(1.48851587f));
  p = V::Fma(p, t, V::Set1(-1.13520398f));
  p = V::Fma(p, t, V::Set1(0.27886807f));
  p = V::Fma(p, t, V::Set1(-0.18628806f));
  p = V::Fma(p, t, V::Set1(0.09678418f));
  p = V::Fma(p, t, V::Set1(0.37409196f));
  p = V::Fma(p, t, V::Set1(1.00002368f));
  p = V::Fma(p, t, V::Set1(-1.26551223f));
  const Float erfc = V::Mul(t, Exp<V>(V::Fnma(z, z, p)));  // of |x| / sqrt 2
  const Float tail = V::Select(V::Less(x, V::Zero()), erfc, V::Sub(V::Set1(2.0f), erfc));
  return V::Mul(V::Mul(V::Set1(0.5f), x), tail);
}

/// x / 2 * (1 + tanh u) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
template <class V>
[[gnu::always_inline]] inline typename V::Float GeluTanh(typename V::Float x) {
  const typename V::Float cubic = V::Fma(V::Mul(V::Set1(0.044715f), V::Mul(x, x)), x, x);
  return V::Mul(x, Sigmoid<V>(V::Mul(V::Set1(2.0f * 0.79788456080286536f), cubic)));
}

template <class V, Activation kKind>
[[gnu::always_inline]] inline typename V::Float Activated(typename V::Float x) {
  if constexpr (kKind == Activation::kSilu) return V::Mul(x, Sigmoid<V>(x));
  if constexpr (kKind == Activation::kGelu) return Gelu<V>(x);
  if constexpr (kKind == Activation::kGeluTanh) return GeluTanh<V>(x);
  if constexpr (kKind == Activation::kRelu) return V::Max(V::Zero(), x);
}

}  // namespace
}  // namespace kvasir::kernels::cpu
