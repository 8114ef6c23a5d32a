// Norms, activations, rotations and the like, a row at a time. Included by *_avx2.cc and
// *_avx512.cc only; internal linkage (see simd_avx2.h).
#pragma once

#include <cstdint>

#include "kernels/cpu/vector_math.h"
#include "kernels/elementwise.h"

namespace kvasir::kernels::cpu {
namespace {

/// body(offset, load, store) over [0, count) in vectors; the last one in part, where load gives
/// zeros beyond the end and store leaves it.
template <class V, typename Body>
[[gnu::always_inline]] inline void ForVectors(int64_t count, Body&& body) {
  using Float = typename V::Float;
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    body(
        i, [](const float* p) { return V::Load(p); }, [](float* p, Float a) { V::Store(p, a); });
  }
  if (i < count) {
    const auto left = static_cast<int>(count - i);
    body(
        i, [left](const float* p) { return V::LoadFirst(p, left); },
        [left](float* p, Float a) { V::StoreFirst(p, a, left); });
  }
}

/// Sum of (x - center)^2, or of x where kPower is 1. The order depends on the count alone.
template <class V, int kPower>
float SumOfPowers(const float* x, int64_t count, float center) {
  using Float = typename V::Float;
  const Float c = V::Set1(center);
  Float sums[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
  const auto add = [&](Float sum, Float value) {
    if constexpr (kPower == 1) return V::Add(sum, value);
    const Float apart = V::Sub(value, c);
    return V::Fma(apart, apart, sum);
  };
  int64_t i = 0;
  for (; i + 4 * V::kLanes <= count; i += 4 * V::kLanes) {
    for (int j = 0; j < 4; ++j) sums[j] = add(sums[j], V::Load(x + i + j * V::kLanes));
  }
  for (; i + V::kLanes <= count; i += V::kLanes) sums[0] = add(sums[0], V::Load(x + i));
  float tail = 0.0f;
  for (; i < count; ++i) {
    const float apart = kPower == 1 ? x[i] : x[i] - center;
    tail += kPower == 1 ? apart : apart * apart;
  }
  return V::ReduceAdd(V::Add(V::Add(sums[0], sums[1]), V::Add(sums[2], sums[3]))) + tail;
}

template <class V>
void NormRows(const NormArgs& args, int64_t begin, int64_t end) {
  using Float = typename V::Float;
  const int64_t group = args.cols / args.groups_count;
  const auto count = static_cast<float>(group);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t g = 0; g < args.groups_count; ++g) {
      const float* x = args.x + t * args.ldx + g * group;
      float* y = args.y + t * args.ldy + g * group;
      const int64_t at = args.weight_per_group ? g * group : 0;
      const float* weight = args.weight != nullptr ? args.weight + at : nullptr;
      const bool is_layer = args.kind == NormArgs::Kind::kLayer;
      const float* bias = is_layer && args.bias != nullptr ? args.bias + at : nullptr;
      const float center = is_layer ? SumOfPowers<V, 1>(x, group, 0.0f) / count : 0.0f;
      const float mean_square = SumOfPowers<V, 2>(x, group, center) / count;
      const Float inverse = V::Set1(1.0f / __builtin_sqrtf(mean_square + args.eps));
      const Float c = V::Set1(center);
      ForVectors<V>(group, [&](int64_t i, auto load, auto store) {
        Float value = V::Mul(V::Sub(load(x + i), c), inverse);
        if (weight != nullptr) value = V::Mul(value, load(weight + i));
        if (bias != nullptr) value = V::Add(value, load(bias + i));
        store(y + i, value);
      });
    }
  }
}

template <class V, Activation kKind>
void ActivateRowsOf(const ActivationArgs& args, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const float* gate = args.gate + t * args.ld_gate;
    const float* up = args.up != nullptr ? args.up + t * args.ld_up : nullptr;
    float* y = args.y + t * args.ldy;
    ForVectors<V>(args.cols, [&](int64_t i, auto load, auto store) {
      typename V::Float value = Activated<V, kKind>(load(gate + i));
      if (up != nullptr) value = V::Mul(value, load(up + i));
      store(y + i, value);
    });
  }
}

template <class V>
void ActivateRows(const ActivationArgs& args, int64_t begin, int64_t end) {
  switch (args.kind) {
    case Activation::kSilu:
      return ActivateRowsOf<V, Activation::kSilu>(args, begin, end);
    case Activation::kGelu:
      return ActivateRowsOf<V, Activation::kGelu>(args, begin, end);
    case Activation::kGeluTanh:
      return ActivateRowsOf<V, Activation::kGeluTanh>(args, begin, end);
    case Activation::kRelu:
      return ActivateRowsOf<V, Activation::kRelu>(args, begin, end);
  }
}

template <class V>
void RopeRows(const RopeArgs& args, int64_t begin, int64_t end) {
  using Float = typename V::Float;
  const int64_t half = args.rotated_dims / 2;
  for (int64_t t = begin; t < end; ++t) {
    const float* cos = args.cos + args.positions[t] * half;
    const float* sin = args.sin + args.positions[t] * half;
    for (int64_t h = 0; h < args.heads_count; ++h) {
      float* x = args.x + t * args.ldx + h * args.head_dim;
      if (args.kind == RopeArgs::Kind::kHalf) {
        ForVectors<V>(half, [&](int64_t i, auto load, auto store) {
          const Float a = load(x + i);
          const Float b = load(x + half + i);
          const Float c = load(cos + i);
          const Float s = load(sin + i);
          store(x + i, V::Fnma(b, s, V::Mul(a, c)));
          store(x + half + i, V::Fma(a, s, V::Mul(b, c)));
        });
        continue;
      }
      int64_t i = 0;
      for (; i + V::kLanes / 2 <= half; i += V::kLanes / 2) {
        const Float pairs = V::Load(x + 2 * i);
        const Float swapped = V::Mul(V::SwapPairs(pairs), V::LoadDoubled(sin + i));
        V::Store(x + 2 * i, V::FmaAddSub(pairs, V::LoadDoubled(cos + i), swapped));
      }
      for (; i < half; ++i) {
        const float a = x[2 * i];
        const float b = x[2 * i + 1];
        x[2 * i] = __builtin_fmaf(a, cos[i], -(b * sin[i]));
        x[2 * i + 1] = __builtin_fmaf(b, cos[i], a * sin[i]);
      }
    }
  }
}

template <class V>
void AddRows(const AddArgs& args, int64_t begin, int64_t end) {
  const typename V::Float scale = V::Set1(args.scale);
  for (int64_t t = begin; t < end; ++t) {
    float* x = args.x + t * args.ldx;
    const float* y = args.y + t * args.ldy;
    ForVectors<V>(args.cols, [&](int64_t i, auto load, auto store) {
      store(x + i, V::Fma(scale, load(y + i), load(x + i)));
    });
  }
}

template <class V>
void ScaleRows(const ScaleArgs& args, int64_t begin, int64_t end) {
  const typename V::Float scale = V::Set1(args.scale);
  for (int64_t t = begin; t < end; ++t) {
    float* x = args.x + t * args.ldx;
    ForVectors<V>(args.cols, [&](int64_t i, auto load, auto store) {
      typename V::Float value = V::Mul(scale, load(x + i));
      if (args.softcap != 0.0f) value = SoftCap<V>(value, args.softcap);
      store(x + i, value);
    });
  }
}

}  // namespace
}  // namespace kvasir::kernels::cpu
