// The slow, plain reference: sums in double, no blocking, no tricks. The oracle of every fast
// kernel.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace kvasir::kernels {

[[nodiscard]] std::unique_ptr<Backend> MakeRefBackend(ThreadPool& pool);

}  // namespace kvasir::kernels
