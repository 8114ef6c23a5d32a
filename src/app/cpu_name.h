#pragma once

#include <string>

namespace kvasir::app {

/// What the processor calls itself, from /proc/cpuinfo; "unknown" where that says nothing.
[[nodiscard]] std::string CpuName();

}  // namespace kvasir::app
