// Numbers with units, as people type and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir::app {

/// "1073741824", "512MiB", "2GiB", "1.5GB" (B, KB, MB, GB powers of 1000; KiB, MiB, GiB of 1024).
[[nodiscard]] Result<int64_t> ParseBytes(std::string_view text);

/// "93.8 MiB": three or four digits and a unit of 1024.
[[nodiscard]] std::string FormatBytes(int64_t bytes);

/// The member of `words` with the smallest edit distance to `word`, where that is at most 3 and
/// less than half of the word; empty otherwise.
[[nodiscard]] std::string Nearest(std::string_view word, const std::vector<std::string>& words);

}  // namespace kvasir::app
