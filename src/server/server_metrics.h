// What the HTTP side counts. Lock-free; read by the metrics page.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/metrics.h"

namespace kvasir::server {

inline constexpr size_t kRoutesMax = 32;  ///< and one more row for paths that do not exist
inline constexpr std::array<std::string_view, 5> kMethods = {"GET", "HEAD", "POST", "OPTIONS",
                                                             "other"};
[[nodiscard]] inline size_t MethodIndex(std::string_view method) {
  for (size_t i = 0; i + 1 < kMethods.size(); ++i) {
    if (kMethods[i] == method) return i;
  }
  return kMethods.size() - 1;
}

/// Bounds of fastapi-instrumentator's http_request_duration_seconds.
struct RouteSeconds : Histogram {
  RouteSeconds() : Histogram({0.1, 0.5, 1}) {}
};

struct ServerMetrics {
  /// By route, method and first digit of the status (1 ... 5).
  std::array<std::array<std::array<Counter, 6>, kMethods.size()>, kRoutesMax + 1> http_requests;
  std::array<Counter, kRoutesMax + 1> http_request_bytes;
  std::array<Counter, kRoutesMax + 1> http_response_bytes;
  std::array<Counter, kRoutesMax + 1> http_ended;  ///< requests behind the two sums above
  std::array<RouteSeconds, kRoutesMax + 1> http_request_seconds;
  Histogram http_request_highr_seconds{{0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1,  1.5, 2,
                                        2.5,  3,     3.5,  4,     4.5, 5,    7.5, 10,   30, 60}};
  Gauge requests_in_flight;      ///< that generate; /load
  Counter client_disconnects;    ///< before the answer was complete
  Counter protocol_errors;       ///< what was no HTTP request
  Counter token_events;          ///< handled
  Counter token_overhead_ns;     ///< spent on them: text, stop strings, JSON
  Counter streams;               ///< begun
  Counter stop_string_finishes;  ///< choices ended by a stop string
  Counter failed_streams;        ///< ended by an error event
};

}  // namespace kvasir::server
