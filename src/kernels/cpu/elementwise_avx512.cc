#include "kernels/cpu/elementwise_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_avx512.h"

namespace kvasir::kernels::cpu {

const ElementwiseKernels kElementwiseAvx512 = {
    .norm = NormRows<Avx512>,
    .activate = ActivateRows<Avx512>,
    .rope = RopeRows<Avx512>,
    .add = AddRows<Avx512>,
    .scale = ScaleRows<Avx512>,
};

}  // namespace kvasir::kernels::cpu
