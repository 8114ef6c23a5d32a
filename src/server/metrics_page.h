// The text of GET /metrics.
#pragma once

#include <cstdint>
#include <string>

#include "server/context.h"

namespace kvasir::server {

/// The families' names.
enum class MetricNames : uint8_t {
  kVllm,   ///< vllm:*, and kvasir:* beside them, as vLLM writes its own
  kPlain,  ///< kvasir_* for both, after Prometheus' rules, in which colons are for recording rules
};

[[nodiscard]] std::string MetricsPage(const Context& context, MetricNames names);

}  // namespace kvasir::server
