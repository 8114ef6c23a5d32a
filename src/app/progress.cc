#include "app/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace kvasir::app {

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) != 0), began_(clock_.Now()) {}

Progress::~Progress() {
  if (terminal_ && shown_ >= 0 && shown_ < 100) std::fprintf(stderr, "\n");
}

void Progress::Show(double share) {
  const int percent = std::clamp(static_cast<int>(share * 100), 0, 100);
  if (percent == shown_) return;
  const double seconds = ToSeconds(clock_.Now() - began_);
  if (terminal_) {
    std::fprintf(stderr, "\r%s: %3d %% after %.0f s%s", what_.c_str(), percent, seconds,
                 percent == 100 ? "\n" : "");
  } else if (shown_ < 0 || percent / 25 > shown_ / 25) {
    std::fprintf(stderr, "%s: %d %% after %.0f s\n", what_.c_str(), percent, seconds);
  } else {
    return;
  }
  shown_ = percent;
}

}  // namespace kvasir::app
