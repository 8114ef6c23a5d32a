// How far a long piece of work is, on stderr: a moving line on a terminal, a line each quarter
// elsewhere.
#pragma once

#include <string>

#include "base/clock.h"

namespace kvasir::app {

class Progress {
 public:
  /// `what` begins the line: "measuring steps".
  explicit Progress(std::string what);
  /// Ends a line that still moves.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `share` is 0 to 1.
  void Show(double share);

 private:
  const std::string what_;
  const bool terminal_;
  const SteadyClock clock_;
  const TimeNs began_;
  int shown_ = -1;
};

}  // namespace kvasir::app
