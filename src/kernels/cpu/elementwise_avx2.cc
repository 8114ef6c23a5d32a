#include "kernels/cpu/elementwise_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_avx2.h"

namespace kvasir::kernels::cpu {

const ElementwiseKernels kElementwiseAvx2 = {
    .norm = NormRows<Avx2>,
    .activate = ActivateRows<Avx2>,
    .rope = RopeRows<Avx2>,
    .add = AddRows<Avx2>,
    .scale = ScaleRows<Avx2>,
};

}  // namespace kvasir::kernels::cpu
