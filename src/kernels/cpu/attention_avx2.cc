#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_avx2.h"

namespace kvasir::kernels::cpu {

const AttentionKernels kAttentionAvx2 = {
    .store = StoreRow<Avx2>,
    .attend = Attend<Avx2>,
    .merge = MergeRange<Avx2>,
    .finish = FinishRow<Avx2>,
};

}  // namespace kvasir::kernels::cpu
