// A machine as numbers: what it holds, how fast it reads, multiplies and talks, what it costs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/number_format.h"

namespace kvasir::plan {

/// One device: a graphics card, or a whole machine that computes on its CPUs. Several of them are
/// linked as `link_bandwidth` says.
struct Hardware {
  enum class Kind : uint8_t { kGpu, kCpu };
  std::string name;    ///< as --hardware takes it: "h100-80gb"
  std::string title;   ///< "NVIDIA H100 SXM 80 GB"
  std::string source;  ///< of the numbers
  Kind kind = Kind::kGpu;
  int64_t memory_bytes = 0;  ///< that programs can have
  double bandwidth = 0;      ///< of that memory, bytes a second
  /// Operations a second by Math, dense; a multiply and an add are two. 0: it cannot.
  std::array<double, kMathCount> peak_flops = {};
  double link_bandwidth = 0;   ///< to the other devices, bytes a second and direction; 0: no link
  double link_latency_s = 0;   ///< of one message
  int64_t devices_linked = 1;  ///< most that are linked at that speed
  /// Seconds that a layer takes beside reading and multiplying: kernel launches, barriers.
  double layer_overhead_s = 0;
  /// Seconds that a step takes beside its layers: building the batch, sampling.
  double step_overhead_s = 0;
  std::optional<double> price_per_hour;  ///< US dollars for one device; none: unknown
  // Of CPUs.
  int64_t cores = 0;    ///< that compute
  std::string kernels;  ///< the server's backend there: "avx2", "avx512", "ref"

  /// What weights of `format` are multiplied in here: in the format's own arithmetic where the
  /// machine has it, else widened to BF16 or F32. On CPUs everything quantized runs as int8.
  [[nodiscard]] Math UsedMath(const NumberFormat& format) const;
  /// Operations a second in `math`, which UsedMath gave.
  [[nodiscard]] double PeakFlops(Math math) const { return peak_flops[static_cast<size_t>(math)]; }
};

/// All machines of the catalogue, sorted by name.
[[nodiscard]] const std::vector<Hardware>& HardwareCatalogue();

/// `text` is a machine's JSON; `what` names it in messages. Errors name the field.
[[nodiscard]] Result<Hardware> HardwareFromJson(std::string_view text, std::string_view what);

/// This machine: cores and memory as the process may use them; bandwidth and multiply rate
/// measured, in about two seconds.
[[nodiscard]] Result<Hardware> ProbeHardware();

/// A catalogue name, `this`, or the path of a .json.
[[nodiscard]] Result<Hardware> FindHardware(std::string_view name);

}  // namespace kvasir::plan
