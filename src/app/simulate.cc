// kvasir simulate MODEL: the server's own scheduler and cache through hours of traffic in seconds,
// with a modelled machine in place of the kernels.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/exit_codes.h"
#include "app/model_path.h"
#include "app/progress.h"
#include "app/read_file.h"
#include "app/simulate_flags.h"
#include "base/clock.h"
#include "files/printable.h"
#include "plan/simulate/html_page.h"
#include "plan/simulate/report.h"
#include "plan/simulate/simulator.h"

namespace kvasir::app {
namespace {

/// Requests a user makes at least while a load is tried, the first of which does not count.
constexpr int64_t kRequestsPerUser = 5;

// Of a page's pictures: steps that the batch's timeline shows, and maps of the cache.
constexpr int64_t kDetailsMax = 4000;
constexpr int64_t kSnapshotsMax = 120;

/// One simulation a load, with what they have in common.
class Runs {
 public:
  Runs(const Traffic& traffic, const plan::Scenario& scenario,
       const plan::SimulationOptions& options)
      : traffic_(traffic), scenario_(scenario), options_(options) {}

  /// `load` 0: the traffic as it was asked for. `pictures`: with what a page shows.
  [[nodiscard]] plan::SimulationResult Run(double load, bool pictures) const {
    const std::string what = scenario_.variant.empty() ? "" : " " + scenario_.variant;
    const std::string under =
        load > 0 ? fmt::format(" under {:.4g} {}", load, traffic_.LoadUnit()) : "";
    const SteadyClock clock;
    const TimeNs begin = clock.Now();
    std::optional<Progress> progress;  // of a run that takes long enough to be asked about
    plan::SimulationOptions options = options_;
    options.details_max = pictures ? kDetailsMax : 0;
    options.snapshots_max = pictures ? kSnapshotsMax : 0;
    options.progress = [&](const plan::SimulationProgress& at) {
      if (!progress && clock.Now() - begin < kNsPerSecond) return true;
      if (!progress) progress.emplace("simulating" + what + under);
      progress->Show(static_cast<double>(at.requests_ended) /
                     static_cast<double>(std::max<int64_t>(at.requests_count, 1)));
      return true;
    };
    const std::unique_ptr<plan::Workload> workload =
        traffic_.Make(load, traffic_.closed() ? kRequestsPerUser * static_cast<int64_t>(load) : 0);
    plan::SimulationResult result =
        plan::Simulate(scenario_.engine, *scenario_.cost, *workload, options);
    result.variant = scenario_.variant;
    return result;
  }

  /// Users who all come at once do so but once.
  [[nodiscard]] plan::Summary SummaryUnder(double load) const {
    return plan::Summarize(Run(load, /*pictures=*/false),
                           traffic_.closed() ? static_cast<int64_t>(load) : 0);
  }

