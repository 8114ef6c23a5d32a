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
std::string ValueCases(const CLI::App& command, const std::string& first_word) {
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
      cases += fmt::format("    {},--{}) values=\"{}\" ;;\n", first_word, name, values);
    }
  }
  return cases;
}

// A model's place may also hold the name of the default model.
bool TakesModel(const CLI::App& command) {
  return command.get_option_no_throw("model") != nullptr ||
         command.get_option_no_throw("--model") != nullptr;
}

void PrintScript(const CLI::App& app) {
  std::string commands;
  std::string cases;
  std::string value_cases;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    commands += command->get_name() + " ";
    std::string inner_names;
    for (const CLI::App* inner : command->get_subcommands(nullptr)) {
      // Before the command it belongs to: bash takes the first that fits.
      cases += fmt::format("    {},{}) words=\"{}\"{} ;;\n", command->get_name(), inner->get_name(),
                           FlagWords(*inner), TakesModel(*inner) ? " others=default" : "");
      value_cases += ValueCases(*inner, command->get_name());
      inner_names += inner->get_name() + " ";
    }
    cases += fmt::format("    {},*) words=\"{}\" others=\"{}{}\" ;;\n", command->get_name(),
                         FlagWords(*command), inner_names, TakesModel(*command) ? "default" : "");
    value_cases += ValueCases(*command, command->get_name());
  }
  std::printf(
      "# bash completion of kvasir; use it with:  source <(kvasir completion)\n"
      "_kvasir() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} words= others= values=\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"%s%s\" -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${COMP_WORDS[1]},${COMP_WORDS[2]}\" in\n%s  esac\n"
      "  case \"${COMP_WORDS[1]},${COMP_WORDS[COMP_CWORD-1]}\" in\n%s  esac\n"
      "  if [ -n \"$values\" ]; then\n"
      "    COMPREPLY=($(compgen -W \"$values\" -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"$current\" in\n"
      "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
      "    *) COMPREPLY=($(compgen -W \"$others\" -- \"$current\") $(compgen -f -- \"$current\")) "
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
