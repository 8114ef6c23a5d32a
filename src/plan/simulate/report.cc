#include "plan/simulate/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kvasir::plan {

namespace {

std::string FormatPromise(const SimulationReport& report) {
  std::string promise;
  const auto add = [&](const char* what, double seconds) {
    if (seconds <= 0) return;
    if (!promise.empty()) promise += ", ";
    promise += fmt::format("{} within {}", what, FormatSeconds(seconds));
  };
  add("first token", report.slo.ttft_s);
  add("tokens", report.slo.itl_s);
  add("end", report.slo.end_to_end_s);
  return promise;
}

std::string FormatLoad(double load) {
  return load >= 100 ? fmt::format("{:.0f}", load) : fmt::format("{:.3g}", load);
}

std::string FormatLoads(const SimulationReport& report, const VariantReport& variant) {
  std::string text;
  text += fmt::format("{:>12}  {:>14}  {:>11}  {:>11}  {:>11}  {:>11}  {:>8}", report.load_unit,
                      "output", "TTFT median", "TTFT 99 %", "ITL median", "ITL 99 %", "running");
  const bool promised = report.slo.any();
  if (promised) text += fmt::format("  {:>8}", "kept");
  text += '\n';
  for (const LoadPoint& point : variant.loads) {
    const Summary& summary = point.summary;
    text += fmt::format(
        "{:>12}  {:>14}  {:>11}  {:>11}  {:>11}  {:>11}  {:>8.1f}", FormatLoad(point.load),
        fmt::format("{:.0f} tokens/s", summary.output_tokens_per_s),
        FormatSeconds(summary.ttft.p50_s), FormatSeconds(summary.ttft.p99_s),
        FormatSeconds(summary.itl.p50_s), FormatSeconds(summary.itl.p99_s), summary.running_mean);
    if (promised) text += fmt::format("  {:>6.1f} %", 100 * summary.slo_share);
    text += '\n';
  }
  return text;
}

std::string FormatFound(const SimulationReport& report, const VariantReport& variant) {
  const std::string name =
      variant.summary.variant.empty() ? "" : fmt::format("{}: ", variant.summary.variant);
  const std::string promise =
      fmt::format("{:.0f} % of requests with {}", 100 * report.slo_share, FormatPromise(report));
  if (variant.load_found == 0) {
    return fmt::format("{}not even the smallest load is served with the promise ({})\n", name,
                       promise);
  }
  // Too few to queue, however fast they come.
  const char* const hint = variant.load_bounded || report.load_unit == "users"
                               ? ""
                               : "; more --requests show where it ends";
  return fmt::format("{}{}{} {} served ({}{})\n", name, variant.load_bounded ? "" : "more than ",
                     FormatLoad(variant.load_found), report.load_unit, promise, hint);
}

nlohmann::json ToJson(const Settings& settings) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [flag, value] : settings) json[flag.substr(2)] = value;
  return json;
}

nlohmann::json ToJson(const VariantReport& variant) {
  nlohmann::json json = ToJson(variant.summary);
  json["settings"] = ToJson(variant.settings);
  if (!variant.notes.empty()) json["notes"] = variant.notes;
  if (variant.load_found >= 0) {
    json["load_found"] = variant.load_found;
    json["load_bounded"] = variant.load_bounded;
  }
  for (const LoadPoint& point : variant.loads) {
    nlohmann::json at = ToJson(point.summary);
    at["load"] = point.load;
    json["loads"].push_back(std::move(at));
  }
  return json;
}

}  // namespace

Settings CommonSettings(const SimulationReport& report) {
  Settings common = report.variants.front().settings;
  std::erase_if(common, [&](const auto& setting) {
    return !std::ranges::all_of(report.variants, [&](const VariantReport& variant) {
      return std::ranges::find(variant.settings, setting) != variant.settings.end();
    });
  });
  return common;
}

std::string FormatReport(const SimulationReport& report) {
  std::string text = fmt::format("{} on {}\n{}\n\n", report.model, report.machine, report.workload);
  std::vector<Summary> summaries;
  for (const VariantReport& variant : report.variants) {
    for (const std::string& note : variant.notes) {
      const std::string name =
          variant.summary.variant.empty() ? "" : fmt::format(" ({})", variant.summary.variant);
      text += fmt::format("note{}: {}\n", name, note);
    }
    summaries.push_back(variant.summary);
  }
  text += FormatTable(summaries);
  for (const VariantReport& variant : report.variants) {
    if (variant.loads.empty()) continue;
    text += '\n';
    if (!variant.summary.variant.empty()) text += variant.summary.variant + '\n';
    text += FormatLoads(report, variant);
  }
  const bool searched = std::ranges::any_of(
      report.variants, [](const VariantReport& variant) { return variant.load_found >= 0; });
  if (searched) text += '\n';
  for (const VariantReport& variant : report.variants) {
    if (variant.load_found >= 0) text += FormatFound(report, variant);
  }
  return text;
}

nlohmann::json ToJson(const SimulationReport& report) {
  nlohmann::json json = {{"model", report.model},
                         {"machine", report.machine},
                         {"workload", report.workload},
                         {"settings", ToJson(CommonSettings(report))},
                         {"variants", nlohmann::json::array()}};
  if (!report.compared.empty()) json["compared"] = report.compared;
  if (!report.load_unit.empty()) json["load_unit"] = report.load_unit;
  if (report.slo.ttft_s > 0) json["max_ttft_s"] = report.slo.ttft_s;
  if (report.slo.itl_s > 0) json["max_itl_s"] = report.slo.itl_s;
  if (report.slo.end_to_end_s > 0) json["max_end_to_end_s"] = report.slo.end_to_end_s;
  for (const VariantReport& variant : report.variants) {
    json["variants"].push_back(ToJson(variant));
  }
  return json;
}

}  // namespace kvasir::plan
