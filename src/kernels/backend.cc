#include "kernels/backend.h"

#include "kernels/ref/ref_backend.h"

namespace kvasir::kernels {

std::vector<std::string_view> AvailableBackends() { return {"ref"}; }

Result<std::unique_ptr<Backend>> MakeBackend(std::string_view name, ThreadPool& pool) {
  if (name == "ref" || name == "auto") return MakeRefBackend(pool);
  return MakeError(ErrorCode::kInvalidArgument, "kernels must be auto or ref, got {}", name);
}

}  // namespace kvasir::kernels
