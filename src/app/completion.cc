// kvasir completion: a bash script that completes subcommands, flags and their values, made from
// the flags themselves so that it cannot fall behind.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
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

// "serve,--kv-cache-dtype) values="auto f32 f16 bf16" ;;" for each flag that takes one of a few.
std::string ValueCases(const CLI::App& command) {
  std::string cases;
  for (const CLI::Option* option : command.get_options()) {
    // CLI11 keeps the choices in the type's name alone: "TEXT:{auto,f32,f16,bf16}".
    const std::string type = option->get_type_name();
    const size_t begin = type.find('{');
    const size_t end = type.find('}');
    if (begin == std::string::npos || end == std::string::npos) continue;
    std::string values = type.substr(begin + 1, end - begin - 1);
    std::replace(values.begin(), values.end(), ',', ' ');
    for (const std::string& name : option->get_lnames()) {
      cases += fmt::format("    {},--{}) values=\"{}\" ;;\n", command.get_name(), name, values);
    }
  }
  return cases;
}

void PrintScript(const CLI::App& app) {
  std::string commands;
  std::string cases;
  std::string value_cases;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    commands += command->get_name() + " ";
    cases += "    " + command->get_name() + ") words=\"" + FlagWords(*command) + "\"";
    if (command->get_option_no_throw("--model") != nullptr) cases += " model=default";
    cases += " ;;\n";
    value_cases += ValueCases(*command);
  }
  std::printf(
      "# bash completion of kvasir; use it with:  source <(kvasir completion)\n"
      "_kvasir() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} words= model= values=\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"%s%s\" -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${COMP_WORDS[1]}\" in\n%s  esac\n"
      "  case \"${COMP_WORDS[1]},${COMP_WORDS[COMP_CWORD-1]}\" in\n%s  esac\n"
      "  if [ -n \"$values\" ]; then\n"
      "    COMPREPLY=($(compgen -W \"$values\" -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"$current\" in\n"
      "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
      "    *) COMPREPLY=($(compgen -W \"$model\" -- \"$current\") $(compgen -f -- \"$current\")) "
      ";;\n"
      "  esac\n"
      "}\n"
      "complete -o filenames -F _kvasir kvasir\n",
      commands.c_str(), FlagWords(app).c_str(), cases.c_str(), value_cases.c_str());
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
