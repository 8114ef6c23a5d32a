// One function a subcommand: declares its flags on `app` and, when it is the one chosen, runs it
// and stores the process's exit code.
#pragma once

namespace CLI {
class App;
}

namespace kvasir::app {

void AddServe(CLI::App& app, int& exit_code);
void AddChat(CLI::App& app, int& exit_code);
void AddComplete(CLI::App& app, int& exit_code);
void AddTokenize(CLI::App& app, int& exit_code);
void AddRender(CLI::App& app, int& exit_code);
void AddInspect(CLI::App& app, int& exit_code);
void AddBench(CLI::App& app, int& exit_code);
void AddSimulate(CLI::App& app, int& exit_code);
void AddPlan(CLI::App& app, int& exit_code);
void AddCompletion(CLI::App& app, int& exit_code);

}  // namespace kvasir::app
