#include "kernels/backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ref/ref_backend.h"

namespace kvasir::kernels {

std::vector<std::string_view> AvailableBackends() {
  std::vector<std::string_view> names;
  if (GetCpuFeatures().avx512_vnni) names.push_back("avx512");
  if (GetCpuFeatures().avx2) names.push_back("avx2");
  names.push_back("ref");
  return names;
}

Result<std::unique_ptr<Backend>> MakeBackend(std::string_view name, ThreadPool& pool) {
  const std::vector<std::string_view> available = AvailableBackends();
  const std::string_view wanted = name == "auto" ? available.front() : name;
  if (std::find(available.begin(), available.end(), wanted) == available.end()) {
    return MakeError(ErrorCode::kInvalidArgument, "kernels \"{}\": this machine can run auto, {}",
                     name, fmt::join(available, ", "));
  }
  if (wanted == "avx512") return MakeAvx512Backend(pool);
  if (wanted == "avx2") return MakeAvx2Backend(pool);
  return MakeRefBackend(pool);
}

}  // namespace kvasir::kernels
