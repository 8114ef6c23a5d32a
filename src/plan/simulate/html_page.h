// A simulation as one page of HTML that needs nothing else: no network, no fonts, no libraries.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/simulate/result.h"

namespace kvasir::plan {

/// What came of one load, for the curves of latency over load.
struct CurvePoint {
  double load = 0;  ///< in Report::load_unit
  double ttft_s_p50 = 0;
  double ttft_s_p99 = 0;
  double itl_s_p50 = 0;
  double itl_s_p99 = 0;
  double output_tokens_per_s = 0;
};

/// The point that a simulation at `load` makes.
[[nodiscard]] CurvePoint CurvePointOf(double load, const SimulationResult& result);

struct ReportVariant {
  const SimulationResult* result = nullptr;  ///< its `variant` is the heading
  std::vector<CurvePoint> curve;             ///< by load; none: no curves
};

struct Report {
  std::string title;                                       ///< "gpt-oss-120b on h100-80gb"
  std::string command;                                     ///< as typed
  std::vector<std::pair<std::string, std::string>> facts;  ///< machine, model, traffic, switches
  std::string load_unit = "requests a second";
  std::vector<ReportVariant> variants;  ///< at least one
};

/// The page. Everything that came from outside is escaped.
[[nodiscard]] std::string WriteReport(const Report& report);

/// `text` as HTML shows it: & < > " and ' escaped.
[[nodiscard]] std::string EscapeHtml(std::string_view text);

/// Parts of the page, from src/plan/simulate/html.
extern const std::string_view kHtmlStyle;
extern const std::string_view kHtmlScript;

}  // namespace kvasir::plan
