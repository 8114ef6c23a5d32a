#include "app/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/exit_codes.h"
#include "app/signals.h"
#include "app/units.h"

namespace kvasir::app {
namespace {

// The subcommand whose parse failed, so that its own help and flags are named.
const CLI::App* Innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? &app : Innermost(*chosen.front());
}

std::vector<std::string> LongFlags(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

// Ranges let NaN pass, and "inf" is no number that a flag here means.
void RefuseNonFinite(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands(std::function<bool(CLI::App*)>())) {
    for (CLI::Option* option : command->get_options(std::function<bool(CLI::Option*)>())) {
      if (!option->get_type_name().starts_with("FLOAT")) continue;
      option->check([](const std::string& value) {
        return std::isfinite(std::strtod(value.c_str(), nullptr))
                   ? std::string()
                   : fmt::format("expected a finite number, got {}", value);
      });
    }
    RefuseNonFinite(*command);
  }
}

// An empty text is a script's variable that was never set: of the flags below alone it asks for
// something.
void RefuseEmpty(CLI::App& app) {
  static constexpr std::string_view kMayBeEmpty[] = {"--system", "--bos-token", "--eos-token",
                                                     "--allowed-origins"};
  for (CLI::App* command : app.get_subcommands(std::function<bool(CLI::App*)>())) {
    for (CLI::Option* option : command->get_options(std::function<bool(CLI::Option*)>())) {
      const std::string name = option->get_name();
      if (option->get_lnames().empty() || !option->get_type_name().starts_with("TEXT") ||
          std::find(std::begin(kMayBeEmpty), std::end(kMayBeEmpty), name) !=
              std::end(kMayBeEmpty)) {
        continue;
      }
      option->check([](const std::string& value) {
        return value.empty() ? "expected a value, got an empty text" : "";
      });
    }
    RefuseEmpty(*command);
  }
}

// The library prints a range's ends with all their digits: 0.010000, and 309 of the largest number,
// which is no end.
std::string ShortRange(std::string_view message) {
  constexpr std::string_view kRange = "not in range ";
  const size_t at = message.rfind(kRange);
  std::string text(message.substr(0, at));
  if (at == std::string_view::npos) return text;
  std::string_view ends = message.substr(at + kRange.size());
  constexpr size_t kDigitsMost = 100;
  if (const size_t to = ends.rfind(" to "); ends.size() > kDigitsMost && to != ends.npos) {
    return text + fmt::format("is below {:.15g}", std::strtod(ends.data(), nullptr));
  }
  text += kRange;
  while (!ends.empty()) {
    const size_t space = ends.find(' ');
    const std::string word(ends.substr(0, space));
    char* end = nullptr;
    const double number = std::strtod(word.c_str(), &end);
    const bool fraction = *end == '\0' && word.find('.') != std::string::npos;
    text += fraction ? fmt::format("{:.15g}", number) : word;
    if (space == std::string_view::npos) break;
    text += ' ';
    ends.remove_prefix(space + 1);
  }
  return text;
}

// What CLI11 says, with arguments that have no flag and with ranges written as the help writes
// them.
std::string Words(const CLI::ParseError& error) {
  std::string words = error.what();
  if (words.starts_with(": ")) words.erase(0, 2);  // flags without a group have no name there
  constexpr std::string_view kRequired = " is required";
  if (words == "--model is required") {
    words = "MODEL or --model is required: a folder, a .gguf, or 'default'";
  } else if (words.ends_with(kRequired) && !words.starts_with("-")) {
    const size_t end = words.size() - kRequired.size();
    std::transform(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(end), words.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  }
  return ShortRange(words);
}

// The first word of the command line, where it should have been a subcommand and is none.
int ReportUnknownCommand(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  const std::string nearest = Nearest(word, names);
  std::fprintf(stderr, "kvasir: '%s' is not a command%s%s%s; 'kvasir --help' lists them\n",
               word.c_str(), nearest.empty() ? "" : ", did you mean '", nearest.c_str(),
               nearest.empty() ? "" : "'");
  return kExitUsage;
}

// What llama-server calls a flag of ours, where the names are too far apart to be guessed.
std::string OurNameOf(const std::string& flag) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"-m", "--model"},
      {"-c", "--max-model-len"},
      {"--ctx-size", "--max-model-len"},
      {"-t", "--threads"},
      {"-np", "--max-num-seqs"},
      {"--parallel", "--max-num-seqs"},
      {"-p", "--port"},
      {"-n", "--max-tokens"},
      {"--n-predict", "--max-tokens"},
      {"-b", "--max-num-batched-tokens"},
      {"--batch-size", "--max-num-batched-tokens"},
      {"--alias", "--served-model-name"},
      {"--cache-type-k", "--kv-cache-dtype"},
      {"--cache-type-v", "--kv-cache-dtype"},
  };
  for (const auto& [theirs, ours] : kNames) {
    if (flag == theirs) return std::string(ours);
  }
  return {};
}

