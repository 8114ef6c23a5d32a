// The ranges of sampling values, in one place for requests, generation_config.json and the command
// line, and how asked values and defaults become SamplingParams.
#pragma once

#include <cstdint>
#include <string_view>

#include "contract/sampling_params.h"
#include "server/server.h"

namespace kvasir::server {

struct NumberRange {
  std::string_view text;        ///< "in [0, 2]": completes "NAME must be"
  bool (*holds)(double value);  ///< false for NaN
};

inline constexpr NumberRange kTemperatureRange{"in [0, 2]",
                                               [](double v) { return v >= 0 && v <= 2; }};
inline constexpr NumberRange kTopPRange{"in (0, 1]", [](double v) { return v > 0 && v <= 1; }};
inline constexpr NumberRange kTopKRange{"0 (disable), or at least 1",
                                        [](double v) { return v >= -1 && v <= 0x1p63; }};
inline constexpr NumberRange kMinPRange{"in [0, 1]", [](double v) { return v >= 0 && v <= 1; }};
/// Beyond it logits overflow, or all become equal.
inline constexpr NumberRange kRepetitionPenaltyRange{
    "in [0.01, 100]", [](double v) { return v >= 0.01 && v <= 100; }};

/// Sets temperature, top_p, top_k, min_p and repetition_penalty: as asked, else the model's
/// defaults, else without effect. All values must be within their ranges.
void SetFilters(const GenerationDefaults& asked, const GenerationDefaults& defaults,
                int64_t vocab_size, SamplingParams& sampling);

}  // namespace kvasir::server
