// The text of GET /metrics.
#pragma once

#include <string>

#include "server/context.h"

namespace kvasir::server {

[[nodiscard]] std::string MetricsPage(const Context& context);

}  // namespace kvasir::server
