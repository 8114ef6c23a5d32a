#include "kernels/cpu/panels.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "tensor/blocks.h"
#include "tensor/float16.h"

namespace kvasir::kernels::cpu {
namespace {

// The 32 codes of a block, 4 a word: word v holds k = 4v .. 4v + 3, lowest k in the lowest byte.
struct Codes {
  uint32_t words[8];
};

constexpr uint32_t kNibbles = 0x0F0F0F0Fu;
constexpr uint32_t kPairs = 0x03030303u;
constexpr uint32_t kBits = 0x01010101u;
constexpr uint32_t kByteBias = 0x80808080u;

template <typename T>
T LoadAs(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

uint32_t Word(const void* p) { return LoadAs<uint32_t>(p); }

Codes SplitNibbles(const uint8_t* qs) {
  Codes codes;
  for (int g = 0; g < 4; ++g) {
    const uint32_t word = Word(qs + 4 * g);
    codes.words[g] = word & kNibbles;
    codes.words[g + 4] = (word >> 4) & kNibbles;
  }
  return codes;
}

void AddFifthBits(const uint8_t* qh, Codes& codes) {
  const uint32_t bits = Word(qh);
  for (int v = 0; v < 8; ++v) {
    // Four bits, one to the bottom of each byte.
    const uint32_t spread = (((bits >> (4 * v)) & 15u) * 0x00204081u) & kBits;
    codes.words[v] |= spread << 4;
  }
}

// DecodeCodes(block, s): codes of the s-th 32 values of a block.
Codes DecodeCodes(const BlockQ4_0& block, int) { return SplitNibbles(block.qs); }
Codes DecodeCodes(const BlockQ4_1& block, int) { return SplitNibbles(block.qs); }
Codes DecodeCodes(const BlockIQ4_NL& block, int) { return SplitNibbles(block.qs); }
Codes DecodeCodes(const BlockQ5_0& block, int) {
  Codes codes = SplitNibbles(block.qs);
  AddFifthBits(block.qh, codes);
  return codes;
}
Codes DecodeCodes(const BlockQ5_1& block, int) {
  Codes codes = SplitNibbles(block.qs);
  AddFifthBits(block.qh, codes);
  return codes;
}
Codes DecodeCodes(const BlockQ8_0& block, int) { return LoadAs<Codes>(block.qs); }
Codes DecodeCodes(const BlockQ4_K& block, int s) {
  Codes codes;
  const uint8_t* qs = block.qs + 32 * (s / 2);
  for (int v = 0; v < 8; ++v) codes.words[v] = (Word(qs + 4 * v) >> (4 * (s % 2))) & kNibbles;
  return codes;
}
Codes DecodeCodes(const BlockQ5_K& block, int s) {
  Codes codes;
  const uint8_t* qs = block.qs + 32 * (s / 2);
  for (int v = 0; v < 8; ++v) {
    const uint32_t low = (Word(qs + 4 * v) >> (4 * (s % 2))) & kNibbles;
    codes.words[v] = low | ((Word(block.qh + 4 * v) >> s) & kBits) << 4;
  }
  return codes;
}
Codes DecodeCodes(const BlockQ6_K& block, int s) {
  Codes codes;
  const int h = s / 4;
  const int t = s % 4;
  for (int v = 0; v < 8; ++v) {
    const uint32_t low =
        (Word(block.ql + 64 * h + 32 * (t & 1) + 4 * v) >> (t < 2 ? 0 : 4)) & kNibbles;
    codes.words[v] = low | ((Word(block.qh + 32 * h + 4 * v) >> (2 * t)) & kPairs) << 4;
  }
  return codes;
}
Codes DecodeCodes(const BlockQ2_K& block, int s) {
  Codes codes;
  for (int v = 0; v < 8; ++v) {
    codes.words[v] = (Word(block.qs + 32 * (s / 4) + 4 * v) >> (2 * (s % 4))) & kPairs;
  }
  return codes;
}
Codes DecodeCodes(const BlockQ3_K& block, int s) {
  Codes codes;
  for (int v = 0; v < 8; ++v) {
    const uint32_t low = (Word(block.qs + 32 * (s / 4) + 4 * v) >> (2 * (s % 4))) & kPairs;
    codes.words[v] = low | ((Word(block.hmask + 4 * v) >> s) & kBits) << 2;
  }
  return codes;
}

// Writes the planes of one row's block; `out` points at the row's 4 bytes of the first vector, and
// vectors are `stride` bytes apart.
template <int kLow, int kHigh>
void StorePlanes(const Codes& codes, std::byte* out, int64_t stride, uint32_t bias) {
  const auto store = [&](int64_t vector, uint32_t word) {
    std::memcpy(out + vector * stride, &word, sizeof(word));
  };
  const uint32_t* w = codes.words;
  if constexpr (kLow == 8) {
    for (int v = 0; v < 8; ++v) store(v, w[v] ^ bias);
  } else if constexpr (kLow == 4) {
    for (int g = 0; g < 4; ++g) store(g, (w[g] & kNibbles) | (w[g + 4] & kNibbles) << 4);
  } else {
    static_assert(kLow == 2);
    for (int half = 0; half < 2; ++half) {
      uint32_t word = 0;
      for (int i = 0; i < 4; ++i) word |= (w[4 * half + i] & kPairs) << (2 * i);
      store(half, word);
    }
  }
  if constexpr (kHigh == 1) {
    uint32_t word = 0;
    for (int v = 0; v < 8; ++v) word |= ((w[v] >> kLow) & kBits) << v;
    store(kLow, word);
  } else if constexpr (kHigh == 2) {
    for (int half = 0; half < 2; ++half) {
      uint32_t word = 0;
      for (int i = 0; i < 4; ++i) word |= ((w[4 * half + i] >> kLow) & kPairs) << (2 * i);
      store(kLow + half, word);
    }
  }
}

void StoreHalf(std::byte* record, int64_t index, uint16_t half) {
  std::memcpy(record + 2 * index, &half, sizeof(half));
}

// StoreScales(block, record, R, r): the scales of row r in a record.
template <typename Block>
void StoreBlockScale(const Block& block, std::byte* record, int64_t lanes, int64_t row) {
  StoreHalf(record, row, block.d);
  if constexpr (requires { block.m; }) StoreHalf(record, lanes + row, block.m);
}
template <typename Block>
void StoreSuperMin32(const Block& block, std::byte* record, int64_t lanes, int64_t row) {
  StoreHalf(record, row, block.d);
  StoreHalf(record, lanes + row, block.dmin);
  const ScalesQ4_K scales = UnpackScalesQ4_K(block.scales);
  std::byte* sub = record + 4 * lanes + row;
  for (size_t s = 0; s < 8; ++s, sub += 2 * lanes) {
    sub[0] = static_cast<std::byte>(scales.scale[s]);
    sub[lanes] = static_cast<std::byte>(scales.min[s]);
  }
}
void StoreScales(const BlockQ4_0& b, std::byte* record, int64_t lanes, int64_t row) {
  StoreBlockScale(b, record, lanes, row);
}
void StoreScales(const BlockQ4_1& b, std::byte* record, int64_t lanes, int64_t row) {
  StoreBlockScale(b, record, lanes, row);
}
void StoreScales(const BlockQ5_0& b, std::byte* record, int64_t lanes, int64_t row) {
  StoreBlockScale(b, record, lanes, row);
}
void StoreScales(const BlockQ5_1& b, std::byte* record, int64_t lanes, int64_t row) {
  StoreBlockScale(b, record, lanes, row);
}
void StoreScales(const BlockQ8_0& b, std::byte* record, int64_t lanes, int64_t row) {
  StoreBlockScale(b, record, lanes, row);
}
void StoreScales(const BlockIQ4_NL& b, std::byte* record, int64_t lanes, int64_t row) {
  StoreBlockScale(b, record, lanes, row);
}
void StoreScales(const BlockQ4_K& b, std::byte* record, int64_t lanes, int64_t row) {
  StoreSuperMin32(b, record, lanes, row);
}
void StoreScales(const BlockQ5_K& b, std::byte* record, int64_t lanes, int64_t row) {
  StoreSuperMin32(b, record, lanes, row);
}
void StoreScales(const BlockQ6_K& b, std::byte* record, int64_t lanes, int64_t row) {
  StoreHalf(record, row, b.d);
  for (int64_t s = 0; s < 16; ++s) {
    record[2 * lanes + s * lanes + row] = static_cast<std::byte>(b.scales[s]);
  }
}
void StoreScales(const BlockQ3_K& b, std::byte* record, int64_t lanes, int64_t row) {
  StoreHalf(record, row, b.d);
  const std::array<int8_t, 16> scales = UnpackScalesQ3_K(b.scales);
  for (size_t s = 0; s < 16; ++s) {
    record[2 * lanes + static_cast<int64_t>(s) * lanes + row] = static_cast<std::byte>(scales[s]);
  }
}
void StoreScales(const BlockQ2_K& b, std::byte* record, int64_t lanes, int64_t row) {
  StoreHalf(record, row, b.d);
  StoreHalf(record, lanes + row, b.dmin);
  for (int64_t s = 0; s < 16; ++s) {
    record[4 * lanes + s * lanes + row] = static_cast<std::byte>(b.scales[s]);
  }
}

using RowPacker = void (*)(const PanelMatrix& matrix, std::byte* panel, int64_t lane,
                           const std::byte* row);

template <DType kType, typename Block>
void PackCodesRow(const PanelMatrix& matrix, std::byte* panel, int64_t lane, const std::byte* row) {
  constexpr PanelFormat kFormat = PanelFormatOf(kType);
  constexpr int kSubBlocks = kFormat.record_blocks();
  const int64_t lanes = matrix.lanes;
  const uint32_t bias = matrix.bytes_biased ? kByteBias : 0;
  std::byte* record = panel;
  std::byte* codes = panel + matrix.codes_offset + 4 * lane;
  const int64_t records_count = matrix.cols / (32 * kSubBlocks);
  for (int64_t i = 0; i < records_count; ++i) {
    const auto block = LoadAs<Block>(row + i * static_cast<int64_t>(sizeof(Block)));
    StoreScales(block, record, lanes, lane);
    record += lanes * kFormat.record_bytes();
    for (int s = 0; s < kSubBlocks; ++s) {
      StorePlanes<kFormat.low_bits, kFormat.high_bits>(DecodeCodes(block, s), codes, 4 * lanes,
                                                       bias);
      codes += lanes * kFormat.code_bytes();
    }
  }
}

template <typename T>
void PackPlainRow(const PanelMatrix& matrix, std::byte* panel, int64_t lane, const std::byte* row) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  std::byte* out = panel + lane * kSize;
  for (int64_t k = 0; k < matrix.cols; ++k) {
    std::memcpy(out + k * matrix.lanes * kSize, row + k * kSize, sizeof(T));
  }
}

void PackPairsRow(const PanelMatrix& matrix, std::byte* panel, int64_t lane, const std::byte* row) {
  for (int64_t k = 0; k < matrix.cols; ++k) {
    const int64_t at = (k / 2 * matrix.lanes + lane) * 4 + (k % 2) * 2;
    std::memcpy(panel + at, row + 2 * k, 2);
  }
}

RowPacker PackerOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return PackPlainRow<uint32_t>;
    case DType::kF16:
      return PackPlainRow<uint16_t>;
    case DType::kBF16:
      return PackPairsRow;
    case DType::kQ4_0:
      return PackCodesRow<DType::kQ4_0, BlockQ4_0>;
    case DType::kQ4_1:
      return PackCodesRow<DType::kQ4_1, BlockQ4_1>;
    case DType::kQ5_0:
      return PackCodesRow<DType::kQ5_0, BlockQ5_0>;
    case DType::kQ5_1:
      return PackCodesRow<DType::kQ5_1, BlockQ5_1>;
    case DType::kQ8_0:
      return PackCodesRow<DType::kQ8_0, BlockQ8_0>;
    case DType::kIQ4_NL:
      return PackCodesRow<DType::kIQ4_NL, BlockIQ4_NL>;
    case DType::kQ2_K:
      return PackCodesRow<DType::kQ2_K, BlockQ2_K>;
    case DType::kQ3_K:
      return PackCodesRow<DType::kQ3_K, BlockQ3_K>;
    case DType::kQ4_K:
      return PackCodesRow<DType::kQ4_K, BlockQ4_K>;
    case DType::kQ5_K:
      return PackCodesRow<DType::kQ5_K, BlockQ5_K>;
    case DType::kQ6_K:
      return PackCodesRow<DType::kQ6_K, BlockQ6_K>;
    default:
      return nullptr;
  }
}

