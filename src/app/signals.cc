#include "app/signals.h"

#include <csignal>
#include <cstdlib>
#include <ctime>

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
    if (!orderly_ || signalled_) {
      LogWarning("signal {}: ending at once", signal);
      std::_Exit(128 + signal);
    }
    signalled_ = true;
    came_.notify_all();
  }
}

}  // namespace kvasir::app
