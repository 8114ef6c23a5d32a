// Reads the traces that people have. Times and lengths are taken, and which prompts begin alike;
// text, where a file holds any, is counted and forgotten.
//
//   mooncake  JSON lines: timestamp (ms), input_length, output_length, hash_ids (of blocks of 512
//             tokens, or of the line's own block_size). What --record-trace writes is of this kind;
//             its session numbers tell the turns of a conversation.
//   azure     CSV: TIMESTAMP (date and time), ContextTokens, GeneratedTokens
//   burstgpt  CSV: Timestamp (s), Request tokens, Response tokens; an answer of 0 tokens failed and
//             is left out
//   sharegpt  JSON: a list of objects with conversations, a list of {from, value}. No times: they
//             are drawn
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/simulate/trace.h"

namespace kvasir::plan {

struct TraceOptions {
  std::string format =
      "auto";  ///< mooncake, azure, burstgpt, sharegpt; auto: by what it begins with
  int64_t requests_max = 10'000'000;  ///< further ones are not read

  // For texts:
  double tokens_per_character = 0.25;  ///< characters are code points; English is near this
  /// Counts with a tokenizer instead, where given.
  std::function<int64_t(std::string_view text)> count_tokens;
  double conversations_per_s = 1;  ///< Poisson arrivals, where a file has no times
  double think_s = 0;              ///< from an answer to the next turn
  uint64_t seed = 0;
};

struct TraceReading {
  Trace trace;                 ///< in the order of arrival, the first at 0
  int64_t rows_count = 0;      ///< requests read or refused
  int64_t bad_rows_count = 0;  ///< left out
  int64_t failed_count = 0;    ///< left out because nothing was answered
  bool cut_off = false;        ///< at requests_max
  bool times_drawn = false;    ///< by conversations_per_s and think_s: the file has none
  /// Of the first bad rows: "trace.csv, line 7: expected ..., got ...".
  std::vector<std::string> complaints;
};

/// Bad rows are left out, unless they are more than one in ten. Errors, one line each: a file that
/// cannot be read, is of no known kind, or has no good row.
[[nodiscard]] Result<TraceReading> ReadTraceFile(const std::filesystem::path& path,
                                                 const TraceOptions& options);
/// `name` stands for the file in messages.
[[nodiscard]] Result<TraceReading> ReadTrace(std::istream& input, const std::string& name,
                                             const TraceOptions& options);

}  // namespace kvasir::plan
