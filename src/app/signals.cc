#include "app/signals.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>

#include "app/exit_codes.h"
#include "base/log.h"

namespace kvasir::app {
namespace {

sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void InstallFileFaultHandler() {
  struct sigaction action {};
  action.sa_handler = [](int) {
    static constexpr char kLine[] =
        "kvasir: a page of the model's file cannot be read: the file was cut short or replaced "
        "while it was in use, or its disk failed\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kLine, sizeof(kLine) - 1);
    _exit(kExitModel);
  };
  sigaction(SIGBUS, &action, nullptr);
}

SignalWatcher::SignalWatcher() {
  std::signal(SIGPIPE, SIG_IGN);
  const sigset_t set = WatchedSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { Watch(); });
}

SignalWatcher::~SignalWatcher() {
  stop_.store(true);
  thread_.join();
}

void SignalWatcher::BeginOrderly() {
  const std::lock_guard lock(mutex_);
  orderly_ = true;
}

void SignalWatcher::Wait() {
  std::unique_lock lock(mutex_);
  came_.wait(lock, [this] { return signalled_; });
}

void SignalWatcher::Watch() {
  const sigset_t set = WatchedSignals();
  while (!stop_.load()) {
    const timespec poll = {0, 100'000'000};
    const int signal = sigtimedwait(&set, nullptr, &poll);
    if (signal < 0) continue;
    const std::lock_guard lock(mutex_);
    // timeout(1) and shells send one wish to end twice: to the process, and to its group.
    constexpr auto kSameWish = std::chrono::milliseconds(100);
    const auto now = std::chrono::steady_clock::now();
    if (orderly_ && signalled_ && now - first_at_ < kSameWish) continue;
    if (!orderly_ || signalled_) {
      LogWarning("signal {}: ending at once", signal);
      std::_Exit(128 + signal);
    }
    signalled_ = true;
    first_at_ = now;
    came_.notify_all();
  }
}

}  // namespace kvasir::app
