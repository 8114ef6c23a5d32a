#include "app/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
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

// The library prints a range's ends with all their digits: 0.010000, and 309 of the largest number.
std::string ShortRange(std::string_view message) {
  constexpr std::string_view kRange = "not in range ";
  const size_t at = message.rfind(kRange);
  std::string text(message.substr(0, at));
  if (at == std::string_view::npos) return text;
  text += kRange;
  std::string_view ends = message.substr(at + kRange.size());
  while (!ends.empty()) {
    const size_t space = ends.find(' ');
    const std::string word(ends.substr(0, space));
    char* end = nullptr;
    const double number = std::strtod(word.c_str(), &end);
    const bool fraction = *end == '\0' && word.find('.') != std::string::npos;
    text += fraction ? fmt::format("{:g}", number) : word;
    if (space == std::string_view::npos) break;
    text += ' ';
    ends.remove_prefix(space + 1);
  }
  return text;
}

int ReportUsageError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = Innermost(app);
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (command == &app && !extras) {
    ListCommands(app);
  } else if (!extras) {
    std::string_view what = error.what();
    if (what.starts_with(": ")) what.remove_prefix(2);  // flags without a group have no name there
    std::fprintf(stderr, "kvasir: %s\n", ShortRange(what).c_str());
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

}  // namespace

int Main(int argc, char** argv) {
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

}  // namespace kvasir::app
