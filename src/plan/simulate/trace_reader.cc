#include "plan/simulate/trace_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <unordered_map>
#include <utility>

#include "base/strings.h"
#include "files/printable.h"
#include "plan/simulate/trace_rows.h"

namespace kvasir::plan {
namespace {

constexpr size_t kComplaintsMax = 20;
// More bad rows than one in so many make a file that is not what it was taken for.
constexpr int64_t kBadShare = 10;

bool Blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// Reads one line; where it is longer than kTraceLineBytesMax bytes no more of it than that.
bool GetLine(std::istream& input, std::string& line, bool& too_long) {
  line.clear();
  too_long = false;
  std::streambuf* buffer = input.rdbuf();
  for (int c = buffer->sbumpc();; c = buffer->sbumpc()) {
    if (c == std::char_traits<char>::eof()) {
      input.setstate(std::ios::eofbit);
      return !line.empty();
    }
    if (c == '\n') return true;
    if (line.size() < kTraceLineBytesMax) {
      line += static_cast<char>(c);
    } else {
      too_long = true;
      return true;
    }
  }
}

std::string FormatOf(std::string_view header) {
  const std::string lower = LowerCase(header);
  if (header.starts_with('{')) return "mooncake";
  if (lower.find("contexttokens") != std::string::npos) return "azure";
  if (lower.find("request tokens") != std::string::npos) return "burstgpt";
  return "";
}

// A later turn of a session begins with the turn before and its answer; names of blocks are left to
// it for what its session's first turn has in common with others.
void KeepFirstNames(std::vector<TraceRequest>& requests) {
  std::unordered_map<int64_t, size_t> first_names;
  for (TraceRequest& request : requests) {
    if (request.session < 0) continue;
    const auto [first, is_first] =
        first_names.try_emplace(request.session, request.block_hashes.size());
    if (request.block_hashes.size() > first->second) request.block_hashes.resize(first->second);
  }
}

}  // namespace

std::string Quoted(std::string_view text) {
  return fmt::format("'{}'", files::Printable(text, 60));
}

std::optional<std::string_view> TraceRows::Next() {
  bool too_long = false;
  for (;;) {
    if (full()) {
      NoteCutOff();
      return std::nullopt;
    }
    if (input_.eof() || !GetLine(input_, line_, too_long)) return std::nullopt;
    ++line_number_;
    where_ = fmt::format("line {}", line_number_);
    if (too_long) {
      // No trace has such a line, and it may have no end.
      error_ =
          MakeError(ErrorCode::kDataLoss, "{}, {}: expected at most {} bytes in a line, got more",
                    name_, where_, kTraceLineBytesMax);
      input_.setstate(std::ios::eofbit);
      return std::nullopt;
    }
    std::string_view line = line_;
    if (line_number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!Blank(line)) return line;
  }
}

void TraceRows::Take(TraceRequest request) {
  hashes_count_ += static_cast<int64_t>(request.block_hashes.size());
  reading_.trace.requests.push_back(std::move(request));
  if (hashes_count_ > kTraceHashesMax) {
    NoteCutOff();
    input_.setstate(std::ios::eofbit);
  }
}

void TraceRows::Complain(std::string_view problem) {
  ++reading_.bad_rows_count;
  if (reading_.complaints.size() < kComplaintsMax) {
    reading_.complaints.push_back(fmt::format("{}, {}: {}", name_, where_, problem));
  }
}

Result<TraceReading> TraceRows::Finish() {
  KVASIR_RETURN_IF_ERROR(error_);
  std::vector<TraceRequest>& requests = reading_.trace.requests;
  if (requests.empty()) {
    if (!reading_.complaints.empty()) {
      return MakeError(ErrorCode::kDataLoss, "{}", reading_.complaints.front());
    }
    return MakeError(ErrorCode::kDataLoss, "{}: expected at least one request, got none{}", name_,
                     reading_.failed_count > 0
                         ? fmt::format(" ({} without an answer)", reading_.failed_count)
                         : "");
  }
  if (reading_.bad_rows_count > reading_.rows_count / kBadShare) {
    return MakeError(ErrorCode::kDataLoss, "{} (and {} of {} rows are bad in all)",
                     reading_.complaints.front(), reading_.bad_rows_count, reading_.rows_count);
  }
  std::ranges::stable_sort(requests, {}, &TraceRequest::arrival_s);
  const double first = requests.front().arrival_s;
  for (TraceRequest& request : requests) request.arrival_s -= first;
  KeepFirstNames(requests);
  reading_.trace.source = name_;
  return std::move(reading_);
}

Result<TraceReading> ReadTrace(std::istream& input, const std::string& name,
                               const TraceOptions& options) {
  TraceRows rows(input, name, options);
  while (input.peek() == ' ' || input.peek() == '\n' || input.peek() == '\r') input.get();
  const bool list = input.peek() == '[';
  if (options.format == "sharegpt" || (options.format == "auto" && list)) {
    KVASIR_RETURN_IF_ERROR(ReadShareGpt(rows));
    return rows.Finish();
  }
  const auto line = rows.Next();
  if (!line) {
    KVASIR_RETURN_IF_ERROR(rows.status());
    return MakeError(ErrorCode::kDataLoss, "{}: expected a trace, got an empty file", name);
  }
  const std::string header(*line);
  const std::string format = options.format == "auto" ? FormatOf(header) : options.format;
  if (format == "mooncake") {
    KVASIR_RETURN_IF_ERROR(ReadMooncake(header, rows));
  } else if (format == "azure") {
    KVASIR_RETURN_IF_ERROR(ReadAzure(header, rows));
  } else if (format == "burstgpt") {
    KVASIR_RETURN_IF_ERROR(ReadBurstGpt(header, rows));
  } else {
    return MakeError(ErrorCode::kDataLoss,
                     "{}, line 1: expected a trace of the kind mooncake, azure, burstgpt or "
                     "sharegpt, got {}",
                     name, Quoted(header));
  }
  return rows.Finish();
}

Result<TraceReading> ReadTraceFile(const std::filesystem::path& path, const TraceOptions& options) {
  const std::string name = files::PrintablePath(path);
  std::error_code failure;
  const std::filesystem::file_type type = std::filesystem::status(path, failure).type();
  using Type = std::filesystem::file_type;
  if (type == Type::directory) {
    return MakeError(ErrorCode::kIo, "{}: expected a file, got a folder", name);
  }
  // Others have no end, or nothing to read. A standard input is mostly one of the two.
  if (type == Type::character || type == Type::block || type == Type::socket) {
    return MakeError(ErrorCode::kIo, "{}: expected a file or a pipe, got a special file", name);
  }
  errno = 0;
  std::ifstream input(path, std::ios::binary);
  if (!input) {
    return MakeError(ErrorCode::kIo, "{}: cannot be read: {}", name, std::strerror(errno));
  }
  return ReadTrace(input, name, options);
}

}  // namespace kvasir::plan
