// kvasir plan MODEL: how many users a model serves on a machine, how fast and at what price, by
// arithmetic; and the other way round, which machines satisfy a goal.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/exit_codes.h"
#include "app/model_path.h"
#include "app/read_file.h"
#include "files/printable.h"
#include "plan/answer.h"
#include "plan/hardware.h"
#include "plan/model_shape.h"
#include "plan/search.h"
#include "plan/units.h"

namespace kvasir::app {
namespace {

// Shares of a machine's bandwidth and operations that servers reach, for a goal that must hold.
constexpr double kReachedBandwidth = 0.8;
constexpr double kReachedCompute = 0.5;

struct PlanFlags {
  std::string model;
  bool list = false;
  bool tensor_given = false;
  std::vector<std::string> hardware;
  double price = -1;
  std::string weights = "as-shipped";
  std::string kv_cache_dtype = "auto";
  std::string context;
  std::string max_model_len;
  int64_t users = 0;
  int64_t block_size = 16;
  plan::Parallel parallel;
  double memory_utilization = 0.95;
  double shared_prefix = 0;
  int64_t max_num_batched_tokens = 0;
  double bandwidth_share = 0;  // 0: by mode
  double compute_share = 0;
  std::string max_ttft;
  std::string max_itl;
  bool json = false;
  bool explain = false;

