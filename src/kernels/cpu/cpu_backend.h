// The fast backends for x86-64. Call only where base/cpu.h says the machine has the instructions.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace kvasir::kernels {

/// AVX2, FMA, F16C, BMI2.
[[nodiscard]] std::unique_ptr<Backend> MakeAvx2Backend(ThreadPool& pool);
/// AVX-512 F, BW, DQ, VL and VNNI.
[[nodiscard]] std::unique_ptr<Backend> MakeAvx512Backend(ThreadPool& pool);

}  // namespace kvasir::kernels