constexpr int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// The code of element k of a lane, from the planes.
uint32_t CodeAt(const PanelMatrix& matrix, const PanelFormat& format, const std::byte* panel,
                int64_t lane, int64_t k) {
  const int64_t vector_bytes = 4 * matrix.lanes;
  const std::byte* block =
      panel + matrix.codes_offset + k / 32 * matrix.lanes * format.code_bytes();
  const int64_t v = k % 32 / 4;
  const int64_t at = 4 * lane + k % 4;
  const auto byte = [&](int64_t vector) {
    return static_cast<uint32_t>(block[vector * vector_bytes + at]);
  };
  uint32_t code = 0;
  if (format.low_bits == 8) code = byte(v);
  if (format.low_bits == 4) code = byte(v % 4) >> (4 * (v / 4)) & 15;
  if (format.low_bits == 2) code = byte(v / 4) >> (2 * (v % 4)) & 3;
  const int low = format.low_bits;
  if (format.high_bits == 1) code |= (byte(low) >> v & 1) << low;
  if (format.high_bits == 2) code |= (byte(low + v / 4) >> (2 * (v % 4)) & 3) << low;
  return code;
}

// Stored bytes that are laid out before the file's pages are let go.
constexpr int64_t kPieceBytes = int64_t{8} << 20;

