#include "kernels/cpu/codes_kernels.h"
#include "kernels/cpu/dense_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_avx2.h"

namespace kvasir::kernels::cpu {
namespace {

constexpr int kCodesTile = 8;
constexpr int kDenseTile = 6;

}  // namespace

const MatmulKernels kMatmulAvx2 = {
    .lanes = Avx2::kLanes,
    .bytes_biased = Avx2::kHasDotProduct,
    .codes_tile_max = kCodesTile,
    .dense_tile_max = kDenseTile,
    .quantize = QuantizeTile<Avx2>,
    .codes = MultiplyCodesOf<Avx2, kCodesTile>,
    .dense = MultiplyDenseOf<Avx2, kDenseTile>,
    .interleave = InterleaveTile,
};

}  // namespace kvasir::kernels::cpu
