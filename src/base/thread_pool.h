// A fixed pool that runs the parallel loops of a step. The calling thread works too. Workers spin a
// little after a loop, because the next one of the same step comes within microseconds, then park.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace kvasir {

/// One thread at a time may call ParallelFor (the engine thread); a call from inside a task runs
/// inline. Which thread runs which task is not fixed, so a task's result must not depend on it.
class ThreadPool {
 public:
  /// `threads_count` >= 1 counts the caller: that many minus one workers are started.
  explicit ThreadPool(int threads_count);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(task, worker) once for each task in [0, tasks_count) and returns when all are done.
  /// worker in [0, size()) is unique among the threads running at one moment: an index for scratch.
  template <typename Body>
  void ParallelFor(int64_t tasks_count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    if (tasks_count <= 1 || workers_.empty() || inside_loop_) {
      for (int64_t task = 0; task < tasks_count; ++task) body(task, current_worker_);
      return;
    }
    Run(
        tasks_count,
        [](void* context, int64_t task, int worker) {
          (*static_cast<Plain*>(context))(task, worker);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using TaskFunction = void (*)(void* context, int64_t task, int worker);

  void Run(int64_t tasks_count, TaskFunction function, void* context);
  void RunTasks(int worker);
  void WorkerMain(int worker);

  // state_ = epoch << 17 | open << 16 | number of workers inside. A worker may enter only while the
  // loop is open, so the caller never waits for a worker that has not woken up in time.
  static constexpr uint64_t kOpen = uint64_t{1} << 16;
  static constexpr uint64_t kInsideMask = kOpen - 1;

  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> next_task_{0};
  alignas(64) std::atomic<int32_t> wake_{0};
  std::atomic<int32_t> parked_count_{0};
  std::atomic<bool> stop_{false};
  int64_t tasks_count_ = 0;
  TaskFunction function_ = nullptr;
  void* context_ = nullptr;
  std::vector<std::thread> workers_;

  static thread_local bool inside_loop_;
  static thread_local int current_worker_;
};

}  // namespace kvasir