  [[nodiscard]] bool searches() const { return !max_ttft.empty() || !max_itl.empty(); }
};

void PrintLists(bool json) {
  if (json) {
    nlohmann::ordered_json out;
    out["models"] = out["machines"] = nlohmann::ordered_json::array();
    for (const plan::ModelListing& model : plan::ModelCatalogue()) {
      out["models"].push_back(
          {{"name", model.name}, {"title", model.title}, {"source", model.source}});
    }
    for (const plan::Hardware& machine : plan::HardwareCatalogue()) {
      out["machines"].push_back({{"name", machine.name},
                                 {"title", machine.title},
                                 {"memory_bytes", machine.memory_bytes},
                                 {"source", machine.source}});
    }
    std::printf("%s\n", out.dump(2).c_str());
    return;
  }
  std::printf("Models\n");
  for (const plan::ModelListing& model : plan::ModelCatalogue()) {
    std::printf("  %-26s%s\n", model.name.c_str(), model.title.c_str());
  }
  std::printf("\nMachines (--hardware)\n  %-26s%s\n", "this", "this machine, measured in 2 s");
  for (const plan::Hardware& machine : plan::HardwareCatalogue()) {
    std::printf("  %-26s%s: %s, %s/s\n", machine.name.c_str(), machine.title.c_str(),
                plan::BytesText(static_cast<double>(machine.memory_bytes)).c_str(),
                plan::BytesText(machine.bandwidth).c_str());
  }
}

// Puts the flag's name before what is wrong with its value.
Error Named(const char* flag, Error error) {
  error.message = fmt::format("--{}: {}", flag, error.message);
  error.param = flag;
  return error;
}

Result<plan::Choices> ReadChoices(const PlanFlags& flags) {
  plan::Choices choices;
  if (flags.weights != "as-shipped") {
    auto format = plan::ParseWeightFormat(flags.weights);
    if (!format.ok()) return Named("weights", std::move(format).error());
    choices.weights = *std::move(format);
  }
  if (flags.kv_cache_dtype != "auto") {
    auto format = plan::ParseKvFormat(flags.kv_cache_dtype);
    if (!format.ok()) return Named("kv-cache-dtype", std::move(format).error());
    choices.kv = *std::move(format);
  }
  if (!flags.context.empty()) {
    KVASIR_ASSIGN_OR_RETURN(choices.context_tokens, plan::ParseTokens(flags.context, "context"));
  }
  if (!flags.max_model_len.empty()) {
    KVASIR_ASSIGN_OR_RETURN(choices.reserved_tokens,
                            plan::ParseTokens(flags.max_model_len, "max-model-len"));
  }
  choices.users = flags.users;
  choices.block_tokens = flags.block_size;
  choices.parallel = flags.parallel;
  choices.utilization = flags.memory_utilization;
  choices.shared_prefix = flags.shared_prefix;
  choices.step_tokens = flags.max_num_batched_tokens;
  const auto share = [&](double given, double reached) {
    return given > 0 ? given : flags.searches() ? reached : 1.0;
  };
  choices.bandwidth_share = share(flags.bandwidth_share, kReachedBandwidth);
  choices.compute_share = share(flags.compute_share, kReachedCompute);
  return choices;
}

Result<std::vector<plan::Hardware>> ReadMachines(const PlanFlags& flags) {
  std::vector<plan::Hardware> machines;
  if (flags.hardware.empty() && flags.searches()) {
    machines = plan::HardwareCatalogue();
  } else if (flags.hardware.empty()) {
    KVASIR_ASSIGN_OR_RETURN(plan::Hardware machine, plan::ProbeHardware());
    machines.push_back(std::move(machine));
  }
  for (const std::string& name : flags.hardware) {
    auto machine = plan::FindHardware(name);
    if (!machine.ok()) return OfHardware(std::move(machine).error());
    const bool twice = std::ranges::any_of(
        machines, [&](const plan::Hardware& other) { return other.name == machine->name; });
    if (twice)
      return Named("hardware",
                   MakeError(ErrorCode::kInvalidArgument,
                             "expected each machine once, got {} twice", machine->name));
    machines.push_back(*std::move(machine));
  }
  if (flags.price >= 0) {
    for (plan::Hardware& machine : machines) machine.price_per_hour = flags.price;
  }
  return machines;
}

int RunSearch(const PlanFlags& flags, const plan::ModelShape& model, plan::Choices choices,
              const std::vector<plan::Hardware>& machines) {
  plan::Goal goal;
  goal.tensor_fixed = flags.tensor_given;
  const auto read = [](const std::string& text, const char* flag,
                       std::optional<double>& out) -> Status {
    if (text.empty()) return Status::Ok();
    KVASIR_ASSIGN_OR_RETURN(out, plan::ParseDuration(text, flag));
    return Status::Ok();
  };
  if (const Status status = read(flags.max_ttft, "max-ttft", goal.ttft_s); !status.ok()) {
    return Fail(status.error(), kExitUsage);
  }
  if (const Status status = read(flags.max_itl, "max-itl", goal.itl_s); !status.ok()) {
    return Fail(status.error(), kExitUsage);
  }
  if (choices.users == 0) choices.users = 1;
  if (choices.context_tokens == 0) {
    constexpr int64_t kContextTokens = 8192;
    choices.context_tokens = std::min(kContextTokens, model.max_positions);
  }
  auto result = plan::Search(model, machines, choices, goal);
  if (!result.ok()) return Fail(result.error(), kExitUsage);
  if (flags.json) {
    std::printf("%s\n", plan::ToJson(*result).dump(2).c_str());
  } else {
    std::printf("%s", plan::ToTable(*result, model, choices, goal).c_str());
  }
  return kExitOk;
}

int RunPlan(const PlanFlags& flags) {
  if (flags.list) {
    if (!flags.model.empty()) {
      std::fprintf(stderr, "kvasir: --list: expected no model beside it, got '%s'\n",
                   files::Printable(flags.model, 60).c_str());
      return kExitUsage;
    }
    PrintLists(flags.json);
    return kExitOk;
  }
  if (flags.model.empty()) {
    std::fprintf(stderr,
                 "kvasir: expected a model: a folder, a .gguf, a config.json or a name of the "
                 "catalogue (--list)\n");
    return kExitUsage;
  }
  if (flags.searches() && !flags.max_model_len.empty()) {
    std::fprintf(stderr,
                 "kvasir: --max-model-len: expected none beside --max-ttft or --max-itl, whose "
                 "users take the --context that they fill\n");
    return kExitUsage;
  }
  if (flags.explain && flags.searches()) {
    std::fprintf(stderr,
                 "kvasir: --explain: expected none beside --max-ttft or --max-itl, which list "
                 "machines\n");
    return kExitUsage;
  }
  auto choices = ReadChoices(flags);
  if (!choices.ok()) return Fail(choices.error(), kExitUsage);
  auto path = ResolveModel(flags.model);
  if (!path.ok()) return Fail(path.error(), kExitModel);
  auto model = plan::FindModelShape(path->string());
  if (!model.ok()) return Fail(model.error(), kExitModel);
  if (!flags.searches() && flags.hardware.size() > 1) {
    std::fprintf(stderr,
                 "kvasir: --hardware: expected one machine, got %zu; several go with --max-ttft "
                 "or --max-itl\n",
                 flags.hardware.size());
    return kExitUsage;
  }
  auto machines = ReadMachines(flags);
  if (!machines.ok()) return Fail(machines.error(), ExitCodeOf(machines.error()));
  if (flags.searches()) return RunSearch(flags, *model, *choices, *machines);
  auto answer = plan::MakeAnswer(*model, machines->front(), *choices);
  if (!answer.ok()) return Fail(answer.error(), kExitUsage);
  if (flags.json) {
    nlohmann::ordered_json json = plan::ToJson(*answer);
    if (flags.explain) json["explanation"] = plan::Explain(*answer);
    std::printf("%s\n", json.dump(2).c_str());
    return kExitOk;
  }
  std::printf("%s", plan::ToTable(*answer).c_str());
  if (flags.explain) std::printf("\n%s", plan::Explain(*answer).c_str());
  return kExitOk;
}

void AddMachineFlags(CLI::App& command, PlanFlags& flags) {
  const std::string group = "Machine";
  command
      .add_option("--hardware", flags.hardware,
                  "A machine of the catalogue, 'this' (measured, 2 s) or a .json; several for a "
                  "goal; default: this, or for a goal the whole catalogue")
      ->delimiter(',')
      ->group(group);
  command.add_option("--price", flags.price, "US dollars an hour and device, in place of its own")
      ->check(CLI::Range(0.0, 1e6))
      ->group(group);
  command
      .add_option("--memory-utilization,--gpu-memory-utilization", flags.memory_utilization,
                  "Share of a device's memory that may be filled; the rest is for drivers and "
                  "fragments")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str()
      ->group(group);
  const auto degree = [&](const char* names, int64_t& value, const char* what) {
    command.add_option(names, value, what)
        ->check(CLI::Range(1, 1024))
        ->capture_default_str()
        ->group(group);
  };
  degree("--tensor-parallel,--tensor-parallel-size", flags.parallel.tensor,
         "Devices that each matrix is cut over");
  degree("--pipeline-parallel,--pipeline-parallel-size", flags.parallel.pipeline,
         "Stages that the layers are cut into");
  degree("--expert-parallel,--expert-parallel-size", flags.parallel.expert,
         "Replicas that share one set of experts, cut over all of them");
  const auto share = [&](const char* name, double& value, const char* what) {
    command.add_option(name, value, what)->check(CLI::Range(0.01, 1.0))->group(group);
  };
  share("--bandwidth-share", flags.bandwidth_share,
        "Share of the memory's and links' speed that is reached; default: 1 (bounds), for a goal "
        "0.8");
  share("--compute-share", flags.compute_share,
        "Share of the operations a second that is reached; default: 1 (bounds), for a goal 0.5");
}

void AddModelChoices(CLI::App& command, PlanFlags& flags) {
  const std::string group = "Model and traffic";
  command
      .add_option("--weights", flags.weights,
                  "as-shipped, bf16, f16, f32, fp8, int8, int4 (groups of 128), int4-gN, mxfp4, "
                  "nvfp4 or a GGUF type such as Q4_K")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-cache-dtype", flags.kv_cache_dtype,
                  "auto (as the model's numbers), bf16, f16, f32, fp8 or int8")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--context", flags.context,
                  "Tokens of a user, prompt and answer together: 8192, 8k, 1m; default: 8k, or "
                  "the model's most")
      ->group(group);
  command
      .add_option("--max-model-len", flags.max_model_len,
                  "Tokens that a reservation is made for; default: the model's most")
      ->group(group);
  command
      .add_option("--users", flags.users,
                  "Users at once; 0: as many as fit, at most 256 for the speed")
      ->check(CLI::Range(int64_t{0}, int64_t{10'000'000}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--shared-prefix", flags.shared_prefix,
                  "Share of a user's context that is a prefix common to all, 0 to 1")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
  command.add_option("--block-size", flags.block_size, "Tokens a KV block holds")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-num-batched-tokens", flags.max_num_batched_tokens,
                  "Tokens a step computes at most; 0: 2048 on cards, on CPUs what the server takes")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void AddPlan(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command = app.add_subcommand(
      "plan", "Tell how many users fit on a machine, how fast and at what price, by arithmetic");
  command->add_option("model,--model", flags->model,
                      "Model folder, .gguf, config.json, a name of the catalogue, or 'default'");
  command->add_flag("--list", flags->list, "List the models and machines of the catalogue");
  command->add_flag("--json", flags->json, "Print JSON: bytes, seconds, US dollars");
  command->add_flag("--explain", flags->explain, "Print each formula with its numbers put in");
  AddModelChoices(*command, *flags);
  AddMachineFlags(*command, *flags);
  const std::string group = "Goal (lists the machines and settings that satisfy it)";
  command
      ->add_option("--max-ttft", flags->max_ttft,
                   "Longest time to a first token: 2s, 500ms; for --users at --context")
      ->group(group);
  command
      ->add_option("--max-itl", flags->max_itl,
                   "Longest time between two tokens of an answer: 50ms")
      ->group(group);
  command->callback([flags, command, &exit_code] {
    flags->tensor_given = command->count("--tensor-parallel") > 0;
    exit_code = RunPlan(*flags);
  });
}

}  // namespace kvasir::app
