// The flags of `kvasir simulate`, and what they ask for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/engine_flags.h"
#include "base/result.h"
#include "plan/simulate/load_search.h"
#include "plan/simulate/result.h"
#include "plan/simulate/scenario.h"
#include "plan/simulate/trace.h"
#include "plan/simulate/workload.h"

namespace CLI {
class App;
}

namespace kvasir::app {

struct SimulateFlags {
  EngineFlags engine;
  std::string hardware;
  std::string calibration;
  std::string weights = "as-shipped";
  int64_t tensor_parallel = 1;
  double memory_utilization = 0.95;
  double bandwidth_share = 0.8;
  double compute_share = 0.5;

  std::string workload;
  std::string trace;
  std::string trace_format = "auto";
  double trace_speed = 1;
  std::string arrivals;
  double rate = 1;
  double variation = 2;
  int64_t burst_size = 32;
  std::string burst_every = "10s";
  int64_t users = 0;
  std::string think_time;
  std::string request_overhead;
  int64_t requests = 0;
  std::string duration;
  std::string prompt_tokens;
  std::string output_tokens;
  int64_t prefix_tokens = -1;
  int64_t prefixes = -1;
  double prefix_share = -1;
  std::string turns;
  std::string turn_tokens;
  int64_t documents = -1;
  int64_t documents_per_request = -1;
  std::string document_tokens;
  uint64_t seed = 0;

  std::string max_ttft;
  std::string max_itl;
  std::string max_end_to_end;
  double slo_share = 0.95;
  std::string find;
  std::string loads;
  std::string compare;
  bool json = false;
  std::string html;
  std::string write_requests;

  std::set<std::string> given;  ///< flags that were typed, without their dashes
  [[nodiscard]] bool Given(const char* flag) const { return given.contains(flag); }
};

void AddSimulateFlags(CLI::App& command, SimulateFlags& flags);

/// Which of `command`'s flags were typed.
void NoteGiven(const CLI::App& command, SimulateFlags& flags);

/// What comes: a synthetic workload, or a trace.
struct Traffic {
  plan::WorkloadSpec spec;  ///< where there is no trace
  std::optional<plan::Trace> trace;
  double trace_speed = 1;
  std::string words;  ///< for a heading

  /// With `load` users or requests a second (a trace: times as fast) in place of what was asked
  /// for; 0: as asked for. `requests_min` are simulated at least.
  [[nodiscard]] std::unique_ptr<plan::Workload> Make(double load, int64_t requests_min) const;
  /// "users", "requests/s" or "x speed".
  [[nodiscard]] const char* LoadUnit() const;
  [[nodiscard]] bool closed() const {
    return !trace && spec.arrivals.kind == plan::ArrivalSpec::Kind::kClosed;
  }
};

/// Errors name the flag.
[[nodiscard]] Result<Traffic> ReadTraffic(const SimulateFlags& flags);
[[nodiscard]] Result<plan::ServiceLevel> ReadServiceLevel(const SimulateFlags& flags);
[[nodiscard]] Result<std::vector<double>> ReadLoads(const SimulateFlags& flags,
                                                    const Traffic& traffic);
/// For the curves of a page, where none were asked for: from a quarter to twice what comes.
[[nodiscard]] std::vector<double> LoadsAround(const Traffic& traffic);
/// Reads model, machine and calibration.
[[nodiscard]] Result<plan::ScenarioSpec> ReadScenario(const SimulateFlags& flags);
/// Simulated seconds, 0: no limit.
[[nodiscard]] Result<double> ReadDurationLimit(const SimulateFlags& flags);
/// Seconds from sending a request until it stands in the queue.
[[nodiscard]] Result<double> ReadRequestOverhead(const SimulateFlags& flags);

}  // namespace kvasir::app
