#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace kvasir {
namespace {

TEST(ThreadPool, RunsEachTaskOnce) {
  for (const int threads_count : {1, 2, 3, 5}) {
    ThreadPool pool(threads_count);
    for (int round = 0; round < 2000; ++round) {
      const int64_t tasks_count = round % 37;
      std::vector<std::atomic<int>> seen(static_cast<size_t>(tasks_count));
      pool.ParallelFor(tasks_count, [&](int64_t task, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads_count);
        seen[static_cast<size_t>(task)].fetch_add(1);
      });
      for (const auto& count : seen) ASSERT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, WakesParkedWorkersAndRunsNestedLoopsInline) {
  ThreadPool pool(3);
  std::atomic<int> sum{0};
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // lets the workers park
    pool.ParallelFor(8, [&](int64_t, int outer) {
      pool.ParallelFor(4, [&](int64_t, int inner) {
        EXPECT_EQ(inner, outer);
        sum.fetch_add(1);
      });
    });
  }
  EXPECT_EQ(sum.load(), 20 * 8 * 4);
}

}  // namespace
}  // namespace kvasir
