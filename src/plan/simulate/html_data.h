// The numbers behind the page's pictures, as JSON. Private to the page.
#pragma once

#include <nlohmann/json.hpp>

#include "plan/simulate/report.h"

namespace kvasir::plan {

/// What the script of the page draws.
[[nodiscard]] nlohmann::ordered_json HtmlData(const SimulationReport& report);

}  // namespace kvasir::plan
