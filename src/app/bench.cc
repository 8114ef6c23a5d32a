// kvasir bench MODEL: how fast this machine runs a model, without HTTP.
// kvasir bench calibrate MODEL -o FILE: step times for the simulator.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/bench_calibrate.h"
#include "app/bench_streams.h"
#include "app/commands.h"
#include "app/exit_codes.h"
#include "app/loaded_engine.h"
#include "app/progress.h"
#include "app/read_file.h"
#include "base/log.h"
#include "plan/simulate/no_cache.h"

namespace kvasir::app {
namespace {

using Json = nlohmann::ordered_json;

struct BenchFlags {
  EngineFlags engine;
  StreamsOptions streams;
  std::vector<int64_t> lengths = {64, 256, 1024, 2048};
  double point_seconds = 0.5;
  bool no_kv_cache = false;
  bool json = false;
  bool verbose = false;
};

Json MachineJson(const LoadedModel& loaded) {
  return {{"model", loaded.files->name},
          {"kernels", loaded.backend->name()},
          {"threads", loaded.pool->size()},
          {"kv_cache_dtype", Info(loaded.kv_dtype).name}};
}

void PrintMachine(const LoadedModel& loaded) {
  std::printf("%s, %s kernels on %d threads, KV cache in %s\n", loaded.files->name.c_str(),
              std::string(loaded.backend->name()).c_str(), loaded.pool->size(),
              std::string(Info(loaded.kv_dtype).name).c_str());
}

// Lengths and numbers of streams, against what was loaded.
Status CheckStreams(const StreamsOptions& options, const engine::EngineConfig& config) {
  if (options.prompt_tokens + options.output_tokens > config.max_model_len) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--prompt-tokens and --output-tokens: expected at most {} tokens together, "
                     "got {} and {}",
                     config.max_model_len, options.prompt_tokens, options.output_tokens);
  }
  return Status::Ok();
}

void PrintStreams(const BenchFlags& flags, const std::vector<StreamsOutcome>& outcomes) {
  std::printf("prompts of %lld tokens, answers of %lld tokens, medians of %lld runs\n\n",
              static_cast<long long>(flags.streams.prompt_tokens),
              static_cast<long long>(flags.streams.output_tokens),
              static_cast<long long>(flags.streams.repeat));
  std::printf("         first token, ms   between tokens, ms              tokens/s\n");
  std::printf("streams   median      max    median      p99   prompts  one stream  all answers\n");
  for (const StreamsOutcome& outcome : outcomes) {
    std::printf("%7lld %8.1f %8.1f  %8.2f %8.2f  %8.1f  %10.1f  %11.1f\n",
                static_cast<long long>(outcome.streams), 1e3 * outcome.ttft_s_median,
                1e3 * outcome.ttft_s_max, 1e3 * outcome.itl_s_median, 1e3 * outcome.itl_s_p99,
                outcome.prefill_tokens_per_s, outcome.stream_tokens_per_s,
                outcome.output_tokens_per_s);
  }
}

Json StreamsJson(const BenchFlags& flags, const std::vector<StreamsOutcome>& outcomes) {
  Json out = {{"prompt_tokens", flags.streams.prompt_tokens},
              {"output_tokens", flags.streams.output_tokens},
              {"repeat", flags.streams.repeat}};
  Json& rows = out["streams"] = Json::array();
  for (const StreamsOutcome& outcome : outcomes) {
    rows.push_back({{"streams", outcome.streams},
                    {"ttft_seconds_median", outcome.ttft_s_median},
                    {"ttft_seconds_max", outcome.ttft_s_max},
                    {"itl_seconds_median", outcome.itl_s_median},
                    {"itl_seconds_p99", outcome.itl_s_p99},
                    {"prefill_tokens_per_second", outcome.prefill_tokens_per_s},
                    {"stream_tokens_per_second", outcome.stream_tokens_per_s},
                    {"output_tokens_per_second", outcome.output_tokens_per_s}});
  }
  return out;
}

int RunStreams(BenchFlags& flags) {
  const int64_t most = *std::ranges::max_element(flags.streams.streams);
  flags.engine.max_num_seqs = std::max(flags.engine.max_num_seqs, most);
  auto loaded = LoadEngine(flags.engine);
  if (!loaded.ok()) return Fail(loaded.error(), kExitModel);
  if (const Status status = CheckStreams(flags.streams, loaded->config); !status.ok()) {
    return Fail(status.error(), kExitUsage);
  }
  Progress progress("running streams");
  flags.streams.progress = [&](double share) { progress.Show(share); };
  const auto outcomes = BenchStreams(*loaded->engine, flags.streams);
  if (!outcomes.ok()) return Fail(outcomes.error(), kExitFailed);
  if (flags.json) {
    Json out = MachineJson(*loaded);
    out.update(StreamsJson(flags, *outcomes));
    std::printf("%s\n", out.dump(2).c_str());
  } else {
    PrintMachine(*loaded);
    PrintStreams(flags, *outcomes);
  }
  return kExitOk;
}

