// A simulation as one page of HTML that needs nothing else: no network, no fonts, no libraries.
#pragma once

#include <string>
#include <string_view>

#include "plan/simulate/report.h"

namespace kvasir::plan {

/// The page; `command` is what was typed. Everything that came from outside is escaped. Pictures
/// are drawn of what the results hold: samples of steps, details, snapshots, loads.
[[nodiscard]] std::string WriteHtml(const SimulationReport& report, std::string_view command);

/// Parts of the page, from src/plan/simulate/html.
extern const std::string_view kHtmlStyle;
extern const std::string_view kHtmlScript;

}  // namespace kvasir::plan
