// Attention over one range of positions for a tile of rows. Included by *_avx2.cc and *_avx512.cc
// only; internal linkage (see simd_avx2.h).
//
// Lanes are positions for q . k (K lies transposed in its block) and dimensions for the weighted
// sum of V, so no sum crosses lanes but that of the softmax, whose lanes are absolute positions.
// Every element is one chain in the order of d, or of positions: rows only share loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/codes_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vector_math.h"

namespace kvasir::kernels::cpu {
namespace {

/// Positions that QkPairs takes at a time: two units.
inline constexpr int64_t kPair = 2 * kUnitPositions;

template <class V, DType kType>
struct KvValues {
  using Float = typename V::Float;
  static constexpr int64_t kBytes = kType == DType::kF32 ? 4 : 2;

  [[gnu::always_inline]] static Float Load(const std::byte* p) {
    if constexpr (kType == DType::kF32) {
      return V::Load(reinterpret_cast<const float*>(p));
    } else if constexpr (kType == DType::kF16) {
      return V::LoadHalf(p);
    } else {
      return V::LoadBf16(p);
    }
  }
  /// 8 values at each of two places, where a vector holds 16.
  [[gnu::always_inline]] static Float LoadTwo(const std::byte* a, const std::byte* b) {
    if constexpr (kType == DType::kF32) {
      return V::LoadTwo(a, b);
    } else if constexpr (kType == DType::kF16) {
      return V::LoadTwoHalf(a, b);
    } else {
      return V::LoadTwoBf16(a, b);
    }
  }
  static Float LoadFirst(const std::byte* p, int count) {
    alignas(64) std::byte values[V::kLanes * kBytes] = {};
    std::memcpy(values, p, static_cast<size_t>(count * kBytes));
    return Load(values);
  }
  static void Store(std::byte* p, Float a) {
    if constexpr (kType == DType::kF32) V::Store(reinterpret_cast<float*>(p), a);
    if constexpr (kType == DType::kF16) V::StoreHalf(p, a);
    if constexpr (kType == DType::kBF16) V::StoreBf16(p, a);
  }
  static void StoreFirst(std::byte* p, Float a, int count) {
    alignas(64) std::byte values[V::kLanes * kBytes];
    Store(values, a);
    std::memcpy(p, values, static_cast<size_t>(count * kBytes));
  }
};

/// Scores of kRows rows at kPairs pairs of units; `units` are the K of each unit, with `width`
/// values from one d to the next; q is [D][kRows]. `soon` is memory that is asked for meanwhile:
/// the K of the next pairs, and the V of these, as large as they are.
template <class V, DType kType, int kRows, int kPairs, bool kJoined>
void QkPairs(const float* q, int64_t head_dim, const std::byte* const* units, int64_t width,
             const std::byte* const* soon, float* scores) {
  using Float = typename V::Float;
  using Kv = KvValues<V, kType>;
  constexpr int kUnits = 2 * kPairs;
  constexpr int kUnitsPerVector = V::kLanes / kUnitPositions;
  constexpr int kVectors = kUnits / kUnitsPerVector;
  const std::byte* p[kUnits];
  Unroll<kUnits>([&](auto u) { p[u.value] = units[u.value]; });
  Float acc[kRows][kVectors];
  Unroll<kRows>(
      [&](auto r) { Unroll<kVectors>([&](auto i) { acc[r.value][i.value] = V::Zero(); }); });
  const int64_t step = width * Kv::kBytes;
  for (int64_t d = 0; d < head_dim; ++d) {
    const int64_t at = d * step;
    Unroll<kPairs>([&](auto i) {
      __builtin_prefetch(soon[2 * i.value] + at);
      // Further off: the second-level cache.
      __builtin_prefetch(soon[2 * i.value + 1] + at, 0, 2);
    });
    Float k[kVectors];
    Unroll<kVectors>([&](auto i) {
      if constexpr (kUnitsPerVector == 1) {
        k[i.value] = Kv::Load(p[i.value] + at);
      } else if constexpr (kJoined) {
        k[i.value] = Kv::Load(p[2 * i.value] + at);
      } else {
        k[i.value] = Kv::LoadTwo(p[2 * i.value] + at, p[2 * i.value + 1] + at);
      }
    });
    Unroll<kRows>([&](auto r) {
      const Float value = V::Set1(q[r.value]);
      Unroll<kVectors>([&](auto i) {
        acc[r.value][i.value] = V::Fma(k[i.value], value, acc[r.value][i.value]);
      });
    });
    q += kRows;
  }
  Unroll<kRows>([&](auto r) {
    Unroll<kVectors>([&](auto i) {
      V::Store(scores + r.value * kRangePositions + i.value * V::kLanes, acc[r.value][i.value]);
    });
  });
}

/// As many pairs at a time as registers allow.
template <class V, int kRows>
inline constexpr int kQkPairs = kRows <= 3 || V::kLanes == 16 ? 2 : 1;

/// Scores of positions [begin, end) rounded out to pairs.
template <class V, DType kType, int kRows, bool kJoined>
void Qk(const AttendTask& task, const float* q, int32_t begin, int32_t end, float* scores) {
  constexpr int kPairs = kQkPairs<V, kRows>;
  // The caller set the K of whole groups of positions that lie side by side.
  const int64_t group = task.key_width == kPair ? kPair : kUnitPositions;
  const int64_t unit_begin = begin / group * group / kUnitPositions;
  const int64_t unit_end = (end + group - 1) / group * group / kUnitPositions;
  const int64_t pair_end = (end + kPair - 1) / kPair;
  for (int64_t pair = begin / kPair; pair < pair_end;) {
    const int64_t pairs = pair_end - pair >= kPairs ? kPairs : 1;
    const std::byte* units[2 * kPairs];
    const std::byte* soon[2 * kPairs];
    // A unit that no row reads has no K: any other serves, its scores are masked.
    const auto known = [&](int64_t unit) {
      return unit < unit_begin ? unit_begin : unit >= unit_end ? unit_end - 1 : unit;
    };
    for (int64_t i = 0; i < pairs; ++i) {
      const int64_t first = 2 * (pair + i);
      units[2 * i] = task.keys[known(first)];
      units[2 * i + 1] = task.keys[known(first + 1)];
      soon[2 * i] = task.keys[known(first + 2 * pairs)];
      soon[2 * i + 1] = task.values[known(first)];
    }
    float* out = scores + pair * kPair;
    if (pairs == kPairs) {
      QkPairs<V, kType, kRows, kPairs, kJoined>(q, task.head_dim, units, task.key_width, soon, out);
    } else {
      QkPairs<V, kType, kRows, 1, kJoined>(q, task.head_dim, units, task.key_width, soon, out);
    }
    pair += pairs;
  }
}

/// Scores to weights exp(score - max) in place, for positions [begin, end).
template <class V>
void SoftmaxRow(float* scores, int32_t begin, int32_t end, float softcap, float* max, float* sum) {
  using Float = typename V::Float;
  const auto first = static_cast<int32_t>(begin / kPair * kPair);
  const auto last = static_cast<int32_t>((end + kPair - 1) / kPair * kPair);
  if (softcap != 0.0f) {
    for (int32_t j = first; j < last; j += V::kLanes) {
      V::Store(scores + j, SoftCap<V>(V::Load(scores + j), softcap));
    }
  }
  const float none = -__builtin_inff();
  for (int32_t j = first; j < begin; ++j) scores[j] = none;
  for (int32_t j = end; j < last; ++j) scores[j] = none;
  Float top = V::Set1(none);
  for (int32_t j = first; j < last; j += V::kLanes) top = V::Max(top, V::Load(scores + j));
  *max = V::ReduceMax(top);
  const Float highest = V::Set1(*max);
  Float sums[2] = {V::Zero(), V::Zero()};
  for (int32_t j = first; j < last; j += kPair) {
    for (int32_t i = 0; i < kPair / V::kLanes; ++i) {
      float* at = scores + j + i * V::kLanes;
      const Float weight = Exp<V>(V::Sub(V::Load(at), highest));
      V::Store(at, weight);
      sums[i] = V::Add(sums[i], weight);
    }
  }
  *sum = V::ReduceAdd(V::Add(sums[0], sums[1]));
}

/// out[r][0, kVectors lanes) += weights[r][j] v[j] over `count` positions whose V lie `step` apart.
/// `soon` is memory laid out likewise that is asked for meanwhile.
template <class V, DType kType, int kRows, int kVectors>
void PvVectors(const float* weights, const std::byte* v, int64_t step, int64_t count,
               const std::byte* soon, float* out, int64_t ldo) {
  using Float = typename V::Float;
  using Kv = KvValues<V, kType>;
  Float acc[kRows][kVectors];
  Unroll<kRows>([&](auto r) {
    Unroll<kVectors>([&](auto i) {
      acc[r.value][i.value] = V::Load(out + r.value * ldo + i.value * V::kLanes);
    });
  });
  for (int64_t j = 0; j < count; ++j) {
    __builtin_prefetch(soon, 0, 2);
    soon += step;
    Float values[kVectors];
    Unroll<kVectors>(
        [&](auto i) { values[i.value] = Kv::Load(v + i.value * V::kLanes * Kv::kBytes); });
    Unroll<kRows>([&](auto r) {
      const Float weight = V::Set1(weights[r.value * kRangePositions + j]);
      Unroll<kVectors>([&](auto i) {
        acc[r.value][i.value] = V::Fma(weight, values[i.value], acc[r.value][i.value]);
      });
    });
    v += step;
  }
  Unroll<kRows>([&](auto r) {
    Unroll<kVectors>([&](auto i) {
      V::Store(out + r.value * ldo + i.value * V::kLanes, acc[r.value][i.value]);
    });
  });
}

/// Vectors of d at a time: accumulators for about 12 registers (24 where there are 32).
template <class V, int kRows>
inline constexpr int kPvVectors = kRows == 1                      ? 8
                                  : kRows <= 3 || V::kLanes == 16 ? 4
                                                                  : 2;

template <class V, DType kType, int kRows>
void PvRun(const float* weights, const std::byte* v, int64_t head_dim, int64_t count,
           const std::byte* soon, float* out) {
  using Kv = KvValues<V, kType>;
  constexpr int kVectors = kPvVectors<V, kRows>;
  const int64_t step = head_dim * Kv::kBytes;
  int64_t d = 0;
  for (; d + kVectors * V::kLanes <= head_dim; d += kVectors * V::kLanes) {
    PvVectors<V, kType, kRows, kVectors>(weights, v + d * Kv::kBytes, step, count,
                                         soon + d * Kv::kBytes, out + d, head_dim);
  }
  for (; d + V::kLanes <= head_dim; d += V::kLanes) {
    PvVectors<V, kType, kRows, 1>(weights, v + d * Kv::kBytes, step, count, soon + d * Kv::kBytes,
                                  out + d, head_dim);
  }
  if (d < head_dim) {
    const auto left = static_cast<int>(head_dim - d);
    for (int r = 0; r < kRows; ++r) {
      typename V::Float acc = V::LoadFirst(out + r * head_dim + d, left);
      for (int64_t j = 0; j < count; ++j) {
        acc = V::Fma(V::Set1(weights[r * kRangePositions + j]),
                     Kv::LoadFirst(v + j * step + d * Kv::kBytes, left), acc);
      }
      V::StoreFirst(out + r * head_dim + d, acc, left);
    }
  }
}

/// PvRun over positions [begin, end), in runs whose V lie one after the other.
template <class V, DType kType, int kRows>
void Pv(const AttendTask& task, const float* weights, int32_t begin, int32_t end, float* out) {
  const int64_t step = task.head_dim * KvValues<V, kType>::kBytes;
  const int64_t unit = task.key_width == 1 ? 1 : kUnitPositions;
  for (int64_t j = begin; j < end;) {
    const std::byte* v = task.values[j / unit] + j % unit * step;
    int64_t next = (j / unit + 1) * unit;
    while (next < end && task.values[next / unit] == v + (next - j) * step) next += unit;
    const int64_t last = next < end ? next : end;
    // The K of the next range takes as many bytes as the V of this one.
    const std::byte* soon = unit == 1 ? v : task.next_keys[j / unit];
    if (soon == nullptr) soon = v;
    PvRun<V, kType, kRows>(weights + j, v, task.head_dim, last - j, soon, out);
    j = last;
  }
}

/// Where blocks are no multiple of a unit, K lies row by row: turned around here, 16 positions at a
/// time, into the layout of a block of 16.
template <class V, DType kType, int kRows>
void QkByRow(const AttendTask& task, const float* q, int32_t begin, int32_t end, float* scores) {
  using Kv = KvValues<V, kType>;
  const int64_t dim = task.head_dim;
  float* turned = task.key_scratch;
  for (int64_t first = begin / kPair * kPair; first < end; first += kPair) {
    for (int64_t i = 0; i < kPair; ++i) {
      int64_t j = first + i;
      j = j < begin ? begin : j >= end ? end - 1 : j;
      for (int64_t d = 0; d < dim; d += V::kLanes) {
        const auto left = static_cast<int>(dim - d < V::kLanes ? dim - d : V::kLanes);
        alignas(64) float values[V::kLanes];
        V::Store(values, Kv::LoadFirst(task.keys[j] + d * Kv::kBytes, left));
        for (int n = 0; n < left; ++n) turned[(d + n) * kPair + i] = values[n];
      }
    }
    const auto* p = reinterpret_cast<const std::byte*>(turned);
    const std::byte* units[2] = {p, p + kUnitPositions * sizeof(float)};
    QkPairs<V, DType::kF32, kRows, 1, true>(q, dim, units, kPair, units, scores + first);
  }
}

template <class V, DType kType, int kRows>
void AttendChunk(const AttendTask& task, int64_t row) {
  int32_t begin = task.begin[row];
  int32_t end = task.end[row];
  int32_t common_begin = begin;
  int32_t common_end = end;
  for (int64_t r = row + 1; r < row + kRows; ++r) {
    begin = task.begin[r] < begin ? task.begin[r] : begin;
    end = task.end[r] > end ? task.end[r] : end;
    common_begin = task.begin[r] > common_begin ? task.begin[r] : common_begin;
    common_end = task.end[r] < common_end ? task.end[r] : common_end;
  }
  float* scores = task.scores + row * kRangePositions;
  const float* q = task.q + row * task.head_dim;
  if (task.key_width == 1) {
    QkByRow<V, kType, kRows>(task, q, begin, end, scores);
  } else {
    // Vectors of 8 positions are loaded alike in either layout.
    if (V::kLanes == kUnitPositions || task.key_width == kPair) {
      Qk<V, kType, kRows, true>(task, q, begin, end, scores);
    } else {
      Qk<V, kType, kRows, V::kLanes == kUnitPositions>(task, q, begin, end, scores);
    }
  }
  float* out = task.out + row * task.head_dim;
  std::memset(out, 0, static_cast<size_t>(kRows * task.head_dim) * sizeof(float));
  for (int64_t r = row; r < row + kRows; ++r) {
    SoftmaxRow<V>(task.scores + r * kRangePositions, task.begin[r], task.end[r], task.softcap,
                  &task.max[r], &task.sum[r]);
  }
  if (common_begin >= common_end) common_begin = common_end = begin;
  // A row reads no position beyond its own: what lies there may be anything, NaN included.
  const auto alone = [&](int64_t r, int32_t from, int32_t to) {
    if (from < to) {
      Pv<V, kType, 1>(task, task.scores + r * kRangePositions, from, to,
                      task.out + r * task.head_dim);
    }
  };
  for (int64_t r = row; r < row + kRows; ++r) alone(r, task.begin[r], common_begin);
  Pv<V, kType, kRows>(task, scores, common_begin, common_end, out);
  for (int64_t r = row; r < row + kRows; ++r) {
    alone(r, task.begin[r] > common_end ? task.begin[r] : common_end, task.end[r]);
  }
}

template <class V, DType kType>
void AttendOf(const AttendTask& task) {
  const Tiling chunks(task.rows_count, kAttentionChunk);
  for (int64_t chunk = 0; chunk < chunks.tiles_count; ++chunk) {
    const int64_t row = chunks.Begin(chunk);
    const int64_t rows = chunks.Begin(chunk + 1) - row;
    Unroll<kAttentionChunk>([&](auto i) {
      if (rows == i.value + 1) AttendChunk<V, kType, i.value + 1>(task, row);
    });
  }
}

template <class V>
void Attend(const AttendTask& task) {
  switch (task.dtype) {
    case DType::kF32:
      return AttendOf<V, DType::kF32>(task);
    case DType::kF16:
      return AttendOf<V, DType::kF16>(task);
    default:
      return AttendOf<V, DType::kBF16>(task);
  }
}

/// out[i] = a[i] x + b[i] y over [0, count), vectors and their tail alike.
template <class V>
void Blend(const float* a, float x, const float* b, float y, int64_t count, float* out) {
  const typename V::Float vx = V::Set1(x);
  const typename V::Float vy = V::Set1(y);
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    V::Store(out + i, V::Fma(V::Load(a + i), vx, V::Mul(V::Load(b + i), vy)));
  }
  if (i < count) {
    const auto left = static_cast<int>(count - i);
    const typename V::Float second = V::Mul(V::LoadFirst(b + i, left), vy);
    V::StoreFirst(out + i, V::Fma(V::LoadFirst(a + i, left), vx, second), left);
  }
}

template <class V>
float ExpOne(float x) {
  alignas(64) float lanes[V::kLanes];
  V::Store(lanes, Exp<V>(V::Set1(x)));
  return lanes[0];
}

template <class V>
void MergeRange(float* max, float* sum, float* out, float other_max, float other_sum,
                const float* other_out, int64_t head_dim) {
  // Written so that a NaN on either side stays.
  const float top = *max > other_max ? *max : other_max;
  const float mine = ExpOne<V>(*max - top);
  const float others = ExpOne<V>(other_max - top);
  *max = top;
  *sum = *sum * mine + other_sum * others;
  Blend<V>(out, mine, other_out, others, head_dim, out);
}

template <class V>
void FinishRow(float max, float sum, const float* out, const float* sink, int64_t head_dim,
               float* y) {
  float scale = 1.0f;
  if (sink != nullptr) {
    const float top = *sink > max ? *sink : max;
    scale = ExpOne<V>(max - top);
    sum = sum * scale + ExpOne<V>(*sink - top);
  }
  const typename V::Float factor = V::Set1(scale / sum);
  int64_t i = 0;
  for (; i + V::kLanes <= head_dim; i += V::kLanes) {
    V::Store(y + i, V::Mul(V::Load(out + i), factor));
  }
  if (i < head_dim) {
    const auto left = static_cast<int>(head_dim - i);
    V::StoreFirst(y + i, V::Mul(V::LoadFirst(out + i, left), factor), left);
  }
}

template <class V, DType kType>
void StoreRowOf(const float* k, const float* v, int64_t head_dim, int64_t key_width, int64_t offset,
                std::byte* keys, std::byte* values) {
  using Kv = KvValues<V, kType>;
  constexpr int64_t kBytes = Kv::kBytes;
  std::byte* key = keys + (offset / key_width * head_dim * key_width + offset % key_width) * kBytes;
  std::byte* value = values + offset * head_dim * kBytes;
  for (int64_t d = 0; d < head_dim; d += V::kLanes) {
    const auto left = static_cast<int>(head_dim - d < V::kLanes ? head_dim - d : V::kLanes);
    alignas(64) std::byte row[V::kLanes * kBytes];
    Kv::Store(row, V::LoadFirst(k + d, left));
    for (int64_t i = 0; i < left; ++i) {
      std::memcpy(key + (d + i) * key_width * kBytes, row + i * kBytes, kBytes);
    }
    Kv::StoreFirst(value + d * kBytes, V::LoadFirst(v + d, left), left);
  }
}

template <class V>
void StoreRow(const float* k, const float* v, DType dtype, int64_t head_dim, int64_t key_width,
              int64_t offset, std::byte* keys, std::byte* values) {
  switch (dtype) {
    case DType::kF32:
      return StoreRowOf<V, DType::kF32>(k, v, head_dim, key_width, offset, keys, values);
    case DType::kF16:
      return StoreRowOf<V, DType::kF16>(k, v, head_dim, key_width, offset, keys, values);
    default:
      return StoreRowOf<V, DType::kBF16>(k, v, head_dim, key_width, offset, keys, values);
  }
}

}  // namespace
}  // namespace kvasir::kernels::cpu
