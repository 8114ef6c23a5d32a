#include "app/bench_calibrate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "app/cpu_name.h"
#include "app/exit_codes.h"
#include "app/loaded_engine.h"
#include "app/progress.h"
#include "app/read_file.h"
#include "base/log.h"
#include "plan/simulate/calibration.h"
#include "plan/simulate/measure.h"
#include "plan/simulate/measure_load.h"
#include "plan/simulate/step_time.h"

namespace kvasir::app {
namespace {

// KV that the decoding sequences hold at most: enough to leave every CPU cache behind.
constexpr int64_t kSequencesBytesMax = int64_t{1} << 30;

struct CalibrateFlags {
  EngineFlags engine;
  std::string output;
  int64_t max_context = 2048;
  double point_seconds = 0.3;
  bool json = false;
  bool verbose = false;
};

Result<plan::Calibration> Calibrate(LoadedModel& loaded, const CalibrateFlags& flags) {
  const engine::EngineConfig& config = loaded.config;
  plan::Calibration calibration;
  calibration.model = loaded.files->name;
  calibration.cpu = CpuName();
  calibration.kernels = loaded.backend->name();
  calibration.kv_dtype = Info(loaded.kv_dtype).name;
  calibration.threads = loaded.pool->size();
  calibration.weights_bytes = loaded.model->weights_bytes();
  calibration.block_tokens = config.cache.block_tokens;
  for (const CacheGroupSpec& group : config.cache.groups) {
    const bool full = group.kind == CacheGroupSpec::Kind::kFull;
    calibration.window_tokens.push_back(full ? 0 : group.window_tokens);
  }

  plan::MeasureOptions options;
  options.step_tokens_max = config.max_num_batched_tokens;
  options.sequences_max = config.max_num_seqs;
  options.context_max =
      std::min({flags.max_context, config.max_model_len, loaded.kv_plan.tokens_count / 3});
  options.sequences_tokens_max = kSequencesBytesMax / loaded.kv_plan.bytes_per_token;
  options.seconds_per_point = flags.point_seconds;
  Progress progress("measuring steps");
  options.progress = [&](double share) { progress.Show(share); };
  KVASIR_ASSIGN_OR_RETURN(calibration.points, plan::MeasureSteps(*loaded.runner, config.cache,
                                                                 config.vocab_size, options));
  KVASIR_ASSIGN_OR_RETURN(const plan::HostSeconds host, plan::MeasureHost(*loaded.runner, config));
  calibration.host_seconds_per_step = host.per_step;
  calibration.host_seconds_per_sequence = host.per_sequence;
  return calibration;
}

void Print(const plan::Calibration& calibration, const plan::FittedStepTime& time,
           const plan::LoadOutcome& load, const CalibrateFlags& flags) {
  if (flags.json) {
    const nlohmann::ordered_json out = {{"file", flags.output},
                                        {"points", calibration.points.size()},
                                        {"fit_error_mean", time.fit_error_mean()},
                                        {"fit_error_max", time.fit_error_max()},
                                        {"load_steps", load.steps},
                                        {"load_seconds", load.seconds},
                                        {"load_seconds_predicted", load.predicted_seconds}};
    std::printf("%s\n", out.dump(2).c_str());
    return;
  }
  std::printf("%s on %s, %s kernels on %lld threads\n", calibration.model.c_str(),
              calibration.cpu.c_str(), calibration.kernels.c_str(),
              static_cast<long long>(calibration.threads));
  std::printf(
      "%zu kinds of steps measured; the fit is off by %.1f %% on average, %.1f %% at most\n",
      calibration.points.size(), 100 * time.fit_error_mean(), 100 * time.fit_error_max());
  std::printf("the engine takes %.1f us a step and %.2f us a sequence in it\n",
              1e6 * calibration.host_seconds_per_step, 1e6 * calibration.host_seconds_per_sequence);
  std::printf("a mixed load of %lld steps: predicted %.3f s, took %.3f s (%+.1f %%)\n",
              static_cast<long long>(load.steps), load.predicted_seconds, load.seconds,
              100 * (load.predicted_seconds / load.seconds - 1));
  std::printf("wrote %s\n", flags.output.c_str());
}

int RunCalibrate(CalibrateFlags& flags) {
  SetLogLevel(flags.verbose ? LogLevel::kInfo : LogLevel::kWarning);
  // It takes minutes to know what to write.
  const Status writable = CheckWritable(flags.output);
  if (!writable.ok()) return Fail(writable.error(), kExitFailed);
  auto loaded = LoadModel(flags.engine);
  if (!loaded.ok()) return Fail(loaded.error(), kExitModel);
  const auto calibration = Calibrate(*loaded, flags);
  if (!calibration.ok()) return Fail(calibration.error(), kExitFailed);
  const auto time = plan::FittedStepTime::Fit(*calibration);
  if (!time.ok()) return Fail(time.error(), kExitFailed);
  const auto load =
      plan::RunLoad(*loaded->runner, loaded->config, plan::MixedLoad(loaded->config), &*time);
  if (!load.ok()) return Fail(load.error(), kExitFailed);
  const Status written = WriteWholeFile(flags.output, plan::WriteCalibration(*calibration));
  if (!written.ok()) return Fail(written.error(), kExitFailed);
  Print(*calibration, *time, *load, flags);
  return kExitOk;
}

}  // namespace

void AddBenchCalibrate(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* command =
      bench.add_subcommand("calibrate", "Measure step times and write them for 'kvasir simulate'");
  AddModelFlags(*command, flags->engine);
  command->add_option("-o,--output", flags->output, "File to write (JSON)")->required();
  const std::string group = "Measurement";
  command
      ->add_option("--max-context", flags->max_context,
                   "Longest context to measure, tokens; at most what the model and the cache hold")
      ->check(CLI::Range(32, 10'000'000))
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--point-seconds", flags->point_seconds,
                   "Seconds to spend on each kind of step, at least three runs")
      ->check(Seconds())
      ->capture_default_str()
      ->group(group);
  command->add_flag("--json", flags->json, "Print JSON")->group(group);
  command->add_flag("--verbose", flags->verbose, "Say how the model is loaded")->group(group);
  AddEngineFlags(*command, flags->engine);
  command->callback([flags, &exit_code] { exit_code = RunCalibrate(*flags); });
}

}  // namespace kvasir::app
