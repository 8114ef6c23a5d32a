// Rows of a trace while it is read: numbered, limited in length, and complained about. Private to
// the readers of traces.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/simulate/trace_reader.h"

namespace kvasir::plan {

inline constexpr size_t kTraceLineBytesMax = size_t{16} << 20;
inline constexpr int64_t kTraceTokensMax = 100'000'000;  ///< of one prompt or answer
inline constexpr double kTraceSecondsMax = 1e11;         ///< three thousand years, either way
inline constexpr int64_t kMooncakeBlockTokens = 512;
/// Of all requests together, so that a file of gigabytes ends with a message.
inline constexpr int64_t kTraceHashesMax = 500'000'000;

class TraceRows {
 public:
  TraceRows(std::istream& input, std::string name, const TraceOptions& options)
      : input_(input), name_(std::move(name)), options_(options) {}

  /// The next line that is not blank, without its end; valid until the next call. Nothing at the
  /// end, or when requests_max rows have been taken.
  std::optional<std::string_view> Next();
  /// Takes a request; its arrival is in seconds after any moment.
  void Take(TraceRequest request);
  /// The row is left out: `problem` is "expected ..., got ...".
  void Complain(std::string_view problem);
  void NoteFailed() { ++reading_.failed_count; }
  [[nodiscard]] bool full() const {
    return static_cast<int64_t>(reading_.trace.requests.size()) >= options_.requests_max;
  }
  void NoteCutOff() { reading_.cut_off = true; }
  void CountRow() { ++reading_.rows_count; }
  /// For readers that do not read by lines.
  void set_where(std::string where) { where_ = std::move(where); }

  /// Sorts, moves the first arrival to 0, and judges.
  [[nodiscard]] Result<TraceReading> Finish();
  /// What ended the reading before the file's end.
  [[nodiscard]] const Status& status() const { return error_; }
  /// The file has no times: they are drawn.
  void NoteTimesDrawn() { reading_.times_drawn = true; }

  [[nodiscard]] const TraceOptions& options() const { return options_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::istream& input() { return input_; }

 private:
  std::istream& input_;
  const std::string name_;
  const TraceOptions& options_;
  TraceReading reading_;
  Status error_;
  std::string line_;
  std::string where_;
  int64_t line_number_ = 0;
  int64_t hashes_count_ = 0;
};

/// At most 60 characters of what came, printable, in quotes.
[[nodiscard]] std::string Quoted(std::string_view text);

// Each reads all rows that follow. `header` is the first line.
[[nodiscard]] Status ReadMooncake(std::string_view header, TraceRows& rows);
[[nodiscard]] Status ReadAzure(std::string_view header, TraceRows& rows);
[[nodiscard]] Status ReadBurstGpt(std::string_view header, TraceRows& rows);
/// From the stream's beginning.
[[nodiscard]] Status ReadShareGpt(TraceRows& rows);

}  // namespace kvasir::plan
