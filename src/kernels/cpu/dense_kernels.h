// Dense weights (F32, F16, BF16) times float activations. Included by *_avx2.cc and *_avx512.cc
// only; internal linkage (see simd_avx2.h).
//
// y[n] = fma over k in order, one chain an output, whatever the tile: chains are many because tiles
// hold several tokens and several panels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/codes_kernels.h"
#include "kernels/cpu/kernel_table.h"

namespace kvasir::kernels::cpu {
namespace {

/// One or two steps of k at a time of a panel.
template <class V, DType kType>
struct DensePanel;

template <class V>
struct DensePanel<V, DType::kF32> {
  static constexpr int kSteps = 1;
  static constexpr int64_t kStepBytes = 4 * V::kLanes;
  static void Load(const std::byte* p, typename V::Float (&w)[kSteps]) {
    w[0] = V::Load(reinterpret_cast<const float*>(p));
  }
};

template <class V>
struct DensePanel<V, DType::kF16> {
  static constexpr int kSteps = 1;
  static constexpr int64_t kStepBytes = 2 * V::kLanes;
  static void Load(const std::byte* p, typename V::Float (&w)[kSteps]) { w[0] = V::LoadHalf(p); }
};

template <class V>
struct DensePanel<V, DType::kBF16> {
  static constexpr int kSteps = 2;
  static constexpr int64_t kStepBytes = 4 * V::kLanes;
  static void Load(const std::byte* p, typename V::Float (&w)[kSteps]) {
    const typename V::Int pairs = V::LoadInt(p);
    w[0] = V::AsFloat(V::template ShiftLeft32<16>(pairs));
    w[1] = V::AsFloat(V::And(pairs, V::Set1Int(static_cast<int32_t>(0xFFFF0000u))));
  }
};

/// y[t][0, rows) of kPanels neighbouring panels; x is [k][kTile].
template <class V, int kTile, int kPanels, DType kType>
void MultiplyDenseTile(const std::byte* panel, int64_t panel_bytes, int64_t cols, const float* x,
                       const float* bias, float* y, int64_t ldy, int64_t rows) {
  using Float = typename V::Float;
  using Panel = DensePanel<V, kType>;
  Float acc[kPanels][kTile];
  Unroll<kPanels>(
      [&](auto p) { Unroll<kTile>([&](auto t) { acc[p.value][t.value] = V::Zero(); }); });
  int64_t k = 0;
  for (; k + Panel::kSteps <= cols; k += Panel::kSteps) {
    Unroll<kPanels>([&](auto p) {
      Float w[Panel::kSteps];
      Panel::Load(panel + p.value * panel_bytes, w);
      Unroll<Panel::kSteps>([&](auto s) {
        Unroll<kTile>([&](auto t) {
          acc[p.value][t.value] =
              V::Fma(w[s.value], V::Set1(x[s.value * kTile + t.value]), acc[p.value][t.value]);
        });
      });
    });
    panel += Panel::kStepBytes;
    x += Panel::kSteps * kTile;
  }
  if (k < cols) {  // an odd K of paired values: the first of the last pair
    Unroll<kPanels>([&](auto p) {
      Float w[Panel::kSteps];
      Panel::Load(panel + p.value * panel_bytes, w);
      Unroll<kTile>([&](auto t) {
        acc[p.value][t.value] = V::Fma(w[0], V::Set1(x[t.value]), acc[p.value][t.value]);
      });
    });
  }
  Unroll<kPanels>([&](auto p) {
    constexpr int64_t kFirst = p.value * V::kLanes;
    const int64_t left = rows - kFirst;
    const auto lanes = static_cast<int>(left < V::kLanes ? left : V::kLanes);
    Unroll<kTile>([&](auto t) {
      Float sum = acc[p.value][t.value];
      if (bias != nullptr) sum = V::Add(sum, V::LoadFirst(bias + kFirst, lanes));
      V::StoreFirst(y + t.value * ldy + kFirst, sum, lanes);
    });
  });
}

/// Few tokens leave registers for more panels, which hide the latency of a chain.
template <int kTile>
inline constexpr int kDensePanels = kTile <= 2 ? 4 : 2;

template <class V, int kTile, DType kType>
void MultiplyDensePanels(const DenseTask& task, int64_t first, int64_t last, const float* x,
                         int64_t begin) {
  constexpr int kPanels = kDensePanels<kTile>;
  for (int64_t p = first; p < last;) {
    const std::byte* panel = task.panels + p * task.panel_bytes;
    const int64_t row = p * V::kLanes;
    const float* bias = task.bias != nullptr ? task.bias + row : nullptr;
    float* y = task.y + begin * task.ldy + row;
    if (last - p >= kPanels) {
      MultiplyDenseTile<V, kTile, kPanels, kType>(panel, task.panel_bytes, task.cols, x, bias, y,
                                                  task.ldy, task.rows - row);
      p += kPanels;
    } else {
      MultiplyDenseTile<V, kTile, 1, kType>(panel, task.panel_bytes, task.cols, x, bias, y,
                                            task.ldy, task.rows - row);
      p += 1;
    }
  }
}

/// Panels that all tiles use before the next ones are read; a multiple of every kDensePanels.
inline constexpr int64_t kDensePanelsStep = 4;

template <class V, int kTileMax, DType kType>
void MultiplyDense(const DenseTask& task) {
  const Tiling tiling(task.tokens_count, kTileMax);
  const int64_t tile_bytes = kTileMax * 4 * task.cols;
  int64_t pass_tiles = 2 * kPassBytes / (tile_bytes + 1);
  if (pass_tiles < 4) pass_tiles = 4;
  for (int64_t first = 0; first < tiling.tiles_count; first += pass_tiles) {
    const int64_t last =
        first + pass_tiles < tiling.tiles_count ? first + pass_tiles : tiling.tiles_count;
    for (int64_t p = task.panel_begin; p < task.panel_end; p += kDensePanelsStep) {
      const int64_t panel_last =
          p + kDensePanelsStep < task.panel_end ? p + kDensePanelsStep : task.panel_end;
      for (int64_t tile = first; tile < last; ++tile) {
        const int64_t begin = tiling.Begin(tile);
        const int64_t tokens = tiling.Begin(tile + 1) - begin;
        const float* x = task.x + begin * task.cols;
        Unroll<kTileMax>([&](auto i) {
          constexpr int kTile = i.value + 1;
          if (tokens == kTile) {
            MultiplyDensePanels<V, kTile, kType>(task, p, panel_last, x, begin);
          }
        });
      }
    }
  }
}

template <class V, int kTileMax>
void MultiplyDenseOf(DType dtype, const DenseTask& task) {
  switch (dtype) {
    case DType::kF32:
      return MultiplyDense<V, kTileMax, DType::kF32>(task);
    case DType::kF16:
      return MultiplyDense<V, kTileMax, DType::kF16>(task);
    case DType::kBF16:
      return MultiplyDense<V, kTileMax, DType::kBF16>(task);
    default:
      return;  // the backend hands over dense weights only
  }
}

inline void InterleaveTile(const float* x, int64_t ldx, int64_t tokens_count, int64_t cols,
                           float* out) {
  for (int64_t t = 0; t < tokens_count; ++t) {
    const float* row = x + t * ldx;
    for (int64_t k = 0; k < cols; ++k) out[k * tokens_count + t] = row[k];
  }
}

}  // namespace
}  // namespace kvasir::kernels::cpu
