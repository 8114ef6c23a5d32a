#include "plan/simulate/result.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kvasir::plan {

namespace {

// A bin is an exponent and the first 7 bits of the mantissa: 1/128 to 1/256 wide, relatively. From
// 2^-40 (a picosecond) to 2^40.
constexpr int kMantissaBits = 7;
constexpr int64_t kLeastExponent = -40;
constexpr int64_t kExponents = 80;
constexpr int64_t kBins = kExponents << kMantissaBits;
constexpr int64_t kDoubleBias = 1023;

int64_t BinOf(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto bin = static_cast<int64_t>(bits >> (52 - kMantissaBits)) -
                   ((kDoubleBias + kLeastExponent) << kMantissaBits);
  // Bin 0 is for zero and what is too small to matter.
  return value > 0 ? std::clamp<int64_t>(bin, 0, kBins - 1) : 0;
}

double MiddleOf(int64_t bin) {
  if (bin == 0) return 0;
  const int64_t exponent = (bin >> kMantissaBits) + kLeastExponent;
  const int64_t step = bin & ((1 << kMantissaBits) - 1);
  const double mantissa =
      1.0 + (static_cast<double>(step) + 0.5) / static_cast<double>(1 << kMantissaBits);
  return std::ldexp(mantissa, static_cast<int>(exponent));
}

bool Within(double promised, double value) { return promised <= 0 || value <= promised; }

}  // namespace

void Distribution::Add(double value, int64_t times) {
  if (bins_.empty()) bins_.resize(kBins);
  bins_[static_cast<size_t>(BinOf(value))] += times;
  count_ += times;
  sum_ += value * static_cast<double>(times);
  max_ = std::max(max_, value);
}

double Distribution::Percentile(double share) const {
  const auto wanted =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share * static_cast<double>(count_))));
  int64_t seen = 0;
  for (size_t bin = 0; bin < bins_.size(); ++bin) {
    seen += bins_[bin];
    if (seen >= wanted) return std::min(MiddleOf(static_cast<int64_t>(bin)), max_);
  }
  return 0;
}

bool ServiceLevel::Met(const RequestRecord& request) const {
  return request.end == RequestEnd::kFinished && Within(ttft_s, request.TtftSeconds()) &&
         Within(itl_s, request.ItlMeanSeconds()) && Within(end_to_end_s, request.EndToEndSeconds());
}

}  // namespace kvasir::plan
