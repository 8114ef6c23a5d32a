#include "plan/simulate/load_search.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kvasir::plan {

LoadSearch FindLoad(const LoadSearchOptions& options,
                    const std::function<Summary(double load)>& simulate) {
  KVASIR_CHECK(options.least > 0 && options.least <= options.first &&
               options.first <= options.largest && options.precision > 0);
  LoadSearch search;
  const auto kept = [&](double load) {
    Summary summary = simulate(load);
    const bool all = summary.slo_share >= options.slo_share;
    search.points.push_back({load, std::move(summary)});
    return all;
  };
  double low = 0;   // the largest known to be kept
  double high = 0;  // the smallest known to be broken
  double load = options.first;
  if (kept(load)) {
    low = load;
    while (low < options.largest) {
      load = std::min(2 * low, options.largest);
      if (!kept(load)) {
        high = load;
        break;
      }
      low = load;
    }
    search.bounded = high > 0;
  } else {
    high = load;
    while (high > options.least) {
      load = std::max(high / 2, options.least);
      if (options.whole) load = std::floor(load);
      if (kept(load)) {
        low = load;
        break;
      }
      high = load;
    }
  }
  while (low > 0 && high > 0 && high - low > options.precision * low) {
    load = (low + high) / 2;
    if (options.whole) {
      load = std::floor(load);
      if (load == low) break;
    }
    (kept(load) ? low : high) = load;
  }
  search.most = low;
  std::ranges::sort(search.points, {}, &LoadPoint::load);
  return search;
}

}  // namespace kvasir::plan
