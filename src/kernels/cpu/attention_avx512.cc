#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_avx512.h"

namespace kvasir::kernels::cpu {

const AttentionKernels kAttentionAvx512 = {
    .store = StoreRow<Avx512>,
    .attend = Attend<Avx512>,
    .merge = MergeRange<Avx512>,
    .finish = FinishRow<Avx512>,
};

}  // namespace kvasir::kernels::cpu
