// What one instruction set gives the CPU backend: plain functions on raw pointers. The backend cuts
// the work into tasks; these do one task. They include as little as they can: see simd_avx2.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "tensor/dtype.h"

namespace kvasir::kernels::cpu {

/// Tokens are cut into tiles of near equal size, at most `tile_max` each; tile i of n begins at
/// i T / n. Everything a tile needs lies together: [tile][block or k][token of the tile].
struct Tiling {
  int64_t tokens_count = 0;
  int64_t tiles_count = 0;

  Tiling(int64_t tokens, int64_t tile_max)
      : tokens_count(tokens), tiles_count((tokens + tile_max - 1) / tile_max) {}
  [[nodiscard]] int64_t Begin(int64_t tile) const { return tile * tokens_count / tiles_count; }
};

/// Values that quantized weights need beside the activations' codes, one a (block, token, group):
/// the activations' sum as float (for minimums), or minus the codes' sum times the zero point.
struct SumsSpec {
  bool is_float = false;
  int32_t zero = 0;
  int groups = 1;  ///< groups a block of 32: 1 or 2

  [[nodiscard]] bool operator==(const SumsSpec&) const = default;
};

inline constexpr int kSumsMax = 8;

/// Quantizes tokens [begin, end) of x, one tile, to 8 bits with a scale each 32 values.
struct QuantizeTask {
  const float* x = nullptr;  ///< row of token `begin`
  int64_t ldx = 0;
  int64_t tokens_count = 0;  ///< of the tile
  int64_t blocks_count = 0;  ///< K / 32
  int8_t* codes = nullptr;   ///< [block][token][32]
  float* scales = nullptr;   ///< [block][token]
  int sums_count = 0;
  SumsSpec specs[kSumsMax];
  void* sums[kSumsMax] = {};  ///< [block][token][groups] of float or int32_t
};

/// Panels [panel_begin, panel_end) of a quantized weight times all tokens.
struct CodesTask {
  const std::byte* panels = nullptr;  ///< panel 0
  int64_t panel_bytes = 0;
  int64_t codes_offset = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  int64_t rows = 0;  ///< N
  int64_t blocks_count = 0;
  int64_t tokens_count = 0;
  const int8_t* x_codes = nullptr;  ///< as QuantizeTask, tile after tile
  const float* x_scales = nullptr;
  const void* x_sums = nullptr;  ///< those that the format needs
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  std::byte* scratch = nullptr;  ///< CodesScratchBytes, 64-byte aligned
};

/// Panels of a dense weight times all tokens; x is [tile][k][token].
struct DenseTask {
  const std::byte* panels = nullptr;
  int64_t panel_bytes = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  int64_t rows = 0;
  int64_t cols = 0;  ///< K
  int64_t tokens_count = 0;
  const float* x = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
};

struct MatmulKernels {
  int lanes = 0;  ///< rows a panel
  bool bytes_biased = false;
  int codes_tile_max = 0;  ///< tokens
  int dense_tile_max = 0;
  void (*quantize)(const QuantizeTask&) = nullptr;
  void (*codes)(DType dtype, const CodesTask&) = nullptr;
  void (*dense)(DType dtype, const DenseTask&) = nullptr;
  /// [tokens of a tile][K] -> [K][tokens].
  void (*interleave)(const float* x, int64_t ldx, int64_t tokens_count, int64_t cols,
                     float* out) = nullptr;
};

/// Bytes of a panel of `lanes` rows with its codes widened to bytes and its scales to floats.
[[nodiscard]] constexpr int64_t CodesScratchBytes(int64_t lanes, int64_t blocks_count) {
  return blocks_count * lanes * (32 + 2 * 2 * 4);
}

/// All take rows [begin, end).
struct ElementwiseKernels {
  void (*norm)(const NormArgs&, int64_t begin, int64_t end) = nullptr;
  void (*activate)(const ActivationArgs&, int64_t begin, int64_t end) = nullptr;
  void (*rope)(const RopeArgs&, int64_t begin, int64_t end) = nullptr;
  void (*add)(const AddArgs&, int64_t begin, int64_t end) = nullptr;
  void (*scale)(const ScaleArgs&, int64_t begin, int64_t end) = nullptr;
};

/// Positions are cut at absolute multiples of this. A range is summed on its own, and ranges are
/// merged in order, so the arithmetic of a row depends on its position alone.
inline constexpr int64_t kRangePositions = 256;
/// Positions whose K and V lie together, whatever the block.
inline constexpr int64_t kUnitPositions = 8;
/// (token, query head) pairs that share one pass over K and V.
inline constexpr int64_t kAttentionRowsMax = 32;
/// Rows that are kept in registers at a time.
inline constexpr int64_t kAttentionChunk = 6;

/// How K lies in a block, for each kv head [B / width][D][width]: width positions side by side.
[[nodiscard]] constexpr int64_t KeyWidth(int64_t block_tokens) {
  return block_tokens % 16 == 0 ? 16 : block_tokens % kUnitPositions == 0 ? kUnitPositions : 1;
}

/// One range for a tile of rows that read the same kv head.
struct AttendTask {
  const float* q = nullptr;  ///< chunks of up to kAttentionChunk rows: [chunk][D][row of the chunk]
  int64_t rows_count = 0;
  int64_t head_dim = 0;
  DType dtype = DType::kF16;
  int64_t key_width = 16;
  float softcap = 0.0f;
  /// Readable positions of each row, relative to the range: [begin, end), not empty.
  int32_t begin[kAttentionRowsMax];
  int32_t end[kAttentionRowsMax];
  /// Per unit of kUnitPositions (per position where key_width is 1), set where rows read it or
  /// another of its key_width positions.
  const std::byte* keys[kRangePositions];
  const std::byte* values[kRangePositions];
  /// Per unit, K of the next range where the caller will go on there, else null: to be asked for.
  const std::byte* next_keys[kRangePositions / kUnitPositions];
  float* scores = nullptr;       ///< scratch [rows][kRangePositions]
  float* key_scratch = nullptr;  ///< scratch [D][16], where key_width is 1
  float* max = nullptr;          ///< out [rows]
  float* sum = nullptr;          ///< out [rows]
  float* out = nullptr;          ///< out [rows][D], not yet divided by the sum
};

struct AttentionKernels {
  /// Stores one row's head: k and v are D floats; `keys` is the head's K in the block, `values` its
  /// V.
  void (*store)(const float* k, const float* v, DType dtype, int64_t head_dim, int64_t key_width,
                int64_t offset, std::byte* keys, std::byte* values) = nullptr;
  void (*attend)(const AttendTask&) = nullptr;
  /// (max, sum, out) <- both; `out` is [D].
  void (*merge)(float* max, float* sum, float* out, float other_max, float other_sum,
                const float* other_out, int64_t head_dim) = nullptr;
  /// y = out / (sum + exp(sink - max)); no sink where `sink` is null.
  void (*finish)(float max, float sum, const float* out, const float* sink, int64_t head_dim,
                 float* y) = nullptr;
};

struct KernelTable {
  const char* name = "";
  const MatmulKernels* matmul = nullptr;
  const ElementwiseKernels* elementwise = nullptr;
  const AttentionKernels* attention = nullptr;
};

extern const MatmulKernels kMatmulAvx2;
extern const ElementwiseKernels kElementwiseAvx2;
extern const AttentionKernels kAttentionAvx2;
extern const MatmulKernels kMatmulAvx512;
extern const ElementwiseKernels kElementwiseAvx512;
extern const AttentionKernels kAttentionAvx512;

}  // namespace kvasir::kernels::cpu
