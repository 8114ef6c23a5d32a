#include "plan/simulate/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

namespace kvasir::plan {

namespace {

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
double Ratio(int64_t part, int64_t whole) {
  return Ratio(static_cast<double>(part), static_cast<double>(whole));
}

/// Sorts `values`.
Percentiles PercentilesOf(std::vector<double>& values) {
  Percentiles out;
  if (values.empty()) return out;
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(values.size()));
    return values[static_cast<size_t>(std::max(1.0, rank)) - 1];
  };
  double sum = 0;
  for (const double value : values) sum += value;
  out.mean_s = sum / static_cast<double>(values.size());
  out.p50_s = at(0.5);
  out.p90_s = at(0.9);
  out.p99_s = at(0.99);
  out.max_s = values.back();
  return out;
}

Percentiles PercentilesOf(const Distribution& distribution) {
  return {distribution.mean(), distribution.Percentile(0.5), distribution.Percentile(0.9),
          distribution.Percentile(0.99), distribution.max()};
}

void CountEnd(RequestEnd end, Summary& summary) {
  switch (end) {
    case RequestEnd::kUnfinished:
      ++summary.unfinished_count;
      break;
    case RequestEnd::kFinished:
      ++summary.finished_count;
      break;
    case RequestEnd::kQueueFull:
      ++summary.queue_full_count;
      break;
    case RequestEnd::kNeverFits:
      ++summary.never_fits_count;
      break;
    case RequestEnd::kWaitedOut:
      ++summary.waited_out_count;
      break;
  }
}

void SummarizeRequests(const SimulationResult& result, int64_t warm_up, Summary& summary) {
  std::vector<double> ttft;
  std::vector<double> end_to_end;
  std::vector<double> queue;
  int64_t kept = 0;
  int64_t promised = 0;
  double begin_s = 0;  // of what counts
  for (const RequestRecord& request : result.requests) {
    CountEnd(request.end, summary);
    if (warm_up-- > 0) {
      begin_s = request.arrival_s;
      continue;
    }
    // Those still under way have broken no promise yet, nor kept it.
    if (request.end != RequestEnd::kUnfinished) ++promised;
    if (request.end != RequestEnd::kFinished) continue;
    ttft.push_back(request.TtftSeconds());
    end_to_end.push_back(request.EndToEndSeconds());
    queue.push_back(request.scheduled_s - request.queued_s);
    if (result.slo.Met(request)) ++kept;
  }
  summary.requests_count = static_cast<int64_t>(result.requests.size());
  summary.requests_per_s = Ratio(static_cast<double>(summary.finished_count), result.end_s);
  summary.ttft = PercentilesOf(ttft);
  summary.end_to_end = PercentilesOf(end_to_end);
  summary.queue = PercentilesOf(queue);
  summary.itl = PercentilesOf(result.itl_s);
  summary.has_slo = result.slo.any();
  summary.slo_share = Ratio(kept, promised);
  summary.goodput_per_s = Ratio(static_cast<double>(kept), result.end_s - begin_s);
}

using FormatCell = std::function<std::string(const Summary&)>;
struct Line {
  const char* label;
  FormatCell cell;
};

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string Rate(double value, const char* unit) {
  return fmt::format(
      "{} {}", value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value), unit);
}

