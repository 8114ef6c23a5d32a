// The numbers behind the page's pictures, as JSON. Private to the report.
#pragma once

#include <nlohmann/json.hpp>

#include "plan/simulate/html_page.h"

namespace kvasir::plan {

/// What the script of the page draws.
[[nodiscard]] nlohmann::ordered_json ReportData(const Report& report);

}  // namespace kvasir::plan
