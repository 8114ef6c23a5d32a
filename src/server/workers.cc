#include "server/workers.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace kvasir::server {

Workers::Workers(int threads_count) {
  for (int i = 0; i < threads_count; ++i) threads_.emplace_back([this] { Main(); });
}

Workers::~Workers() { Stop(); }

void Workers::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void Workers::Stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(tasks_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Workers::Main() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopped_ || !tasks_.empty(); });
    if (stopped_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    try {
      task();
    } catch (const std::exception& exception) {
      // Tasks tell their clients; even that has failed.
      LogError("a client was not told that its request failed: {}", exception.what());
    }
    task = nullptr;
    lock.lock();
  }
}

}  // namespace kvasir::server
