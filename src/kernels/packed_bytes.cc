#include "kernels/packed_bytes.h"

#include "base/check.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panels.h"

namespace kvasir::kernels {

int64_t PackedBytes(std::string_view backend, DType dtype, int64_t rows, int64_t cols) {
  if (backend == "ref") return 0;
  KVASIR_CHECK(backend == "avx2" || backend == "avx512", "{}", backend);
  const int lanes = backend == "avx2" ? cpu::kMatmulAvx2.lanes : cpu::kMatmulAvx512.lanes;
  const cpu::PanelLayout layout = cpu::LayoutOf(dtype, rows, cols, lanes);
  return layout.panels_count * layout.panel_bytes;
}

}  // namespace kvasir::kernels
