// All that `kvasir simulate` has to show, whichever way it is shown.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "plan/simulate/load_search.h"
#include "plan/simulate/result.h"
#include "plan/simulate/summary.h"

namespace kvasir::plan {

/// As flags and values, in the order of the help: {"--block-size", "16"}.
using Settings = std::vector<std::pair<std::string, std::string>>;

struct VariantReport {
  Summary summary;
  /// In full: samples of steps always; details and snapshots where a page was asked for.
  SimulationResult result;
  std::vector<std::string> notes;  ///< what was worked out and may surprise
  Settings settings;
  /// The same variant under several loads, by load: the curve of its latencies. Where the largest
  /// load that keeps the promise was searched for, all that were tried.
  std::vector<LoadPoint> loads;
  double load_found = -1;    ///< the largest that keeps the promise; -1: not searched for
  bool load_bounded = true;  ///< false: even the largest that was tried keeps it
};

struct SimulationReport {
  std::string model;
  std::string machine;
  std::string workload;  ///< in words: "Poisson arrivals, 4 requests/s; prompts of 512 tokens; ..."
  std::string compared;  ///< "kv-allocation", "block-size"; empty where there is one variant
  std::string load_unit;  ///< of LoadPoint::load: "users" or "requests/s"
  ServiceLevel slo;
  double slo_share = 0;                 ///< of requests that a load must keep the promise for
  std::vector<VariantReport> variants;  ///< at least one
};

/// Of the variants' settings those that are the same for all.
[[nodiscard]] Settings CommonSettings(const SimulationReport& report);

/// As people read it in a terminal.
[[nodiscard]] std::string FormatReport(const SimulationReport& report);

/// As programs read it. Units are in the keys' names: _s seconds, _per_s a second.
[[nodiscard]] nlohmann::json ToJson(const SimulationReport& report);

}  // namespace kvasir::plan