void PrintNoCache(const std::vector<plan::NoCacheRow>& rows) {
  std::printf("\n            one more token, ms            tokens/s\n");
  std::printf("sequence   with cache  recomputed   with cache  recomputed  cache is faster\n");
  for (const plan::NoCacheRow& row : rows) {
    std::printf("%8lld   %10.2f  %10.2f   %10.1f  %10.2f  %13.1f x\n",
                static_cast<long long>(row.length), 1e3 * row.cached_seconds,
                1e3 * row.recomputed_seconds, 1 / row.cached_seconds, 1 / row.recomputed_seconds,
                row.recomputed_seconds / row.cached_seconds);
  }
}

int RunNoCache(BenchFlags& flags) {
  auto loaded = LoadModel(flags.engine);
  if (!loaded.ok()) return Fail(loaded.error(), kExitModel);
  std::erase_if(flags.lengths, [&](int64_t length) {
    if (length <= loaded->config.max_model_len) return false;
    LogWarning("--lengths: {} tokens are left out, the context holds {}", length,
               loaded->config.max_model_len);
    return true;
  });
  if (flags.lengths.empty()) {
    return Fail(MakeError(ErrorCode::kInvalidArgument,
                          "--lengths: expected a length of at most {} tokens, got none",
                          loaded->config.max_model_len),
                kExitUsage);
  }
  Progress progress("running both ways");
  const auto rows = plan::CompareNoCache(
      *loaded->runner, loaded->config.cache, loaded->config.vocab_size, flags.lengths,
      flags.point_seconds, [&](double share) { progress.Show(share); });
  if (!rows.ok()) return Fail(rows.error(), kExitFailed);
  if (!flags.json) {
    PrintMachine(*loaded);
    PrintNoCache(*rows);
    return kExitOk;
  }
  Json out = MachineJson(*loaded);
  Json& list = out["lengths"] = Json::array();
  for (const plan::NoCacheRow& row : *rows) {
    list.push_back({{"length_tokens", row.length},
                    {"cached_seconds", row.cached_seconds},
                    {"recomputed_seconds", row.recomputed_seconds},
                    {"cached_tokens_per_second", 1 / row.cached_seconds},
                    {"recomputed_tokens_per_second", 1 / row.recomputed_seconds}});
  }
  std::printf("%s\n", out.dump(2).c_str());
  return kExitOk;
}

}  // namespace

void AddBench(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand("bench", "Measure how fast this machine runs a model");
  AddBenchCalibrate(*command, exit_code);
  AddModelFlags(*command, flags->engine);
  // Not where the subcommand has a model of its own; checked below.
  command->get_option("model")->required(false);
  const std::string group = "Measurement";
  command
      ->add_option("--streams", flags->streams.streams,
                   "Numbers of streams to run at once, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--prompt-tokens", flags->streams.prompt_tokens,
                   "Length of each stream's prompt, tokens")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--output-tokens", flags->streams.output_tokens,
                   "Length of each stream's answer, tokens")
      ->check(CLI::Range(2, 10'000'000))
      ->capture_default_str()
      ->group(group);
  command->add_option("--repeat", flags->streams.repeat, "Runs of each; their median is shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group(group);
  command
      ->add_flag("--no-kv-cache", flags->no_kv_cache,
                 "Show instead what a token costs when the whole sequence is computed again")
      ->group(group);
  command
      ->add_option("--lengths", flags->lengths,
                   "With --no-kv-cache: lengths of the sequence, tokens, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(2, 10'000'000))
      ->capture_default_str()
      ->group(group);
  command->add_flag("--json", flags->json, "Print JSON")->group(group);
  command->add_flag("--verbose", flags->verbose, "Say how the model is loaded")->group(group);
  AddEngineFlags(*command, flags->engine);
  command->callback([flags, command, &exit_code] {
    if (!command->get_subcommands().empty()) return;
    if (flags->engine.model.empty()) throw CLI::RequiredError("model");
    SetLogLevel(flags->verbose ? LogLevel::kInfo : LogLevel::kWarning);
    exit_code = flags->no_kv_cache ? RunNoCache(*flags) : RunStreams(*flags);
  });
}

}  // namespace kvasir::app
