// What this machine has, as the process may use it.
#pragma once

#include <cstdint>

namespace kvasir {

struct CpuFeatures {
  bool avx2 = false;         ///< AVX2, FMA, F16C and BMI2, with the OS saving ymm state
  bool avx512_vnni = false;  ///< AVX-512 F, BW, DQ, VL and VNNI, with the OS saving zmm state
};

/// Probed once with cpuid/xgetbv.
[[nodiscard]] const CpuFeatures& GetCpuFeatures();

/// Physical cores that this process may use: affinity mask, one a core where hyper-threads share
/// one, and at most the cgroup's CPU quota rounded down (at least 1).
[[nodiscard]] int UsablePhysicalCores();

/// Bytes of memory this process may still take: the smaller of MemAvailable and what is left of the
/// cgroup's limit.
[[nodiscard]] int64_t AvailableMemoryBytes();

/// Resident set size of this process now, in bytes.
[[nodiscard]] int64_t ResidentMemoryBytes();

}  // namespace kvasir
