// Stored weights to panels (panel_format.h) and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "kernels/cpu/arena.h"
#include "kernels/cpu/panel_format.h"
#include "kernels/matmul.h"

namespace kvasir::kernels::cpu {

struct PanelMatrix final : PackedMatrix {
  int lanes = 0;             ///< R, rows a panel
  int64_t panels_count = 0;  ///< ceil(N / R); rows beyond N are zeros
  int64_t panel_bytes = 0;   ///< a multiple of 64
  int64_t codes_offset = 0;  ///< of the codes in a panel; 0 where dense
  /// 8-bit codes are stored with 128 added, for an instruction that multiplies unsigned bytes.
  bool bytes_biased = false;
  Arena::Slice memory;

  [[nodiscard]] std::byte* panel(int64_t i) const { return memory.data() + i * panel_bytes; }
};

/// Where things lie in the panels of W [rows, cols]; see PanelMatrix.
struct PanelLayout {
  int64_t panels_count = 0;
  int64_t panel_bytes = 0;
  int64_t codes_offset = 0;
};
[[nodiscard]] PanelLayout LayoutOf(DType dtype, int64_t rows, int64_t cols, int lanes);

/// True for the formats that PackPanels takes.
[[nodiscard]] bool CanPack(DType dtype);

/// Lays out `parts` (see Backend::Pack) in panels of `lanes` rows. Memory is about the stored size.
[[nodiscard]] std::unique_ptr<PanelMatrix> PackPanels(std::span<const TensorView> parts, int lanes,
                                                      bool bytes_biased, Arena& arena,
                                                      ThreadPool& pool,
                                                      const BytesDone& done = nullptr);

/// Row `row` of the packed matrix as float, equal bit for bit to DequantizeRow of what was packed.
void DequantizePanelRow(const PanelMatrix& matrix, int64_t row, std::span<float> out);

}  // namespace kvasir::kernels::cpu
