// Numbers with units, as a plan's user types and reads them. Memory is in powers of 1000, as
// machines are sold; tokens in powers of 1024, as contexts are named.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::plan {

/// "8192", "8k" (8,192), "1m" (1,048,576). At least 1. `flag` names the flag in messages.
[[nodiscard]] Result<int64_t> ParseTokens(std::string_view text, std::string_view flag);
/// "2s", "50ms", "100us". Above 0, or "0s" where that is allowed. A number without a unit is
/// refused: 50 of what?
[[nodiscard]] Result<double> ParseDuration(std::string_view text, std::string_view flag,
                                           bool zero_allowed = false);

/// "65.2 GB", "940 B".
[[nodiscard]] std::string BytesText(double bytes);
/// "1 user", "1,234 users".
[[nodiscard]] std::string CountedText(int64_t count, std::string_view thing);
/// "117 B", "135 M", "4,310".
[[nodiscard]] std::string ParametersText(int64_t count);
/// "1.8 s", "12.4 ms", "310 us".
[[nodiscard]] std::string SecondsText(double seconds);
/// Three digits: "0.0213", "12.4", "4,310".
[[nodiscard]] std::string ShortText(double value);
/// "8k", "131,072": tokens as a context is named.
[[nodiscard]] std::string TokensText(int64_t tokens);
/// "1 token", "8k tokens".
[[nodiscard]] std::string TokensWords(int64_t tokens);

}  // namespace kvasir::plan
