#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/strings.h"
#include "plan/search.h"
#include "plan/units.h"

namespace kvasir::plan {
namespace {

using Json = nlohmann::ordered_json;

std::string MachineText(const Candidate& candidate) {
  const int64_t devices = candidate.parallel.DevicesCount();
  if (devices == 1) return candidate.hardware;
  const Parallel& parallel = candidate.parallel;
  std::string text = fmt::format("{} x {}", devices, candidate.hardware);
  if (parallel.tensor == devices) return text;
  // As others call them.
  for (const auto& [name, degree] :
       {std::pair("TP", parallel.tensor), {"PP", parallel.pipeline}, {"EP", parallel.expert}}) {
    if (degree > 1) text += fmt::format(" {}{}", name, degree);
  }
  return text;
}

std::string PriceText(const std::optional<double>& usd) {
  return usd ? fmt::format("{:.2f}", *usd) : "?";
}

Json CandidateJson(const Candidate& candidate) {
  Json out;
  out["hardware"] = candidate.hardware;
  out["devices"] = candidate.parallel.DevicesCount();
  out["tensor_parallel"] = candidate.parallel.tensor;
  out["pipeline_parallel"] = candidate.parallel.pipeline;
  out["expert_parallel"] = candidate.parallel.expert;
  out["weights"] = candidate.weights;
  out["kv_cache_dtype"] = candidate.kv;
  out["max_num_batched_tokens"] = candidate.step_tokens;
  out["price_per_hour_usd"] = candidate.price_per_hour ? Json(*candidate.price_per_hour) : Json();
  out["users_paged"] = candidate.users_paged;
  if (candidate.ttft_s > 0) {
    out["ttft_seconds"] = candidate.ttft_s;
    out["itl_seconds"] = candidate.itl_s;
    out["decode_itl_seconds"] = candidate.decode_itl_s;
  }
  if (!candidate.failure.empty()) out["fails"] = candidate.failure;
  return out;
}

}  // namespace

std::string ToTable(const SearchResult& result, const ModelShape& model, const Choices& choices,
                    const Goal& goal) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out,
                 "{} for {} of {}{}{}, at {:.0f} % of each machine's bandwidth and {:.0f} % of its "
                 "operations; a prompt comes alone while the others decode: queues are what "
                 "kvasir simulate shows\n\n",
                 model.name, CountedText(choices.users, "user"),
                 TokensWords(choices.context_tokens),
                 goal.ttft_s ? ", TTFT at most " + SecondsText(*goal.ttft_s) : "",
                 goal.itl_s ? ", ITL at most " + SecondsText(*goal.itl_s) : "",
                 100 * choices.bandwidth_share, 100 * choices.compute_share);
  if (result.satisfying.empty()) {
    fmt::format_to(out, "No machine satisfies this.\n");
  } else {
    fmt::format_to(out, "{:>9}  {:<28} {:<12} {:<6} {:>11} {:>9} {:>10} {:>10}\n", "$ an hour",
                   "machines", "weights", "KV", "step tokens", "users fit", "TTFT", "ITL");
  }
  for (const Candidate& candidate : result.satisfying) {
    fmt::format_to(out, "{:>9}  {:<28} {:<12} {:<6} {:>11} {:>9} {:>10} {:>10}\n",
                   PriceText(candidate.price_per_hour), MachineText(candidate), candidate.weights,
                   candidate.kv, CountText(candidate.step_tokens), CountText(candidate.users_paged),
                   SecondsText(candidate.ttft_s), SecondsText(candidate.itl_s));
  }
  if (!result.failing.empty()) {
    fmt::format_to(out, "\nWhat fails elsewhere, with each machine's nearest settings\n");
  }
  for (const Candidate& candidate : result.failing) {
    fmt::format_to(out, "  {:<28} {:<12} {}\n", MachineText(candidate), candidate.weights,
                   candidate.failure);
  }
  return text;
}

Json ToJson(const SearchResult& result) {
  Json out;
  Json& satisfying = out["satisfying"] = Json::array();
  for (const Candidate& candidate : result.satisfying) {
    satisfying.push_back(CandidateJson(candidate));
  }
  Json& failing = out["failing"] = Json::array();
  for (const Candidate& candidate : result.failing) failing.push_back(CandidateJson(candidate));
  return out;
}

}  // namespace kvasir::plan
