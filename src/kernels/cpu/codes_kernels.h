// Quantized weights times int8 activations, as templates over an instruction set. Included by
// *_avx2.cc and *_avx512.cc only; internal linkage (see simd_avx2.h).
//
// y[n] = sum over blocks of 32 k, in order, of
//   fma(float(dot of codes), scale_w * scale_x, y[n]), then fma(min_w, sum_x, y[n])
// for each group that has a scale of its own. The dot is exact in integers, so how its terms are
// grouped does not matter; every path below adds the floats in this one order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panel_format.h"

namespace kvasir::kernels::cpu {
namespace {

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

/// body(Constant<0>{}), ..., body(Constant<kCount - 1>{}).
template <int kCount, int kNext = 0, typename Body>
[[gnu::always_inline]] inline void Unroll(Body&& body) {
  if constexpr (kNext < kCount) {
    body(Constant<kNext>{});
    Unroll<kCount, kNext + 1>(body);
  }
}

inline int32_t LoadWord(const void* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

// IQ4_NL's code book (tensor/blocks.h), and the same with 128 added for unsigned bytes.
alignas(16) constexpr int8_t kCodeBook[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
alignas(16) constexpr uint8_t kCodeBookBiased[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                     129, 141, 153, 166, 181, 197, 217, 241};

/// How large codes may be, which says how many byte products a 16-bit lane can hold: pairs of
/// products reach 2 * max * 127, and 32767 is the end.
enum class CodeRange { kTo15, kTo31, kTo63, kSigned };

template <class V>
constexpr CodeRange RangeOf(PanelFormat format) {
  if (V::kHasDotProduct) return CodeRange::kTo15;  // of no account there
  if (format.signed_bytes) return CodeRange::kSigned;
  const int bits = format.low_bits + format.high_bits;
  return bits <= 4 ? CodeRange::kTo15 : bits == 5 ? CodeRange::kTo31 : CodeRange::kTo63;
}

/// How far ahead of the codes in use memory is asked for. Few instructions are in flight where many
/// tokens share a load, and the machine's own prefetching alone leaves half of its bandwidth
/// unused.
inline constexpr int64_t kPrefetchBytes = 2048;

/// The panel as Backend::Pack left it.
template <class V, DType kType>
struct Packed {
  using Float = typename V::Float;
  using Int = typename V::Int;
  static constexpr PanelFormat kFormat = PanelFormatOf(kType);
  static constexpr CodeRange kRange = RangeOf<V>(kFormat);
  static constexpr int kGroups = 32 / kFormat.group();
  static constexpr bool kHasMin = kFormat.has_min();
  static constexpr bool kHasZero =
      !kHasMin && (kFormat.zero != 0 || (kFormat.signed_bytes && V::kHasDotProduct));
  static constexpr int64_t kVectorBytes = 4 * V::kLanes;

  const std::byte* records;
  const std::byte* block;  ///< codes of the current block

  explicit Packed(const std::byte* panel, int64_t codes_offset)
      : records(panel), block(panel + codes_offset) {}
  void Next() {
    constexpr int64_t kBytes = V::kLanes * kFormat.code_bytes();
    for (int64_t i = 0; i < kBytes; i += 64) __builtin_prefetch(block + kPrefetchBytes + i);
    block += V::kLanes * kFormat.code_bytes();
  }

  /// Vector v of the current block.
  template <int v>
  [[gnu::always_inline]] Int Vector() const {
    constexpr int kLow = kFormat.low_bits;
    if constexpr (kLow == 8) return V::LoadInt(block + v * kVectorBytes);
    Int codes;
    if constexpr (kLow == 4) {
      codes = V::And(V::template Shift16<-4 * (v / 4)>(V::LoadInt(block + v % 4 * kVectorBytes)),
                     V::Set1Byte(15));
    } else {
      codes = V::And(V::template Shift16<-2 * (v % 4)>(V::LoadInt(block + v / 4 * kVectorBytes)),
                     V::Set1Byte(3));
    }
    if constexpr (kFormat.high_bits == 1) {
      const Int high = V::LoadInt(block + kLow * kVectorBytes);
      codes = V::OrAnd(codes, V::template Shift16<kLow - v>(high), V::Set1Byte(1 << kLow));
    } else if constexpr (kFormat.high_bits == 2) {
      const Int high = V::LoadInt(block + (kLow + v / 4) * kVectorBytes);
      codes =
          V::OrAnd(codes, V::template Shift16<kLow - 2 * (v % 4)>(high), V::Set1Byte(3 << kLow));
    }
    if constexpr (kFormat.signed_bytes) {
      const void* book = kCodeBook;
      if constexpr (V::kHasDotProduct) book = kCodeBookBiased;
      codes = V::Lookup(book, codes);
    }
    return codes;
  }

  template <int group>
  [[gnu::always_inline]] void LoadScale(int64_t b, Float& scale, Float& min) const {
    constexpr int64_t kLanes = V::kLanes;
    const std::byte* record =
        records + b / kFormat.record_blocks() * kLanes * kFormat.record_bytes();
    const int64_t s = b % kFormat.record_blocks();
    const Float d = V::LoadHalf(record);
    if constexpr (kFormat.scales == Scales::kBlock) {
      scale = d;
    } else if constexpr (kFormat.scales == Scales::kBlockMin) {
      scale = d;
      min = V::LoadHalf(record + 2 * kLanes);
    } else if constexpr (kFormat.scales == Scales::kSuperMin32) {
      const std::byte* sub = record + (4 + 2 * s) * kLanes;
      scale = V::Mul(d, V::ToFloat(V::LoadU8(sub)));
      min = Negated(V::Mul(V::LoadHalf(record + 2 * kLanes), V::ToFloat(V::LoadU8(sub + kLanes))));
    } else if constexpr (kFormat.scales == Scales::kSuperSigned16) {
      scale = V::Mul(d, V::ToFloat(V::LoadS8(record + (2 + 2 * s + group) * kLanes)));
    } else {
      const Int both = V::LoadU8(record + (4 + 2 * s + group) * kLanes);
      scale = V::Mul(d, V::ToFloat(V::And(both, V::Set1Int(15))));
      min = Negated(
          V::Mul(V::LoadHalf(record + 2 * kLanes), V::ToFloat(V::template Shift16<-4>(both))));
    }
  }
  static Float Negated(Float a) { return V::Sub(V::Zero(), a); }
};

/// The panel widened: [block] of 8 vectors of bytes, then [group] of float scale and min.
template <class V, CodeRange range, int groups, bool has_min, bool has_zero>
struct Widened {
  using Float = typename V::Float;
  using Int = typename V::Int;
  static constexpr CodeRange kRange = range;
  static constexpr int kGroups = groups;
  static constexpr bool kHasMin = has_min;
  static constexpr bool kHasZero = has_zero;
  static constexpr int64_t kVectorBytes = 4 * V::kLanes;
  static constexpr int64_t kBlockBytes = (8 + groups * (has_min ? 2 : 1)) * kVectorBytes;

  const std::byte* block;

  explicit Widened(const std::byte* scratch) : block(scratch) {}
  void Next() { block += kBlockBytes; }
  template <int v>
  [[gnu::always_inline]] Int Vector() const {
    return V::LoadInt(block + v * kVectorBytes);
  }
  template <int group>
  [[gnu::always_inline]] void LoadScale(int64_t, Float& scale, Float& min) const {
    const auto* floats = reinterpret_cast<const float*>(block + 8 * kVectorBytes);
    constexpr int kStep = has_min ? 2 : 1;
    scale = V::Load(floats + group * kStep * V::kLanes);
    if constexpr (has_min) min = V::Load(floats + (group * kStep + 1) * V::kLanes);
  }
};

template <class V, class Source>
using WidenedOf = Widened<V, Source::kRange, Source::kGroups, Source::kHasMin, Source::kHasZero>;

template <class V, class Source>
void Widen(Source source, int64_t blocks_count, std::byte* scratch) {
  using Target = WidenedOf<V, Source>;
  for (int64_t b = 0; b < blocks_count; ++b, source.Next(), scratch += Target::kBlockBytes) {
    Unroll<8>([&](auto v) {
      V::StoreInt(scratch + v.value * Target::kVectorBytes, source.template Vector<v.value>());
    });
    auto* floats = reinterpret_cast<float*>(scratch + 8 * Target::kVectorBytes);
    Unroll<Target::kGroups>([&](auto group) {
      typename V::Float scale = V::Zero();
      typename V::Float min = V::Zero();
      source.template LoadScale<group.value>(b, scale, min);
      V::Store(floats, scale);
      floats += V::kLanes;
      if constexpr (Target::kHasMin) {
        V::Store(floats, min);
        floats += V::kLanes;
      }
    });
  }
}

/// dots[t] += the dot products of vectors [kFirst, kFirst + kCount) with the activations of kTile
/// tokens.
template <class V, int kTile, int kFirst, int kCount, class Source>
[[gnu::always_inline]] inline void AddDots(const Source& source, const int8_t* x,
                                           typename V::Int (&dots)[kTile]) {
  using Int = typename V::Int;
  if constexpr (V::kHasDotProduct) {
    Unroll<kCount>([&](auto i) {
      // Pairs of vectors that share a load follow each other.
      constexpr int v = kFirst + (kCount == 8 ? i.value / 2 + 4 * (i.value % 2) : i.value);
      const Int w = source.template Vector<v>();
      Unroll<kTile>([&](auto t) {
        dots[t.value] =
            V::DotProduct(dots[t.value], w, V::Set1Int(LoadWord(x + 32 * t.value + 4 * v)));
      });
    });
  } else if constexpr (Source::kRange == CodeRange::kSigned) {
    Unroll<kCount>([&](auto i) {
      constexpr int v = kFirst + (kCount == 8 ? i.value / 2 + 4 * (i.value % 2) : i.value);
      const Int w = source.template Vector<v>();
      const Int magnitude = V::AbsByte(w);
      Unroll<kTile>([&](auto t) {
        const Int signed_x = V::SignByte(V::Set1Int(LoadWord(x + 32 * t.value + 4 * v)), w);
        dots[t.value] =
            V::Pinned(V::AddInt(dots[t.value], V::SumPairs(V::MulPairs(magnitude, signed_x))));
      });
    });
  } else {
    // Byte products are added in 16 bits as long as they fit.
    constexpr int kFit = Source::kRange == CodeRange::kTo15   ? 8
                         : Source::kRange == CodeRange::kTo31 ? 4
                                                              : 2;
    constexpr int kRun = kFit < kCount ? kFit : kCount;
    Unroll<kCount / kRun>([&](auto run) {
      Int sums[kTile];
      Unroll<kRun>([&](auto j) {
        constexpr int i = run.value * kRun + j.value;
        constexpr int v = kFirst + (kCount == 8 ? i / 2 + 4 * (i % 2) : i);
        const Int w = source.template Vector<v>();
        Unroll<kTile>([&](auto t) {
          const Int pairs = V::MulPairs(w, V::Set1Int(LoadWord(x + 32 * t.value + 4 * v)));
          sums[t.value] = j.value == 0 ? pairs : V::Pinned(V::Add16(sums[t.value], pairs));
        });
      });
      Unroll<kTile>(
          [&](auto t) { dots[t.value] = V::AddInt(dots[t.value], V::SumPairs(sums[t.value])); });
    });
  }
}

/// y[t][0, rows) for one panel and one tile of kTile tokens.
template <class V, int kTile, class Source>
void MultiplyTile(Source source, int64_t blocks_count, const int8_t* x, const float* x_scales,
                  const void* x_sums, const float* bias, float* y, int64_t ldy, int rows) {
  using Float = typename V::Float;
  using Int = typename V::Int;
  constexpr int kGroups = Source::kGroups;
  const auto* zero_sums = static_cast<const int32_t*>(x_sums);
  const auto* min_sums = static_cast<const float*>(x_sums);
  Float acc[kTile];
  Unroll<kTile>([&](auto t) { acc[t.value] = V::Zero(); });
  for (int64_t b = 0; b < blocks_count; ++b) {
    Unroll<kGroups>([&](auto group) {
      Int dots[kTile];
      Unroll<kTile>([&](auto t) {
        if constexpr (Source::kHasZero) {
          dots[t.value] = V::Set1Int(zero_sums[t.value * kGroups + group.value]);
        } else {
          dots[t.value] = V::ZeroInt();
        }
      });
      AddDots<V, kTile, group.value * 8 / kGroups, 8 / kGroups>(source, x, dots);
      Float scale = V::Zero();
      Float min = V::Zero();
      source.template LoadScale<group.value>(b, scale, min);
      Unroll<kTile>([&](auto t) {
        const Float both = V::Mul(scale, V::Set1(x_scales[t.value]));
        acc[t.value] = V::Fma(V::ToFloat(dots[t.value]), both, acc[t.value]);
        if constexpr (Source::kHasMin) {
          const Float sum = V::Set1(min_sums[t.value * kGroups + group.value]);
          acc[t.value] = V::Fma(min, sum, acc[t.value]);
        }
      });
    });
    source.Next();
    x += 32 * kTile;
    x_scales += kTile;
    if constexpr (Source::kHasZero) zero_sums += kTile * kGroups;
    if constexpr (Source::kHasMin) min_sums += kTile * kGroups;
  }
  if (rows == V::kLanes) {
    const Float b = bias != nullptr ? V::Load(bias) : V::Zero();
    Unroll<kTile>([&](auto t) {
      V::Store(y + t.value * ldy, bias != nullptr ? V::Add(acc[t.value], b) : acc[t.value]);
    });
  } else {
    const Float b = bias != nullptr ? V::LoadFirst(bias, rows) : V::Zero();
    Unroll<kTile>([&](auto t) {
      V::StoreFirst(y + t.value * ldy, bias != nullptr ? V::Add(acc[t.value], b) : acc[t.value],
                    rows);
    });
  }
}

template <class V, int kTileMax, class Source>
void MultiplyTileOf(int64_t tokens, Source source, int64_t blocks_count, const int8_t* x,
                    const float* x_scales, const void* x_sums, const float* bias, float* y,
                    int64_t ldy, int rows) {
  Unroll<kTileMax>([&](auto i) {
    constexpr int kTile = i.value + 1;
    if (tokens == kTile) {
      MultiplyTile<V, kTile>(source, blocks_count, x, x_scales, x_sums, bias, y, ldy, rows);
    }
  });
}

/// Tiles beyond which a panel is widened once rather than unpacked for every tile.
inline constexpr int64_t kTilesUnpacked = 3;
/// Activation bytes that a pass over the panels works on: they stay in the second-level cache
/// beside the panels that stream through.
inline constexpr int64_t kPassBytes = int64_t{192} << 10;

template <class V, int kTileMax, DType kType>
void MultiplyCodes(const CodesTask& task) {
  using Source = Packed<V, kType>;
  using Target = WidenedOf<V, Source>;
  const Tiling tiling(task.tokens_count, kTileMax);
  const int64_t tile_bytes = kTileMax * 32 * task.blocks_count;
  int64_t pass_tiles = kPassBytes / (tile_bytes + 1);
  if (pass_tiles < kTilesUnpacked) pass_tiles = kTilesUnpacked;
  for (int64_t first = 0; first < tiling.tiles_count; first += pass_tiles) {
    const int64_t last =
        first + pass_tiles < tiling.tiles_count ? first + pass_tiles : tiling.tiles_count;
    for (int64_t p = task.panel_begin; p < task.panel_end; ++p) {
      const Source source(task.panels + p * task.panel_bytes, task.codes_offset);
      const int64_t row = p * V::kLanes;
      const auto rows = static_cast<int>(task.rows - row < V::kLanes ? task.rows - row : V::kLanes);
      const float* bias = task.bias != nullptr ? task.bias + row : nullptr;
      const bool widen = last - first > kTilesUnpacked;
      if (widen) Widen<V>(source, task.blocks_count, task.scratch);
      for (int64_t tile = first; tile < last; ++tile) {
        const int64_t begin = tiling.Begin(tile);
        const int64_t tokens = tiling.Begin(tile + 1) - begin;
        const int64_t at = begin * task.blocks_count;
        const int8_t* x = task.x_codes + at * 32;
        const float* x_scales = task.x_scales + at;
        const void* x_sums = task.x_sums;
        if constexpr (Source::kHasZero || Source::kHasMin) {
          x_sums = static_cast<const float*>(x_sums) + at * Source::kGroups;
        }
        float* y = task.y + begin * task.ldy + row;
        if (widen) {
          MultiplyTileOf<V, kTileMax>(tokens, Target(task.scratch), task.blocks_count, x, x_scales,
                                      x_sums, bias, y, task.ldy, rows);
        } else {
          MultiplyTileOf<V, kTileMax>(tokens, source, task.blocks_count, x, x_scales, x_sums, bias,
                                      y, task.ldy, rows);
        }
      }
    }
  }
}

template <class V, int kTileMax>
void MultiplyCodesOf(DType dtype, const CodesTask& task) {
  switch (dtype) {
    case DType::kQ4_0:
      return MultiplyCodes<V, kTileMax, DType::kQ4_0>(task);
    case DType::kQ4_1:
      return MultiplyCodes<V, kTileMax, DType::kQ4_1>(task);
    case DType::kQ5_0:
      return MultiplyCodes<V, kTileMax, DType::kQ5_0>(task);
    case DType::kQ5_1:
      return MultiplyCodes<V, kTileMax, DType::kQ5_1>(task);
    case DType::kQ8_0:
      return MultiplyCodes<V, kTileMax, DType::kQ8_0>(task);
    case DType::kIQ4_NL:
      return MultiplyCodes<V, kTileMax, DType::kIQ4_NL>(task);
    case DType::kQ2_K:
      return MultiplyCodes<V, kTileMax, DType::kQ2_K>(task);
    case DType::kQ3_K:
      return MultiplyCodes<V, kTileMax, DType::kQ3_K>(task);
    case DType::kQ4_K:
      return MultiplyCodes<V, kTileMax, DType::kQ4_K>(task);
    case DType::kQ5_K:
      return MultiplyCodes<V, kTileMax, DType::kQ5_K>(task);
    case DType::kQ6_K:
      return MultiplyCodes<V, kTileMax, DType::kQ6_K>(task);
    default:
      return;  // the backend hands over quantized weights only
  }
}

template <class V>
void QuantizeTile(const QuantizeTask& task) {
  const int64_t tokens = task.tokens_count;
  for (int64_t t = 0; t < tokens; ++t) {
    const float* x = task.x + t * task.ldx;
    for (int64_t b = 0; b < task.blocks_count; ++b) {
      const int64_t at = b * tokens + t;
      int32_t halves[2];
      const float scale = V::QuantizeBlock(x + 32 * b, task.codes + at * 32, halves);
      task.scales[at] = scale;
      for (int i = 0; i < task.sums_count; ++i) {
        const SumsSpec& spec = task.specs[i];
        if (spec.is_float) {
          auto* sums = static_cast<float*>(task.sums[i]) + at * spec.groups;
          if (spec.groups == 1) {
            sums[0] = scale * static_cast<float>(halves[0] + halves[1]);
          } else {
            sums[0] = scale * static_cast<float>(halves[0]);
            sums[1] = scale * static_cast<float>(halves[1]);
          }
        } else {
          auto* sums = static_cast<int32_t*>(task.sums[i]) + at * spec.groups;
          if (spec.groups == 1) {
            sums[0] = -spec.zero * (halves[0] + halves[1]);
          } else {
            sums[0] = -spec.zero * halves[0];
            sums[1] = -spec.zero * halves[1];
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvasir::kernels::cpu