// Rows [begin, end) of the stacked parts were read.
void TellDone(std::span<const TensorView> parts, int64_t row_bytes, int64_t begin, int64_t end,
              const BytesDone& done) {
  int64_t part_begin = 0;
  for (const TensorView& part : parts) {
    const int64_t first = std::max(begin - part_begin, int64_t{0});
    const int64_t last = std::min(end - part_begin, part.rows());
    if (first < last) {
      done({part.data + first * row_bytes, static_cast<size_t>((last - first) * row_bytes)});
    }
    part_begin += part.rows();
  }
}

}  // namespace

PanelLayout LayoutOf(DType dtype, int64_t rows, int64_t cols, int lanes) {
  constexpr int64_t kLine = 64;
  PanelLayout layout;
  layout.panels_count = (rows + lanes - 1) / lanes;
  if (IsDense(dtype)) {
    const int64_t stored_cols = dtype == DType::kBF16 ? RoundUp(cols, 2) : cols;
    layout.panel_bytes = RoundUp(stored_cols * lanes * Info(dtype).block_bytes, kLine);
    return layout;
  }
  const PanelFormat format = PanelFormatOf(dtype);
  const int64_t records_count = cols / (32 * format.record_blocks());
  layout.codes_offset = RoundUp(records_count * lanes * format.record_bytes(), kLine);
  const int64_t code_bytes = cols / 32 * lanes * format.code_bytes();
  layout.panel_bytes = RoundUp(layout.codes_offset + code_bytes, kLine);
  return layout;
}

