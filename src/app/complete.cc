// kvasir complete MODEL "text": continues a text in this process.
#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>

#include "app/commands.h"
#include "app/exit_codes.h"
#include "app/generate.h"
#include "app/loaded_engine.h"
#include "app/read_file.h"
#include "base/log.h"

namespace kvasir::app {
namespace {

std::atomic<bool> g_stop{false};

struct CompleteFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string text;
  bool verbose = false;
};

int RunComplete(CompleteFlags& flags) {
  SetLogLevel(flags.verbose ? LogLevel::kInfo : LogLevel::kWarning);
  flags.engine.max_num_seqs = 1;
  auto loaded = LoadEngine(flags.engine);
  if (!loaded.ok()) return Fail(loaded.error(), kExitModel);
  auto prompt = loaded->tokenizer->Encode(flags.text);
  if (prompt.empty()) {
    return Fail(MakeError(ErrorCode::kInvalidArgument, "expected a text of at least one token"),
                kExitFailed);
  }
  std::signal(SIGINT, [](int) { g_stop.store(true); });
  const auto outcome =
      Generate(*loaded, std::move(prompt), flags.sampling, g_stop, [](std::string_view piece) {
        std::fwrite(piece.data(), 1, piece.size(), stdout);
        std::fflush(stdout);
      });
  if (!outcome.ok()) return Fail(outcome.error(), kExitFailed);
  std::printf("\n");
  std::fflush(stdout);
  if (flags.verbose) std::fprintf(stderr, "[%s]\n", DescribeSpeed(*outcome).c_str());
  return kExitOk;
}

}  // namespace

void AddComplete(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CompleteFlags>();
  CLI::App* command = app.add_subcommand("complete", "Continue a text");
  AddModelFlags(*command, flags->engine);
  command->add_option("text", flags->text, "Text to continue")->required();
  AddSamplingFlags(*command, flags->sampling);
  AddEngineFlags(*command, flags->engine);
  command->add_flag("--verbose", flags->verbose, "Say how the model is loaded, and the speed");
  command->callback([flags, &exit_code] { exit_code = RunComplete(*flags); });
}

}  // namespace kvasir::app
