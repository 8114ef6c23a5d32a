#include "plan/simulate/html_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/strings.h"
#include "plan/simulate/html_data.h"

namespace kvasir::plan {
namespace {

// Which end of a row is the good one.
enum class Better : uint8_t { kNone, kLess, kMore };

struct Row {
  std::string name;
  Better better = Better::kNone;
  std::function<double(const Summary&)> value;
  std::function<std::string(double)> text;
};

std::string Count(double value) { return fmt::format("{:.0f}", value); }
std::string Percent(double value) { return fmt::format("{:.1f} %", 100 * value); }
std::string Rate(double value) { return fmt::format("{:.{}f}", value, value < 100 ? 2 : 0); }

std::vector<Row> Rows(const Summary& first) {
  using S = const Summary&;
  std::vector<Row> rows = {
      {"Requests finished", Better::kMore,
       [](S s) { return static_cast<double>(s.finished_count); }, Count},
      {"Time until the last had ended", Better::kLess, [](S s) { return s.duration_s; },
       FormatSeconds},
      {"Answers, tokens a second", Better::kMore, [](S s) { return s.output_tokens_per_s; }, Rate},
      {"First token, half of the requests", Better::kLess, [](S s) { return s.ttft.p50_s; },
       FormatSeconds},
      {"First token, 99 %", Better::kLess, [](S s) { return s.ttft.p99_s; }, FormatSeconds},
      {"Between tokens, half", Better::kLess, [](S s) { return s.itl.p50_s; }, FormatSeconds},
      {"Between tokens, 99 %", Better::kLess, [](S s) { return s.itl.p99_s; }, FormatSeconds},
      {"Whole answer, half of the requests", Better::kLess, [](S s) { return s.end_to_end.p50_s; },
       FormatSeconds},
      {"Sequences in a step, mean", Better::kMore, [](S s) { return s.sequences_per_step; }, Rate},
      {"Requests in the queue, mean", Better::kLess, [](S s) { return s.waiting_mean; }, Rate},
      {"Cache held by requests, mean", Better::kNone, [](S s) { return s.kv_used_mean; }, Percent},
      {"Of that held in vain", Better::kLess, [](S s) { return s.fragmentation; }, Percent},
      {"Prompt found in the cache", Better::kMore, [](S s) { return s.hit_rate; }, Percent},
      {"Preemptions", Better::kLess, [](S s) { return static_cast<double>(s.preemptions); }, Count},
  };
  if (first.has_slo) {
    rows.insert(rows.begin() + 3, {"Requests served as promised", Better::kMore,
                                   [](S s) { return s.slo_share; }, Percent});
  }
  return rows;
}

std::string Table(const SimulationReport& report) {
  std::string out = "<div class=\"scroll\"><table>\n<thead><tr><th></th>";
  for (const VariantReport& variant : report.variants) {
    const std::string& name = variant.summary.variant;
    out += fmt::format("<th>{}</th>", EscapeHtml(name.empty() ? "as configured" : name));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const Row& row : Rows(report.variants.front().summary)) {
    std::vector<double> values;
    for (const VariantReport& variant : report.variants) {
      values.push_back(row.value(variant.summary));
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

std::string Facts(const SimulationReport& report) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"model", report.model}, {"machine", report.machine}, {"traffic", report.workload}};
  std::string settings;
  for (const auto& [flag, value] : CommonSettings(report)) {
    settings += fmt::format("{}{} {}", settings.empty() ? "" : ", ", flag, value);
  }
  if (!settings.empty()) facts.emplace_back("settings", settings);
  for (const VariantReport& variant : report.variants) {
    for (const std::string& note : variant.notes) {
      const std::string& name = variant.summary.variant;
      facts.emplace_back("note", name.empty() ? note : fmt::format("{}: {}", name, note));
    }
  }
  std::string out = "<dl>\n";
  for (const auto& [name, value] : facts) {
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, EscapeHtml(value));
  }
  return out + "</dl>\n";
}

}  // namespace

std::string WriteHtml(const SimulationReport& report, std::string_view command) {
  KVASIR_CHECK(!report.variants.empty());
  std::string data = HtmlData(report).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  // Inside of <script>, text that reads </script> or <!-- would end it.
  for (size_t at = data.find('<'); at != std::string::npos; at = data.find('<', at)) {
    data.replace(at, 1, "\\u003c");
  }
  const std::string title =
      EscapeHtml(report.compared.empty()
                     ? fmt::format("{} on {}", report.model, report.machine)
                     : fmt::format("{} on {}: {}", report.model, report.machine, report.compared));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<title>{} - Kvasir simulation</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n"
      "<h1>{}</h1>\n<p class=\"soft\">What the server's own scheduler and cache did with this "
      "traffic, on a modelled machine. All times are simulated.</p>\n"
      "<code class=\"command\">{}</code>\n{}<h2>Summary</h2>\n{}"
      "<div id=\"pictures\"></div>\n"
      "<noscript><p>The pictures need JavaScript.</p></noscript>\n</main>\n"
      "<script type=\"application/json\" id=\"data\">{}</script>\n"
      "<script>\n{}</script>\n</body>\n</html>\n",
      title, kHtmlStyle, title, EscapeHtml(command), Facts(report), Table(report), data,
      kHtmlScript);
}

}  // namespace kvasir::plan
