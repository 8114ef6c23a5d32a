#include "kernels/cpu/codes_kernels.h"
#include "kernels/cpu/dense_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_avx512.h"

namespace kvasir::kernels::cpu {
namespace {

constexpr int kCodesTile = 8;
constexpr int kDenseTile = 8;

}  // namespace

const MatmulKernels kMatmulAvx512 = {
    .lanes = Avx512::kLanes,
    .bytes_biased = Avx512::kHasDotProduct,
    .codes_tile_max = kCodesTile,
    .dense_tile_max = kDenseTile,
    .quantize = QuantizeTile<Avx512>,
    .codes = MultiplyCodesOf<Avx512, kCodesTile>,
    .dense = MultiplyDenseOf<Avx512, kDenseTile>,
    .interleave = InterleaveTile,
};

}  // namespace kvasir::kernels::cpu
