// How much load a server bears: one simulation a load, until the promise breaks.
#pragma once

#include <functional>
#include <vector>

#include "plan/simulate/summary.h"

namespace kvasir::plan {

struct LoadPoint {
  double load = 0;  ///< users, or requests a second
  Summary summary;
};

struct LoadSearch {
  double most = 0;                ///< the largest load that kept the promise; 0: none did
  bool bounded = true;            ///< false: even the largest that was tried kept it
  std::vector<LoadPoint> points;  ///< all that were tried, by load
};

struct LoadSearchOptions {
  bool whole = true;        ///< loads are whole numbers
  double first = 1;         ///< tried first
  double least = 1;         ///< tried last where less and less fails
  double largest = 65536;   ///< tried last where more and more is kept
  double slo_share = 0.95;  ///< of requests for which the promise must be kept
  double precision = 0.02;  ///< of the answer where loads are not whole
};

/// Doubles or halves the load until the promise breaks or holds, then halves the interval. Of
/// thousands of whole loads the last are left out: the answer is within `precision`, too.
[[nodiscard]] LoadSearch FindLoad(const LoadSearchOptions& options,
                                  const std::function<Summary(double load)>& simulate);

}  // namespace kvasir::plan
