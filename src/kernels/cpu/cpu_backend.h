// The fast backends for x86-64. Call only where base/cpu.h says the machine has the instructions.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace kvasir::kernels {

[[nodiscard]] std::unique_ptr<Backend> MakeAvx2Backend(ThreadPool& pool);

}  // namespace kvasir::kernels
