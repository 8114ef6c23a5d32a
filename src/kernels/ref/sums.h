// The one way that ref adds up products: in double, over a fixed pattern of lanes.
#pragma once

#include <cstdint>
#include <cstring>

namespace kvasir::kernels::ref {

/// Lane l sums the products at k = l, l + 4, l + 8, ...: independent chains, so that the adds
/// overlap. A GNU vector: whatever instructions it becomes, each lane is plain double arithmetic.
inline constexpr int64_t kLanes = 4;
using Lanes [[gnu::vector_size(sizeof(double) * kLanes)]] = double;

inline void LoadLanes(const double* from, Lanes& to) { std::memcpy(&to, from, sizeof(Lanes)); }

/// sums[t][n] = sum_k x[t * ldx + k] * w[n * ldw + k], for a tile of kT by kN. The order of each
/// sum depends on `k_count` alone, so the tile a pair falls in does not change its bits.
template <int kT, int kN>
void DotTile(const double* x, int64_t ldx, const double* w, int64_t ldw, int64_t k_count,
             double (&sums)[kT][kN]) {
  Lanes lanes[kT][kN] = {};
  int64_t k = 0;
  for (; k + kLanes <= k_count; k += kLanes) {
    Lanes w_lanes[kN];
    for (int n = 0; n < kN; ++n) LoadLanes(w + n * ldw + k, w_lanes[n]);
    for (int t = 0; t < kT; ++t) {
      Lanes x_lanes;
      LoadLanes(x + t * ldx + k, x_lanes);
      for (int n = 0; n < kN; ++n) lanes[t][n] += x_lanes * w_lanes[n];
    }
  }
  for (int t = 0; t < kT; ++t) {
    for (int n = 0; n < kN; ++n) {
      const Lanes& lane = lanes[t][n];
      double sum = (lane[0] + lane[1]) + (lane[2] + lane[3]);
      for (int64_t tail = k; tail < k_count; ++tail) sum += x[t * ldx + tail] * w[n * ldw + tail];
      sums[t][n] = sum;
    }
  }
}

inline double Dot(const double* a, const double* b, int64_t count) {
  double sums[1][1];
  DotTile<1, 1>(a, 0, b, 0, count, sums);
  return sums[0][0];
}

}  // namespace kvasir::kernels::ref