std::vector<Line> Lines(std::span<const Summary> summaries) {
  const auto any = [&](auto member) {
    return std::ranges::any_of(summaries, [&](const Summary& s) { return s.*member != 0; });
  };
  std::vector<Line> lines;
  const auto add = [&](const char* label, FormatCell cell) {
    lines.push_back({label, std::move(cell)});
  };
  const auto add_count = [&](const char* label, int64_t Summary::*member) {
    if (any(member))
      add(label, [member](const Summary& s) { return fmt::format("{}", s.*member); });
  };
  const auto add_times = [&](const char* p50, const char* p99, Percentiles Summary::*member) {
    add(p50, [member](const Summary& s) { return FormatSeconds((s.*member).p50_s); });
    add(p99, [member](const Summary& s) { return FormatSeconds((s.*member).p99_s); });
  };
  add("requests finished", [](const Summary& s) { return fmt::format("{}", s.finished_count); });
  add_count("refused, queue full", &Summary::queue_full_count);
  add_count("refused, can never fit", &Summary::never_fits_count);
  add_count("waited too long", &Summary::waited_out_count);
  add_count("unfinished at the end", &Summary::unfinished_count);
  add("simulated time", [](const Summary& s) { return FormatSeconds(s.duration_s); });
  add("output", [](const Summary& s) { return Rate(s.output_tokens_per_s, "tokens/s"); });
  add("requests", [](const Summary& s) { return Rate(s.requests_per_s, "/s"); });
  add_times("time to first token, median", "  99 %", &Summary::ttft);
  add_times("time between tokens, median", "  99 %", &Summary::itl);
  add_times("end to end, median", "  99 %", &Summary::end_to_end);
  add_times("wait in the queue, median", "  99 %", &Summary::queue);
  if (any(&Summary::has_slo)) {
    add("promise kept", [](const Summary& s) { return Percent(s.slo_share); });
    add("goodput", [](const Summary& s) { return Rate(s.goodput_per_s, "requests/s"); });
  }
  add("sequences a step, mean",
      [](const Summary& s) { return fmt::format("{:.1f}", s.sequences_per_step); });
  add("tokens a step, mean",
      [](const Summary& s) { return fmt::format("{:.1f}", s.tokens_per_step); });
  add("running, mean / most",
      [](const Summary& s) { return fmt::format("{:.1f} / {}", s.running_mean, s.running_max); });
  add("waiting, mean / most",
      [](const Summary& s) { return fmt::format("{:.1f} / {}", s.waiting_mean, s.waiting_max); });
  add("machine busy", [](const Summary& s) { return Percent(s.busy_share); });
  add("KV cache", [](const Summary& s) { return fmt::format("{} tokens", s.kv_tokens); });
  add("  held by sequences, mean / most", [](const Summary& s) {
    return fmt::format("{} / {}", Percent(s.kv_used_mean), Percent(s.kv_used_max));
  });
  add("  filled, mean", [](const Summary& s) { return Percent(s.kv_filled_mean); });
  add("  held in vain, mean", [](const Summary& s) { return Percent(s.kv_wasted_mean); });
  add("  of what is held, in vain", [](const Summary& s) { return Percent(s.fragmentation); });
  add("prompt tokens found cached", [](const Summary& s) { return Percent(s.hit_rate); });
  add("preemptions", [](const Summary& s) { return fmt::format("{}", s.preemptions); });
  add_count("tokens computed again", &Summary::recomputed_tokens);
  return lines;
}

nlohmann::json ToJson(const Percentiles& percentiles) {
  return {{"mean", percentiles.mean_s},
          {"p50", percentiles.p50_s},
          {"p90", percentiles.p90_s},
          {"p99", percentiles.p99_s},
          {"max", percentiles.max_s}};
}

}  // namespace

Summary Summarize(const SimulationResult& result, int64_t warm_up) {
  Summary summary;
  summary.variant = result.variant;
  SummarizeRequests(result, warm_up, summary);
  summary.prompt_tokens = result.prompt_tokens;
  summary.cached_tokens = result.cached_tokens;
  summary.output_tokens = result.output_tokens;
  summary.duration_s = result.end_s;
  summary.output_tokens_per_s = Ratio(static_cast<double>(result.output_tokens), result.end_s);
  summary.prompt_tokens_per_s = Ratio(static_cast<double>(result.prompt_tokens), result.end_s);
  summary.sequences_per_step = Ratio(result.seats_count, result.steps_count);
  summary.tokens_per_step = Ratio(result.computed_tokens, result.steps_count);
  summary.running_mean = Ratio(result.running_seconds, result.busy_s);
  summary.running_max = result.running_max;
  summary.waiting_mean = Ratio(result.waiting_seconds, result.busy_s);
  summary.waiting_max = result.waiting_max;
  summary.busy_share = Ratio(result.busy_s, result.end_s);
  summary.steps_count = result.steps_count;
  const double slots = static_cast<double>(result.blocks_count * result.block_tokens);
  summary.kv_bytes = result.blocks_count * result.block_bytes;
  summary.kv_tokens = result.blocks_count / result.groups_count * result.block_tokens;
  summary.kv_used_mean =
      Ratio(result.blocks_used_seconds, result.busy_s) / static_cast<double>(result.blocks_count);
  summary.kv_used_max = Ratio(result.blocks_used_max, result.blocks_count);
  summary.kv_filled_mean = Ratio(result.slots_filled_seconds, result.busy_s) / slots;
  summary.kv_wasted_mean = Ratio(result.slots_wasted_seconds, result.busy_s) / slots;
  summary.fragmentation =
      Ratio(result.slots_wasted_seconds, result.slots_filled_seconds + result.slots_wasted_seconds);
  summary.hit_rate = Ratio(result.cached_tokens, result.prompt_tokens);
  summary.preemptions = result.preemptions;
  summary.recomputed_tokens = result.recomputed_tokens;
  return summary;
}