 private:
  const Traffic& traffic_;
  const plan::Scenario& scenario_;
  plan::SimulationOptions options_;
};

void Search(const SimulateFlags& flags, const Traffic& traffic, const Runs& runs,
            plan::VariantReport& variant) {
  plan::LoadSearchOptions options;
  options.whole = traffic.closed();
  options.least = traffic.closed() ? 1 : 1e-3;
  options.slo_share = flags.slo_share;
  plan::LoadSearch search =
      plan::FindLoad(options, [&](double load) { return runs.SummaryUnder(load); });
  variant.load_found = search.most;
  variant.load_bounded = search.bounded;
  variant.loads = std::move(search.points);
}

plan::Settings SettingsOf(const plan::ScenarioSpec& spec, const engine::EngineConfig& config,
                          const SimulateFlags& flags) {
  const auto on = [](bool enabled, const char* name) {
    return std::pair<std::string, std::string>(name, enabled ? "on" : "off");
  };
  plan::Settings settings = {
      {"--weights", spec.weights.empty() ? "as-shipped" : spec.weights},
      {"--kv-cache-dtype", spec.kv.name},
      {"--max-model-len", std::to_string(config.max_model_len)},
      {"--num-kv-blocks", std::to_string(config.cache.blocks_count)},
      {"--block-size", std::to_string(config.cache.block_tokens)},
      {"--max-num-seqs", std::to_string(config.max_num_seqs)},
      {"--max-num-batched-tokens", std::to_string(config.max_num_batched_tokens)},
      {"--kv-allocation",
       config.kv_allocation == engine::KvAllocation::kReserved ? "reserved" : "paged"},
      {"--batching", config.batching == engine::Batching::kStatic ? "static" : "continuous"},
      on(config.enable_prefix_caching, "--enable-prefix-caching"),
      on(config.enable_chunked_prefill, "--enable-chunked-prefill"),
      {"--seed", std::to_string(flags.seed)},
  };
  if (spec.hardware) {
    const auto number = [](auto value) { return fmt::format("{:g}", static_cast<double>(value)); };
    settings.insert(settings.begin(), {{"--hardware", spec.hardware->name},
                                       {"--tensor-parallel", std::to_string(spec.tensor_parallel)},
                                       {"--memory-utilization", number(spec.utilization)},
                                       {"--bandwidth-share", number(spec.bandwidth_share)},
                                       {"--compute-share", number(spec.compute_share)}});
  }
  return settings;
}

// The machine of all variants, or the machines that are compared.
std::string MachineName(const std::vector<plan::ScenarioSpec>& specs) {
  const plan::ScenarioSpec& spec = specs[0];
  if (spec.calibration) {
    return fmt::format("{}, {} threads, {} kernels, as measured", spec.calibration->cpu,
                       spec.calibration->threads, spec.calibration->kernels);
  }
  std::string titles = spec.hardware->title;
  for (size_t i = 1; i < specs.size(); ++i) {
    const std::string& title = specs[i].hardware->title;
    if (title != specs[i - 1].hardware->title) titles += ", " + title;
  }
  const std::string many =
      spec.tensor_parallel > 1 ? fmt::format("{} x ", spec.tensor_parallel) : "";
  return fmt::format("{}{} ({:.0f} % of its bandwidth, {:.0f} % of its peak)", many, titles,
                     100 * spec.bandwidth_share, 100 * spec.compute_share);
}

// What was typed.
std::string CommandLine() {
  auto words = ReadWholeFile("/proc/self/cmdline");
  if (!words.ok()) return "kvasir simulate";
  std::string line = *std::move(words);
  while (!line.empty() && line.back() == '\0') line.pop_back();
  std::ranges::replace(line, '\0', ' ');
  // The binary by its name alone.
  const size_t name_end = line.find(' ');
  return "kvasir" + (name_end == std::string::npos ? "" : line.substr(name_end));
}

// Marks errors of files that are written: what was asked for is fine, but cannot be done.
constexpr const char* kOutput = "output";

Status WriteRequests(const std::string& path, const Traffic& traffic, int64_t vocab_size) {
  std::ofstream out(path);
  constexpr int64_t kTokensMax = 10'000'000;
  const std::unique_ptr<plan::Workload> workload = traffic.Make(0, 0);
  while (out && workload->NextArrival() != plan::kNoArrival) {
    const plan::SimulatedRequest request = workload->Take();
    if (request.prompt_tokens > kTokensMax) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "--write-requests: expected prompts of at most {} tokens, got one of {}",
                       kTokensMax, request.prompt_tokens);
    }
    std::vector<TokenId> prompt;
    for (const plan::PromptPart& part : request.parts) {
      plan::AppendPart(part, vocab_size, prompt);
    }
    const nlohmann::json line = {{"arrival_s", request.arrival_s},
                                 {"prompt", prompt},
                                 {"output_tokens", request.output_tokens}};
    out << line.dump() << '\n';
    workload->Ended(request, request.arrival_s, /*refused=*/false);
  }
  out.flush();
  if (out) return Status::Ok();
  return MakeParamError(ErrorCode::kIo, kOutput, "{}: cannot be written: {}", path,
                        std::strerror(errno));
}

Status ForOutput(Status status) {
  if (status.ok()) return status;
  return Error{status.error().code, status.error().message, kOutput};
}

