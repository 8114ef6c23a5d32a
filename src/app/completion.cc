// kvasir completion: a bash script that completes subcommands and flags, made from the flags
// themselves so that it cannot fall behind.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "app/commands.h"
#include "app/exit_codes.h"

namespace kvasir::app {
namespace {

std::string FlagWords(const CLI::App& app) {
  std::string words;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) words += "--" + name + " ";
  }
  return words;
}

void PrintScript(const CLI::App& app) {
  std::string commands;
  std::string cases;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    commands += command->get_name() + " ";
    cases += "    " + command->get_name() + ") words=\"" + FlagWords(*command) + "\" ;;\n";
  }
  std::printf(
      "# bash completion of kvasir; use it with:  source <(kvasir completion)\n"
      "_kvasir() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} words=\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"%s%s\" -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${COMP_WORDS[1]}\" in\n%s  esac\n"
      "  case \"$current\" in\n"
      "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$current\")) ;;\n"
      "  esac\n"
      "}\n"
      "complete -o filenames -F _kvasir kvasir\n",
      commands.c_str(), FlagWords(app).c_str(), cases.c_str());
}

}  // namespace

void AddCompletion(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "completion", "Print a bash completion script: source <(kvasir completion)");
  command->callback([&app, &exit_code] {
    PrintScript(app);
    exit_code = kExitOk;
  });
}

}  // namespace kvasir::app