void ListCommands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names += " " + command->get_name();
  std::fprintf(stderr, "kvasir: expected a command:%s\n", names.c_str());
}

int ReportUsageError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = Innermost(app);
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (command == &app && !extras) {
    ListCommands(app);
  } else if (!extras) {
    std::fprintf(stderr, "kvasir: %s\n", Words(error).c_str());
  } else {
    std::string words;
    for (const std::string& word : command->remaining(true)) words += " '" + word + "'";
    std::fprintf(stderr, "kvasir: not expected:%s\n", words.c_str());
    for (const std::string& word : command->remaining(true)) {
      const std::string flag = word.substr(0, word.find('='));
      if (flag.rfind('-', 0) != 0) continue;
      const std::vector<std::string> known = LongFlags(*command);
      std::string nearest = OurNameOf(flag);
      if (std::find(known.begin(), known.end(), nearest) == known.end()) {
        nearest = Nearest(flag, known);
      }
      if (!nearest.empty()) {
        std::fprintf(stderr, "kvasir: did you mean %s instead of %s?\n", nearest.c_str(),
                     flag.c_str());
      }
    }
  }
  std::string name;
  for (const CLI::App* at = command; at != &app; at = at->get_parent()) {
    name.insert(0, " " + at->get_name());
  }
  std::fprintf(stderr, "kvasir: 'kvasir%s --help' lists the flags\n", name.c_str());
  return kExitUsage;
}

// What is printed waits in a buffer: only here is it known whether all of it could be written.
int Finish(int exit_code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  // What failed before has left no reason: one more byte fails for the same one.
  if (errno == 0 && write(STDOUT_FILENO, "\n", 1) == 1) errno = 0;
  // Who closed the pipe, as head does, has read what they wanted and needs no line about it.
  if (errno != EPIPE) {
    std::fprintf(stderr, "kvasir: cannot write to standard output%s%s\n", errno != 0 ? ": " : "",
                 errno != 0 ? std::strerror(errno) : "");
  }
  return exit_code == kExitOk ? kExitFailed : exit_code;
}

int Run(int argc, char** argv) {
  CLI::App app("Kvasir: an inference server for large language models", "kvasir");
  app.set_version_flag("--version", "kvasir " KVASIR_VERSION);
  app.require_subcommand(1);
  InstallFileFaultHandler();
  app.get_formatter()->column_width(44);
  int exit_code = kExitOk;
  AddServe(app, exit_code);
  AddChat(app, exit_code);
  AddComplete(app, exit_code);
  AddTokenize(app, exit_code);
  AddRender(app, exit_code);
  AddInspect(app, exit_code);
  AddBench(app, exit_code);
  AddSimulate(app, exit_code);
  AddPlan(app, exit_code);
  AddCompletion(app, exit_code);
  RefuseNonFinite(app);
  RefuseEmpty(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-') {
      return ReportUnknownCommand(app, argv[1]);
    }
    return ReportUsageError(app, error);
  }
  return exit_code;
}

}  // namespace

int Main(int argc, char** argv) { return Finish(Run(argc, argv)); }

}  // namespace kvasir::app
