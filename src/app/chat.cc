// kvasir chat MODEL: a conversation in the terminal, in this process.
#include <sys/eventfd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

constexpr char kHelp[] =
    "Ctrl-C stops an answer; at the prompt it ends the conversation, as Ctrl-D and /exit do.\n"
    "/clear forgets the conversation, /help shows these lines.\n";

// Once the context is full no line can be answered.
void SayHowToGoOn(const LoadedEngine& loaded) {
  std::fprintf(stderr,
               "the context of %lld tokens is full: /clear forgets the conversation and goes on\n",
               static_cast<long long>(loaded.engine->config().max_model_len));
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
  std::fputs(kHelp, stderr);
  InstallInterrupt();
  text::ChatRequest request;
  const auto begin = [&] {
    request.messages = nlohmann::ordered_json::array();
    if (!flags.system.empty()) {
      request.messages.push_back({{"role", "system"}, {"content", flags.system}});
    }
  };
  begin();
  // Messages where nothing but one line was said: forgetting would not help.
  const auto first_line = [&] { return flags.system.empty() ? size_t{1} : size_t{2}; };
  int exit_code = kExitOk;  // of the last line: what a script that pipes lines in wants to know
  LineReader lines("> ", g_interrupt_fd);
  while (const std::optional<std::string> line = lines.Next()) {
    if (*line == "/exit" || *line == "/quit") break;
    if (*line == "/clear") begin();
    if (*line == "/help") std::fputs(kHelp, stderr);
    if (line->empty() || *line == "/clear" || *line == "/help") continue;
    if (line->front() == '/' && line->find(' ') == std::string::npos) {
      std::fprintf(stderr, "%s is no command: /clear, /exit, /help, /quit\n", line->c_str());
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
    std::vector<TokenId> ids = loaded->tokenizer->Encode(*prompt, {.add_special_tokens = false});
    const auto prompt_tokens = static_cast<int64_t>(ids.size());
    const int64_t context_tokens = loaded->engine->config().max_model_len;
    const auto outcome = Generate(*loaded, std::move(ids), flags.sampling, g_stop_answer,
                                  [](std::string_view piece) {
                                    std::fwrite(piece.data(), 1, piece.size(), stdout);
                                    std::fflush(stdout);
                                  });
    g_stop_answer.store(false);
    if (!outcome.ok()) {
      exit_code = Fail(outcome.error(), kExitFailed);
      if (prompt_tokens >= context_tokens && request.messages.size() > first_line()) {
        SayHowToGoOn(*loaded);
      }
      request.messages.erase(request.messages.size() - 1);
      continue;
    }
    exit_code = kExitOk;
    std::printf("\n");
    std::fflush(stdout);
    std::fprintf(stderr, "[%s%s]\n", outcome->interrupted ? "stopped; " : "",
                 DescribeSpeed(*outcome).c_str());
    if (prompt_tokens + outcome->output_tokens >= context_tokens) SayHowToGoOn(*loaded);
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
