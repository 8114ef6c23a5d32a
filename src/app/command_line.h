#pragma once

namespace kvasir::app {

/// Runs the subcommand that the arguments name and returns the process's exit code.
int Main(int argc, char** argv);

}  // namespace kvasir::app
