#include "base/thread_pool.h"

#include <immintrin.h>

#include "base/check.h"
#include "base/clock.h"

namespace kvasir {
namespace {

// Long enough to bridge the serial parts of a step (tens of microseconds), short enough not to take
// the core from the HTTP threads between steps.
constexpr TimeNs kSpinNs = 60'000;

}  // namespace

thread_local bool ThreadPool::inside_loop_ = false;
thread_local int ThreadPool::current_worker_ = 0;

ThreadPool::ThreadPool(int threads_count) {
  KVASIR_CHECK(threads_count >= 1 && threads_count < static_cast<int>(kOpen), "{} threads",
               threads_count);
  workers_.reserve(static_cast<size_t>(threads_count - 1));
  for (int worker = 1; worker < threads_count; ++worker) {
    workers_.emplace_back([this, worker] { WorkerMain(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t tasks_count, TaskFunction function, void* context) {
  tasks_count_ = tasks_count;
  function_ = function;
  context_ = context;
  next_task_.store(0, std::memory_order_relaxed);
  const uint64_t epoch = state_.load(std::memory_order_relaxed) >> 17;
  state_.store((epoch + 1) << 17 | kOpen);
  if (parked_count_.load() > 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  RunTasks(0);
  state_.fetch_and(~kOpen);
  while ((state_.load(std::memory_order_acquire) & kInsideMask) != 0) _mm_pause();
}

void ThreadPool::RunTasks(int worker) {
  inside_loop_ = true;
  current_worker_ = worker;
  for (;;) {
    const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_count_) break;
    function_(context_, task, worker);
  }
  inside_loop_ = false;
}

void ThreadPool::WorkerMain(int worker) {
  const SteadyClock clock;
  uint64_t done_epoch = 0;
  TimeNs spin_until = clock.Now() + kSpinNs;
  int polls = 0;
  for (;;) {
    uint64_t state = state_.load(std::memory_order_acquire);
    if ((state & kOpen) != 0 && state >> 17 != done_epoch) {
      if (!state_.compare_exchange_strong(state, state + 1)) continue;
      done_epoch = state >> 17;
      RunTasks(worker);
      state_.fetch_sub(1, std::memory_order_release);
      spin_until = clock.Now() + kSpinNs;
      continue;
    }
    _mm_pause();
    if (++polls % 64 != 0) continue;
    if (stop_.load(std::memory_order_relaxed)) return;
    if (clock.Now() < spin_until) continue;
    const int32_t ticket = wake_.load();
    parked_count_.fetch_add(1);
    // A loop opened before the ticket was taken must be seen here, or its wake-up would be lost.
    state = state_.load();
    if (!((state & kOpen) != 0 && state >> 17 != done_epoch) && !stop_.load()) wake_.wait(ticket);
    parked_count_.fetch_sub(1);
    spin_until = clock.Now() + kSpinNs;
  }
}

}  // namespace kvasir
