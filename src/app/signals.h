// SIGTERM and SIGINT for a server: the first asks for an orderly end, the second ends at once; and
// what happens when a mapped file loses its pages.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace kvasir::app {

/// From now on a page of a mapped file that cannot be had (the file was cut short, a disk failed)
/// ends the process with one line and kExitModel instead of a signal.
void InstallFileFaultHandler();

/// Blocks both signals in the calling thread and all that it starts later, and waits for them on a
/// thread of its own. Make it before any other thread.
class SignalWatcher {
 public:
  SignalWatcher();
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  /// From now on the first signal ends Wait() instead of the process.
  void BeginOrderly();
  /// Returns when the first signal has come.
  void Wait();

 private:
  void Watch();

  std::mutex mutex_;
  std::condition_variable came_;
  bool orderly_ = false;
  bool signalled_ = false;
  std::chrono::steady_clock::time_point first_at_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace kvasir::app