int64_t LongestContext(const plan::SimulationResult& result) {
  int64_t longest = 0;
  for (const plan::RequestRecord& request : result.requests) {
    if (request.output_tokens == 0) continue;
    longest = std::max(longest, request.prompt_tokens + request.output_tokens);
  }
  return longest;
}

// A little further the curves still hold.
void WarnBeyond(int64_t measured, int64_t simulated) {
  if (simulated <= 2 * measured) return;
  std::fprintf(stderr,
               "kvasir: --calibration: measured up to %lld tokens of context, but %lld came: the "
               "times of longer ones are guessed (bench calibrate --max-context measures more)\n",
               static_cast<long long>(measured), static_cast<long long>(simulated));
}

// Why no request of a variant finished.
std::string NoneFinished(const plan::Summary& summary, const plan::SimulationResult& result) {
  std::string reasons;
  const auto add = [&](int64_t count, const std::string& why) {
    if (count > 0) reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", count, why);
  };
  add(summary.never_fits_count, fmt::format("longer than {} tokens or than {} KV blocks hold",
                                            result.max_model_len, result.blocks_count));
  add(summary.queue_full_count,
      "refused by a full queue (--max-num-queued-reqs, --max-num-queued-tokens)");
  add(summary.waited_out_count, "that waited too long (--max-queue-wait)");
  add(summary.unfinished_count, "cut off by --duration");
  if (reasons.empty()) reasons = "none came within --duration";
  return fmt::format("{}{}none of {} requests finished: {}", summary.variant,
                     summary.variant.empty() ? "" : ": ", summary.requests_count, reasons);
}

bool SameFile(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  if (std::filesystem::exists(a, error) && std::filesystem::exists(b, error)) {
    // What is written to a pipe or to /dev/null destroys nothing.
    return std::filesystem::is_regular_file(a, error) && std::filesystem::equivalent(a, b, error);
  }
  // Of files that do not exist yet.
  const auto whole_a = std::filesystem::weakly_canonical(a, error);
  if (error) return false;
  const auto whole_b = std::filesystem::weakly_canonical(b, error);
  return !error && whole_a == whole_b;
}

// A file of the folder that a model is read from.
bool OfModel(const std::filesystem::path& file, const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return false;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string kind = entry.path().extension().string();
    const bool read = kind == ".json" || kind == ".safetensors" || kind == ".gguf";
    if (read && SameFile(file, entry.path())) return true;
  }
  return false;
}

// What is written must not replace what was read, nor the other thing that is written.
Status CheckOutputs(const SimulateFlags& flags) {
  const auto model = ResolveModel(flags.engine.model);
  const std::filesystem::path model_path =
      model.ok() ? *model : std::filesystem::path(flags.engine.model);
  const std::pair<const char*, std::string> outputs[] = {
      {"--html", flags.html}, {"--write-requests", flags.write_requests}};
  const std::pair<const char*, std::string> inputs[] = {{"--trace", flags.trace},
                                                        {"--calibration", flags.calibration},
                                                        {"--hardware", flags.hardware},
                                                        {"model", model_path.string()},
                                                        outputs[0]};
  for (const auto& [flag, output] : outputs) {
    if (output.empty()) continue;
    for (const auto& [other, input] : inputs) {
      if (input.empty() || flag == std::string_view(other)) continue;
      const bool same =
          SameFile(output, input) || (other == std::string_view("model") && OfModel(output, input));
      if (!same) continue;
      return MakeError(ErrorCode::kInvalidArgument, "{}: expected a file other than {}'s, got {}",
                       flag, other, files::Printable(output));
    }
  }
  return Status::Ok();
}

