#include "plan/simulate/html_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "base/check.h"
#include "plan/simulate/html_data.h"

namespace kvasir::plan {
namespace {

// Which end of a row is the good one.
enum class Better : uint8_t { kNone, kLess, kMore };

struct Row {
  std::string name;
  Better better = Better::kNone;
  std::function<double(const SimulationResult&)> value;
  std::function<std::string(double)> text;
};

std::string Count(double value) { return fmt::format("{:.0f}", value); }
std::string Percent(double value) { return fmt::format("{:.1f} %", 100 * value); }
std::string Rate(double value) { return fmt::format("{:.{}f}", value, value < 100 ? 2 : 0); }
std::string Time(double value) {
  if (value < 1e-3) return fmt::format("{:.0f} µs", 1e6 * value);
  if (value < 1) return fmt::format("{:.{}f} ms", 1e3 * value, value < 0.1 ? 2 : 0);
  if (value < 600) return fmt::format("{:.2f} s", value);
  return fmt::format("{:.1f} min", value / 60);
}

double Over(double a, double b) { return b > 0 ? a / b : 0; }

std::vector<const RequestRecord*> Finished(const SimulationResult& result) {
  std::vector<const RequestRecord*> finished;
  for (const RequestRecord& request : result.requests) {
    if (request.end == RequestEnd::kFinished) finished.push_back(&request);
  }
  return finished;
}

double Share(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(
      std::min(static_cast<double>(values.size() - 1), share * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

double TtftAt(const SimulationResult& result, double share) {
  std::vector<double> values;
  for (const RequestRecord* request : Finished(result)) values.push_back(request->TtftSeconds());
  return Share(std::move(values), share);
}

double EndToEndAt(const SimulationResult& result, double share) {
  std::vector<double> values;
  for (const RequestRecord* request : Finished(result)) {
    values.push_back(request->EndToEndSeconds());
  }
  return Share(std::move(values), share);
}

double MetShare(const SimulationResult& result) {
  const auto met = std::ranges::count_if(result.requests, [&](const RequestRecord& request) {
    return request.end == RequestEnd::kFinished && result.slo.Met(request);
  });
  return Over(static_cast<double>(met), static_cast<double>(result.requests.size()));
}

std::vector<Row> Rows(bool slo) {
  using R = const SimulationResult&;
  std::vector<Row> rows = {
      {"Requests finished", Better::kMore,
       [](R r) { return static_cast<double>(Finished(r).size()); }, Count},
      {"Time until the last had ended", Better::kLess, [](R r) { return r.end_s; }, Time},
      {"Answers, tokens a second", Better::kMore,
       [](R r) { return Over(static_cast<double>(r.output_tokens), r.end_s); }, Rate},
      {"First token, half of the requests", Better::kLess, [](R r) { return TtftAt(r, 0.5); },
       Time},
      {"First token, 99 %", Better::kLess, [](R r) { return TtftAt(r, 0.99); }, Time},
      {"Between tokens, half", Better::kLess, [](R r) { return r.itl_s.Percentile(0.5); }, Time},
      {"Between tokens, 99 %", Better::kLess, [](R r) { return r.itl_s.Percentile(0.99); }, Time},
      {"Whole answer, half of the requests", Better::kLess, [](R r) { return EndToEndAt(r, 0.5); },
       Time},
      {"Sequences in a step, mean", Better::kMore,
       [](R r) {
         return Over(static_cast<double>(r.seats_count), static_cast<double>(r.steps_count));
       },
       Rate},
      {"Requests in the queue, mean", Better::kLess,
       [](R r) { return Over(r.waiting_seconds, r.busy_s); }, Rate},
      {"Cache in use, mean", Better::kNone,
       [](R r) {
         return Over(r.blocks_used_seconds, r.busy_s * static_cast<double>(r.blocks_count));
       },
       Percent},
      {"Of that held in vain", Better::kLess,
       [](R r) {
         return Over(r.slots_wasted_seconds, r.slots_wasted_seconds + r.slots_filled_seconds);
       },
       Percent},
      {"Prompt found in the cache", Better::kMore,
       [](R r) {
         return Over(static_cast<double>(r.cached_tokens), static_cast<double>(r.prompt_tokens));
       },
       Percent},
      {"Preemptions", Better::kLess, [](R r) { return static_cast<double>(r.preemptions); }, Count},
  };
  if (slo) {
    rows.insert(rows.begin() + 3,
                {"Requests served as promised", Better::kMore, MetShare, Percent});
  }
  return rows;
}

std::string Table(const Report& report) {
  std::string out = "<div class=\"scroll\"><table>\n<thead><tr><th></th>";
  for (const ReportVariant& variant : report.variants) {
    const std::string& name = variant.result->variant;
    out += fmt::format("<th>{}</th>", EscapeHtml(name.empty() ? "as configured" : name));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const Row& row : Rows(report.variants.front().result->slo.any())) {
    std::vector<double> values;
    for (const ReportVariant& variant : report.variants) {
      values.push_back(row.value(*variant.result));
    }
    std::optional<std::string> best;
    const auto [least, most] = std::ranges::minmax(values);
    if (row.better != Better::kNone && row.text(least) != row.text(most)) {
      best = row.text(row.better == Better::kLess ? least : most);
    }
    out += fmt::format("<tr><td>{}</td>", row.name);
    for (const double value : values) {
      const std::string text = row.text(value);
      out += fmt::format("<td{}>{}</td>", best == text ? " class=\"best\"" : "", text);
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace

CurvePoint CurvePointOf(double load, const SimulationResult& result) {
  return CurvePoint{
      .load = load,
      .ttft_s_p50 = TtftAt(result, 0.5),
      .ttft_s_p99 = TtftAt(result, 0.99),
      .itl_s_p50 = result.itl_s.Percentile(0.5),
      .itl_s_p99 = result.itl_s.Percentile(0.99),
      .output_tokens_per_s = Over(static_cast<double>(result.output_tokens), result.end_s),
  };
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string WriteReport(const Report& report) {
  KVASIR_CHECK(!report.variants.empty());
  std::string data =
      ReportData(report).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  // Inside of <script>, text that reads </script> or <!-- would end it.
  for (size_t at = data.find('<'); at != std::string::npos; at = data.find('<', at)) {
    data.replace(at, 1, "\\u003c");
  }
  std::string facts;
  for (const auto& [name, value] : report.facts) {
    facts += fmt::format("<dt>{}</dt><dd>{}</dd>\n", EscapeHtml(name), EscapeHtml(value));
  }
  const std::string title = EscapeHtml(report.title);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<title>{} - Kvasir simulation</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n"
      "<h1>{}</h1>\n<p class=\"soft\">What the server's own scheduler and cache did with this "
      "traffic, on a modelled machine. All times are simulated.</p>\n"
      "<code class=\"command\">{}</code>\n<dl>\n{}</dl>\n<h2>Summary</h2>\n{}"
      "<div id=\"pictures\"></div>\n"
      "<noscript><p>The pictures need JavaScript.</p></noscript>\n</main>\n"
      "<script type=\"application/json\" id=\"data\">{}</script>\n"
      "<script>\n{}</script>\n</body>\n</html>\n",
      title, kHtmlStyle, title, EscapeHtml(report.command), facts, Table(report), data,
      kHtmlScript);
}

}  // namespace kvasir::plan