bool CanPack(DType dtype) { return PackerOf(dtype) != nullptr; }

std::unique_ptr<PanelMatrix> PackPanels(std::span<const TensorView> parts, int lanes,
                                        bool bytes_biased, Arena& arena, ThreadPool& pool,
                                        const BytesDone& done) {
  KVASIR_CHECK(!parts.empty());
  const DType dtype = parts[0].dtype;
  const RowPacker packer = PackerOf(dtype);
  KVASIR_CHECK(packer != nullptr, "no panels for {}", Info(dtype).name);
  auto matrix = std::make_unique<PanelMatrix>();
  matrix->dtype = dtype;
  matrix->cols = parts[0].cols();
  matrix->lanes = lanes;
  matrix->bytes_biased = bytes_biased && PanelFormatOf(dtype).low_bits == 8;
  const int64_t row_bytes = RowBytes(dtype, matrix->cols);
  std::vector<const std::byte*> rows;
  for (const TensorView& part : parts) {
    KVASIR_CHECK(part.dtype == dtype && part.cols() == matrix->cols, "{} {} beside {} [, {}]",
                 Info(part.dtype).name, ToString(part.shape), Info(dtype).name, matrix->cols);
    for (int64_t r = 0; r < part.rows(); ++r) rows.push_back(part.data + r * row_bytes);
  }
  matrix->rows = static_cast<int64_t>(rows.size());
  const PanelLayout layout = LayoutOf(dtype, matrix->rows, matrix->cols, lanes);
  matrix->panels_count = layout.panels_count;
  matrix->panel_bytes = layout.panel_bytes;
  matrix->codes_offset = layout.codes_offset;
  matrix->bytes = matrix->panels_count * matrix->panel_bytes;
  matrix->memory = arena.Allocate(matrix->bytes);

  // A task is some 64 KB: enough to outweigh handing it out.
  const int64_t chunk = std::max<int64_t>(1, (int64_t{64} << 10) / (matrix->panel_bytes + 1));
  const int64_t task_rows = chunk * lanes;
  const int64_t piece_rows = RoundUp(kPieceBytes / row_bytes + 1, task_rows);
  for (int64_t begin = 0; begin < matrix->rows; begin += piece_rows) {
    const int64_t end = std::min(matrix->rows, begin + piece_rows);
    pool.ParallelFor((end - begin + task_rows - 1) / task_rows, [&](int64_t task, int) {
      const int64_t first = begin + task * task_rows;
      const int64_t last = std::min(end, first + task_rows);
      for (int64_t row = first; row < last; ++row) {
        packer(*matrix, matrix->panel(row / lanes), row % lanes, rows[static_cast<size_t>(row)]);
      }
    });
    if (done) TellDone(parts, row_bytes, begin, end, done);
  }
  return matrix;
}