Result<plan::SimulationReport> MakeReport(const SimulateFlags& flags) {
  KVASIR_RETURN_IF_ERROR(CheckOutputs(flags));
  if (!flags.html.empty()) KVASIR_RETURN_IF_ERROR(ForOutput(CheckWritable(flags.html)));
  KVASIR_ASSIGN_OR_RETURN(const Traffic traffic, ReadTraffic(flags));
  KVASIR_ASSIGN_OR_RETURN(std::vector<double> loads, ReadLoads(flags, traffic));
  if (!flags.html.empty() && loads.empty() && flags.find.empty()) loads = LoadsAround(traffic);
  plan::SimulationReport report;
  KVASIR_ASSIGN_OR_RETURN(report.slo, ReadServiceLevel(flags));
  plan::SimulationOptions options;
  options.slo = report.slo;
  KVASIR_ASSIGN_OR_RETURN(options.seconds_max, ReadDurationLimit(flags));
  KVASIR_ASSIGN_OR_RETURN(options.request_overhead_s, ReadRequestOverhead(flags));

  KVASIR_ASSIGN_OR_RETURN(const plan::ScenarioSpec base, ReadScenario(flags));
  std::vector<plan::ScenarioSpec> specs = {base};
  if (!flags.compare.empty()) {
    KVASIR_ASSIGN_OR_RETURN(specs, plan::MakeVariants(base, flags.compare));
    report.compared = flags.compare.substr(0, flags.compare.find('='));
  }
  // All are made before any runs, so that what is wrong with the last is said at once.
  KVASIR_ASSIGN_OR_RETURN(const std::vector<plan::Scenario> scenarios,
                          plan::MakeScenarios(specs, report.compared));
  if (!flags.write_requests.empty()) {
    KVASIR_RETURN_IF_ERROR(WriteRequests(flags.write_requests, traffic, base.shape.vocab_size));
  }
  report.model = base.shape.name;
  report.machine = MachineName(specs);
  report.workload = traffic.words;
  report.load_unit = traffic.LoadUnit();
  report.slo_share = flags.slo_share;
  int64_t longest = 0;  // of all contexts that came to be
  for (size_t i = 0; i < scenarios.size(); ++i) {
    const plan::Scenario& scenario = scenarios[i];
    const Runs runs(traffic, scenario, options);
    plan::VariantReport& variant = report.variants.emplace_back();
    variant.notes = scenario.notes;
    variant.settings = SettingsOf(specs[i], scenario.engine, flags);
    if (!flags.find.empty()) Search(flags, traffic, runs, variant);
    for (const double load : loads) variant.loads.push_back({load, runs.SummaryUnder(load)});
    // What is shown in full is the load that was found, or what was asked for.
    variant.result = runs.Run(std::max(variant.load_found, 0.0), !flags.html.empty());
    variant.summary = plan::Summarize(variant.result);
    longest = std::max(longest, LongestContext(variant.result));
  }
  if (base.calibration) WarnBeyond(plan::ContextMeasured(*base.calibration), longest);
  return report;
}

int RunSimulate(const SimulateFlags& flags) {
  auto report = MakeReport(flags);
  if (!report.ok()) {
    const bool output = report.error().code == ErrorCode::kIo && report.error().param == kOutput;
    return Fail(report.error(), output ? kExitFailed : ExitCodeOf(report.error()));
  }
  bool any_finished = false;
  for (const plan::VariantReport& variant : report->variants) {
    if (variant.summary.finished_count > 0) {
      any_finished = true;
    } else {
      std::fprintf(stderr, "kvasir: %s\n", NoneFinished(variant.summary, variant.result).c_str());
    }
  }
  if (!any_finished) return kExitFailed;
  if (!flags.html.empty()) {
    const Status written = WriteWholeFile(flags.html, plan::WriteHtml(*report, CommandLine()));
    if (!written.ok()) return Fail(written.error(), kExitFailed);
  }
  if (flags.json) {
    std::printf("%s\n", plan::ToJson(*report).dump(2).c_str());
  } else {
    std::printf("%s", plan::FormatReport(*report).c_str());
  }
  return kExitOk;
}

}  // namespace

void AddSimulate(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<SimulateFlags>();
  CLI::App* command = app.add_subcommand(
      "simulate", "Run traffic through the server's scheduler and cache on a modelled machine");
  AddSimulateFlags(*command, *flags);
  command->callback([command, flags, &exit_code] {
    NoteGiven(*command, *flags);
    exit_code = RunSimulate(*flags);
  });
}

}  // namespace kvasir::app
