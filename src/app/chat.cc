// kvasir chat MODEL: a conversation in the terminal, in this process.
#include <sys/eventfd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "app/commands.h"
#include "app/exit_codes.h"
#include "app/generate.h"
#include "app/line_reader.h"
#include "app/loaded_engine.h"
#include "app/read_file.h"
#include "base/check.h"
#include "base/log.h"

namespace kvasir::app {
namespace {

std::atomic<bool> g_stop_answer{false};
int g_interrupt_fd = -1;  // an eventfd

struct ChatFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string system;
  bool verbose = false;
};

void InstallInterrupt() {
  g_interrupt_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  KVASIR_CHECK(g_interrupt_fd >= 0);
  struct sigaction action = {};
  action.sa_handler = [](int) {
    g_stop_answer.store(true);
    eventfd_write(g_interrupt_fd, 1);
  };
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

int RunChat(ChatFlags& flags) {
  SetLogLevel(flags.verbose ? LogLevel::kInfo : LogLevel::kWarning);
  flags.engine.max_num_seqs = 1;
  std::fprintf(stderr, "loading %s ...\n", flags.engine.model.c_str());
  auto loaded = LoadEngine(flags.engine);
  if (!loaded.ok()) return Fail(loaded.error(), kExitModel);
  if (!loaded->chat_template_error.empty()) return kExitModel;  // said while loading
  if (loaded->chat_template == nullptr) {
    return Fail(MakeError(ErrorCode::kUnsupported,
                          "{}: the model has no chat template; give one with --chat-template FILE, "
                          "or use 'kvasir complete'",
                          flags.engine.model),
                kExitModel);
  }
  std::fprintf(
      stderr,
      "Ctrl-C stops an answer, /clear forgets the conversation, Ctrl-D or /exit ends it.\n");
  InstallInterrupt();
  text::ChatRequest request;
  const auto begin = [&] {
    request.messages = nlohmann::ordered_json::array();
    if (!flags.system.empty()) {
      request.messages.push_back({{"role", "system"}, {"content", flags.system}});
    }
  };
  begin();
  int exit_code = kExitOk;  // of the last line: what a script that pipes lines in wants to know
  LineReader lines("> ", g_interrupt_fd);
  while (const std::optional<std::string> line = lines.Next()) {
    if (*line == "/exit" || *line == "/quit") break;
    if (*line == "/clear") begin();
    if (line->empty() || *line == "/clear") continue;
    if (line->front() == '/' && line->find(' ') == std::string::npos) {
      std::fprintf(stderr, "%s is no command: /clear, /exit\n", line->c_str());
      continue;
    }
    request.messages.push_back({{"role", "user"}, {"content", *line}});
    const auto prompt = loaded->chat_template->Render(request, text::MessageMode::kPrepared,
                                                      text::jinja::LocalTimeNow());
    if (!prompt.ok()) {
      exit_code = Fail(prompt.error(), kExitFailed);
      request.messages.erase(request.messages.size() - 1);
      continue;
    }
    g_stop_answer.store(false);
    const auto outcome =
        Generate(*loaded, loaded->tokenizer->Encode(*prompt, {.add_special_tokens = false}),
                 flags.sampling, g_stop_answer, [](std::string_view piece) {
                   std::fwrite(piece.data(), 1, piece.size(), stdout);
                   std::fflush(stdout);
                 });
    g_stop_answer.store(false);
    if (!outcome.ok()) {
      exit_code = Fail(outcome.error(), kExitFailed);
      request.messages.erase(request.messages.size() - 1);
      continue;
    }
    exit_code = kExitOk;
    std::printf("\n");
    std::fflush(stdout);
    std::fprintf(stderr, "[%s%s]\n", outcome->interrupted ? "stopped; " : "",
                 DescribeSpeed(*outcome).c_str());
    request.messages.push_back({{"role", "assistant"}, {"content", outcome->text}});
  }
  return exit_code;
}

}  // namespace

void AddChat(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a model in the terminal");
  AddModelFlags(*command, flags->engine);
  command->add_option("--system", flags->system, "System message");
  AddSamplingFlags(*command, flags->sampling);
  AddEngineFlags(*command, flags->engine);
  command->add_flag("--verbose", flags->verbose, "Say how the model is loaded");
  command->callback([flags, &exit_code] { exit_code = RunChat(*flags); });
}

}  // namespace kvasir::app
