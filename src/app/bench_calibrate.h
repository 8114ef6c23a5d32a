// kvasir bench calibrate MODEL -o FILE: measures step times on this machine and writes the file
// that kvasir simulate reads.
#pragma once

namespace CLI {
class App;
}

namespace kvasir::app {

void AddBenchCalibrate(CLI::App& bench, int& exit_code);

}  // namespace kvasir::app
