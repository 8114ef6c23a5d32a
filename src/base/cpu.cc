#include "base/cpu.h"

#include <sched.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <utility>

namespace kvasir {
namespace {

#if defined(__x86_64__)
// Not every compiler's __builtin_cpu_supports knows this one. Leaf 1, ECX.
bool HasF16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

CpuFeatures Probe() {
  CpuFeatures features;
#if defined(__x86_64__)
  __builtin_cpu_init();
  features.avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                  HasF16c() && __builtin_cpu_supports("bmi2") != 0;
  features.avx512_vnni =
      features.avx2 && __builtin_cpu_supports("avx512f") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
#endif
  return features;
}

// The first whitespace-separated words of a small file; empty where it cannot be read.
std::string ReadWords(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The cgroup v2 folder of this process, or the root of the hierarchy.
std::string CgroupFolder() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) == 0) return "/sys/fs/cgroup" + line.substr(3);
  }
  return "/sys/fs/cgroup";
}

double CgroupCpuQuota() {
  const double unlimited = std::numeric_limits<double>::infinity();
  for (const std::string& folder : {CgroupFolder(), std::string("/sys/fs/cgroup")}) {
    const std::string text = ReadWords(folder + "/cpu.max");
    long long quota = 0;
    long long period = 0;
    if (std::sscanf(text.c_str(), "%lld %lld", &quota, &period) == 2 && period > 0) {
      return static_cast<double>(quota) / static_cast<double>(period);
    }
    if (!text.empty()) return unlimited;
  }
  const std::string quota = ReadWords("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const std::string period = ReadWords("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (!quota.empty() && !period.empty() && std::atoll(quota.c_str()) > 0) {
    return std::stod(quota) / std::stod(period);
  }
  return unlimited;
}

}  // namespace

const CpuFeatures& GetCpuFeatures() {
  static const CpuFeatures features = Probe();
  return features;
}

int UsablePhysicalCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::set<std::pair<std::string, std::string>> cores;
  int cpus = 0;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &set)) continue;
      ++cpus;
      const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
      std::string core = ReadWords(folder + "core_id");
      if (core.empty()) core = "cpu" + std::to_string(cpu);
      cores.emplace(ReadWords(folder + "physical_package_id"), core);
    }
  }
  int count = cores.empty() ? std::max(cpus, 1) : static_cast<int>(cores.size());
  const double quota = CgroupCpuQuota();
  if (quota < count) count = static_cast<int>(quota);
  return std::max(count, 1);
}

int64_t AvailableMemoryBytes() {
  int64_t available = std::numeric_limits<int64_t>::max();
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    long long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lld kB", &kib) == 1) available = kib * 1024;
  }
  const std::string folder = CgroupFolder();
  const std::string limit = ReadWords(folder + "/memory.max");
  const std::string used = ReadWords(folder + "/memory.current");
  if (!limit.empty() && limit != "max" && !used.empty()) {
    available = std::min<int64_t>(available, std::stoll(limit) - std::stoll(used));
  }
  return std::max<int64_t>(available, 0);
}

int64_t ResidentMemoryBytes() {
  std::ifstream file("/proc/self/statm");
  long long size = 0;
  long long resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace kvasir
