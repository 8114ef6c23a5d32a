// Threads for what takes longer than an event loop may wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvasir::server {

class Workers {
 public:
  explicit Workers(int threads_count);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Any thread. Dropped after Stop.
  void Post(std::function<void()> task);
  /// Drops what waits, joins the threads.
  void Stop();

 private:
  void Main();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kvasir::server
