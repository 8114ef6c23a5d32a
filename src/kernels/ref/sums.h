// The one way that ref adds up products: in double, over a fixed pattern of four lanes.
#pragma once

#include <cstdint>
#include <cstring>

namespace kvasir::kernels::ref {

/// A GNU vector: whatever instructions it becomes, each lane is plain double arithmetic.
using DoublePair [[gnu::vector_size(2 * sizeof(double))]] = double;

[[nodiscard]] inline DoublePair LoadPair(const double* from) {
  DoublePair pair;
  std::memcpy(&pair, from, sizeof pair);
  return pair;
}

/// A sum under way. Lane l sums the products at k = l, l + 4, l + 8, ...: independent chains, so
/// that the adds overlap; what is left of the row behind the last four is added to the lanes' sum.
struct LaneSum {
  DoublePair low = {};
  DoublePair high = {};

  void Add(DoublePair x_low, DoublePair x_high, DoublePair w_low, DoublePair w_high) {
    low += x_low * w_low;
    high += x_high * w_high;
  }
  [[nodiscard]] double Finish(const double* x, const double* w, int64_t k, int64_t k_count) const {
    double sum = (low[0] + low[1]) + (high[0] + high[1]);
    for (; k < k_count; ++k) sum += x[k] * w[k];
    return sum;
  }
};

/// sum_k x[k] * w[k].
[[nodiscard]] inline double Dot(const double* x, const double* w, int64_t k_count) {
  LaneSum sum;
  int64_t k = 0;
  for (; k + 4 <= k_count; k += 4) {
    sum.Add(LoadPair(x + k), LoadPair(x + k + 2), LoadPair(w + k), LoadPair(w + k + 2));
  }
  return sum.Finish(x, w, k, k_count);
}

/// The four dots of two rows of x and two of w, in the same order as Dot: each value that is loaded
/// serves two of them.
struct DotTile {
  double x0_w0, x0_w1, x1_w0, x1_w1;
};
[[nodiscard]] inline DotTile DotTwoByTwo(const double* x0, const double* x1, const double* w0,
                                         const double* w1, int64_t k_count) {
  LaneSum sum00, sum01, sum10, sum11;
  int64_t k = 0;
  for (; k + 4 <= k_count; k += 4) {
    const DoublePair w0_low = LoadPair(w0 + k);
    const DoublePair w0_high = LoadPair(w0 + k + 2);
    const DoublePair w1_low = LoadPair(w1 + k);
    const DoublePair w1_high = LoadPair(w1 + k + 2);
    const DoublePair x0_low = LoadPair(x0 + k);
    const DoublePair x0_high = LoadPair(x0 + k + 2);
    sum00.Add(x0_low, x0_high, w0_low, w0_high);
    sum01.Add(x0_low, x0_high, w1_low, w1_high);
    const DoublePair x1_low = LoadPair(x1 + k);
    const DoublePair x1_high = LoadPair(x1 + k + 2);
    sum10.Add(x1_low, x1_high, w0_low, w0_high);
    sum11.Add(x1_low, x1_high, w1_low, w1_high);
  }
  return {sum00.Finish(x0, w0, k, k_count), sum01.Finish(x0, w1, k, k_count),
          sum10.Finish(x1, w0, k, k_count), sum11.Finish(x1, w1, k, k_count)};
}

}  // namespace kvasir::kernels::ref