std::string FormatSeconds(double seconds) {
  const auto three = [](double value) {
    return value >= 100  ? fmt::format("{:.0f}", value)
           : value >= 10 ? fmt::format("{:.1f}", value)
                         : fmt::format("{:.2f}", value);
  };
  if (seconds == 0) return "0 s";
  if (seconds >= 1) return three(seconds) + " s";
  if (seconds >= 1e-3) return three(seconds * 1e3) + " ms";
  return three(seconds * 1e6) + " us";
}

std::string FormatTable(std::span<const Summary> summaries) {
  const std::vector<Line> lines = Lines(summaries);
  size_t label_width = 0;
  for (const Line& line : lines)
    label_width = std::max(label_width, std::string_view(line.label).size());
  std::vector<size_t> widths;
  for (const Summary& summary : summaries) {
    size_t width = summary.variant.size();
    for (const Line& line : lines) width = std::max(width, line.cell(summary).size());
    widths.push_back(width);
  }
  std::string table;
  const auto add_row = [&](std::string_view label, const FormatCell& cell) {
    table += fmt::format("{:<{}}", label, label_width);
    for (size_t i = 0; i < summaries.size(); ++i) {
      table += fmt::format("  {:>{}}", cell(summaries[i]), widths[i]);
    }
    table += '\n';
  };
  const bool named = std::ranges::any_of(
      summaries, [](const Summary& summary) { return !summary.variant.empty(); });
  if (named) add_row("", [](const Summary& summary) { return summary.variant; });
  for (const Line& line : lines) add_row(line.label, line.cell);
  return table;
}

nlohmann::json ToJson(const Summary& summary) {
  nlohmann::json json = {
      {"requests", summary.requests_count},
      {"finished", summary.finished_count},
      {"refused_queue_full", summary.queue_full_count},
      {"refused_never_fits", summary.never_fits_count},
      {"waited_out", summary.waited_out_count},
      {"unfinished", summary.unfinished_count},
      {"prompt_tokens", summary.prompt_tokens},
      {"cached_tokens", summary.cached_tokens},
      {"output_tokens", summary.output_tokens},
      {"duration_s", summary.duration_s},
      {"requests_per_s", summary.requests_per_s},
      {"output_tokens_per_s", summary.output_tokens_per_s},
      {"prompt_tokens_per_s", summary.prompt_tokens_per_s},
      {"ttft_s", ToJson(summary.ttft)},
      {"itl_s", ToJson(summary.itl)},
      {"end_to_end_s", ToJson(summary.end_to_end)},
      {"queue_s", ToJson(summary.queue)},
      {"sequences_per_step", summary.sequences_per_step},
      {"tokens_per_step", summary.tokens_per_step},
      {"running_mean", summary.running_mean},
      {"running_max", summary.running_max},
      {"waiting_mean", summary.waiting_mean},
      {"waiting_max", summary.waiting_max},
      {"busy_share", summary.busy_share},
      {"steps", summary.steps_count},
      {"kv_bytes", summary.kv_bytes},
      {"kv_tokens", summary.kv_tokens},
      {"kv_used_mean", summary.kv_used_mean},
      {"kv_used_max", summary.kv_used_max},
      {"kv_filled_mean", summary.kv_filled_mean},
      {"kv_wasted_mean", summary.kv_wasted_mean},
      {"fragmentation", summary.fragmentation},
      {"hit_rate", summary.hit_rate},
      {"preemptions", summary.preemptions},
      {"recomputed_tokens", summary.recomputed_tokens},
  };
  if (!summary.variant.empty()) json["variant"] = summary.variant;
  if (summary.has_slo) {
    json["slo_share"] = summary.slo_share;
    json["goodput_requests_per_s"] = summary.goodput_per_s;
  }
  return json;
}

}  // namespace kvasir::plan