void DequantizePanelRow(const PanelMatrix& matrix, int64_t row, std::span<float> out) {
  KVASIR_CHECK(row >= 0 && row < matrix.rows, "row {} of {}", row, matrix.rows);
  KVASIR_CHECK(static_cast<int64_t>(out.size()) == matrix.cols, "{} values for a row of {}",
               out.size(), matrix.cols);
  const int64_t lanes = matrix.lanes;
  const std::byte* panel = matrix.panel(row / lanes);
  const int64_t lane = row % lanes;
  const PanelFormat format = PanelFormatOf(matrix.dtype);
  for (int64_t k = 0; k < matrix.cols; ++k) {
    float& value = out[static_cast<size_t>(k)];
    if (matrix.dtype == DType::kF32) {
      value = LoadAs<float>(panel + (k * lanes + lane) * 4);
      continue;
    }
    if (matrix.dtype == DType::kF16) {
      value = HalfToFloat(LoadAs<uint16_t>(panel + (k * lanes + lane) * 2));
      continue;
    }
    if (matrix.dtype == DType::kBF16) {
      value = Bf16ToFloat(LoadAs<uint16_t>(panel + (k / 2 * lanes + lane) * 4 + k % 2 * 2));
      continue;
    }
    const uint32_t code = CodeAt(matrix, format, panel, lane, k);
    auto q = static_cast<float>(static_cast<int>(code) - format.zero);
    if (format.signed_bytes) {
      const uint32_t byte = format.low_bits == 8
                                ? code ^ (matrix.bytes_biased ? 0x80u : 0u)
                                : static_cast<uint32_t>(static_cast<uint8_t>(kIq4NlValues[code]));
      q = static_cast<float>(static_cast<int8_t>(byte));
    }
    const std::byte* record =
        panel + k / (32 * format.record_blocks()) * lanes * format.record_bytes();
    const auto half = [&](int64_t index) {
      return HalfToFloat(LoadAs<uint16_t>(record + 2 * (index * lanes + lane)));
    };
    const auto byte = [&](int64_t at) { return static_cast<uint8_t>(record[at * lanes + lane]); };
    switch (format.scales) {
      case Scales::kBlock:
        value = half(0) * q;
        break;
      case Scales::kBlockMin:
        value = half(0) * q + half(1);
        break;
      case Scales::kSuperMin32: {
        const int64_t s = k % 256 / 32;
        value = half(0) * static_cast<float>(byte(4 + 2 * s)) * q -
                half(1) * static_cast<float>(byte(5 + 2 * s));
        break;
      }
      case Scales::kSuperSigned16: {
        const auto scale = static_cast<int8_t>(byte(2 + k % 256 / 16));
        value = half(0) * static_cast<float>(scale) * q;
        break;
      }
      case Scales::kSuperMin16: {
        const uint8_t both = byte(4 + k % 256 / 16);
        value =
            half(0) * static_cast<float>(both & 15) * q - half(1) * static_cast<float>(both >> 4);
        break;
      }
    }
  }
}

}  // namespace kvasir::kernels::cpu
