// Mooncake's traces, and those that Kvasir records: a JSON object a line.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "files/json.h"
#include "plan/simulate/trace_rows.h"

namespace kvasir::plan {
namespace {

using Json = nlohmann::json;

constexpr int64_t kBlockTokensMax = 1 << 20;
constexpr int64_t kSessionMax = int64_t{1} << 60;

const Json* Find(const Json& row, const char* name) {
  const auto found = row.find(name);
  return found == row.end() ? nullptr : &*found;
}

std::string Complaint(const char* name, std::string_view expected, const Json* got) {
  if (got == nullptr) return fmt::format("expected the field '{}', found none", name);
  return fmt::format("{}: expected {}, got {}", name, expected,
                     Quoted(got->dump(-1, ' ', true, Json::error_handler_t::replace)));
}

bool ReadCount(const Json* value, int64_t least, int64_t most, int64_t& count) {
  if (value == nullptr || !value->is_number_integer()) return false;
  count = value->get<int64_t>();
  return count >= least && count <= most;
}

// The request, or what is wrong.
std::string ReadRow(const Json& row, TraceRequest& request) {
  if (!row.is_object()) return fmt::format("expected an object, got {}", row.type_name());
  const Json* time = Find(row, "timestamp");
  if (time == nullptr || !time->is_number() ||
      !(std::abs(time->get<double>()) <= 1e3 * kTraceSecondsMax)) {
    return Complaint("timestamp", "milliseconds", time);
  }
  request.arrival_s = time->get<double>() / 1e3;
  const Json* prompt = Find(row, "input_length");
  if (!ReadCount(prompt, 1, kTraceTokensMax, request.prompt_tokens)) {
    return Complaint("input_length", fmt::format("tokens, 1 to {}", kTraceTokensMax), prompt);
  }
  const Json* output = Find(row, "output_length");
  if (!ReadCount(output, 1, kTraceTokensMax, request.output_tokens)) {
    return Complaint("output_length", fmt::format("tokens, 1 to {}", kTraceTokensMax), output);
  }
  const Json* session = Find(row, "session");
  if (session != nullptr && !ReadCount(session, 0, kSessionMax, request.session)) {
    return Complaint("session", "an integer of at least 0", session);
  }
  const Json* hashes = Find(row, "hash_ids");
  if (hashes == nullptr) return "";
  request.hash_block_tokens = kMooncakeBlockTokens;
  const Json* block = Find(row, "block_size");
  if (block != nullptr && !ReadCount(block, 1, kBlockTokensMax, request.hash_block_tokens)) {
    return Complaint("block_size", fmt::format("tokens, 1 to {}", kBlockTokensMax), block);
  }
  const int64_t blocks_max =
      (request.prompt_tokens + request.hash_block_tokens - 1) / request.hash_block_tokens;
  if (!hashes->is_array() || static_cast<int64_t>(hashes->size()) > blocks_max) {
    return Complaint("hash_ids",
                     fmt::format("a list of at most {} ids of {} tokens each", blocks_max,
                                 request.hash_block_tokens),
                     hashes);
  }
  for (const Json& hash : *hashes) {
    if (!hash.is_number_integer()) return Complaint("hash_ids", "integers", &hash);
    request.block_hashes.push_back(hash.get<uint64_t>());
  }
  return "";
}

}  // namespace

Status ReadMooncake(std::string_view header, TraceRows& rows) {
  std::optional<std::string_view> line = header;
  do {
    rows.CountRow();
    const auto row = files::ParseJson(*line, "row", 8);
    if (!row.ok()) {
      rows.Complain(fmt::format("expected a JSON object, got {}", Quoted(*line)));
      continue;
    }
    TraceRequest request;
    const std::string problem = ReadRow(*row, request);
    if (problem.empty()) {
      rows.Take(std::move(request));
    } else {
      rows.Complain(problem);
    }
  } while ((line = rows.Next()));
  return Status::Ok();
}

}  // namespace kvasir::plan
