// Faults at every point of scripted runs of the whole host tower: cancels, steps that fail, blocks
// and memory that are refused, clocks that jump. Whatever happens, each request ends exactly once,
// those that were not hit get what they get alone, and nothing stays held.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "scripts.h"

namespace kvasir::simulation {
namespace {

class Faults : public testing::TestWithParam<int> {};

/// What the run is like without a fault.
struct Quiet {
  int64_t points_count = 0;
  int64_t steps_count = 0;
};

Quiet RunQuietly(const Script& script) {
  ScriptedRun run(script);
  run.Run();
  for (size_t i = 0; i < run.clients_count(); ++i) {
    for (int32_t choice = 0; choice < script.requests[i].request.n; ++choice) {
      EXPECT_TRUE(run.Served(i, choice)) << i << " " << choice;
    }
  }
  return {run.points_count(), run.steps_count()};
}

TEST_P(Faults, CancelOfEachRequestAtEveryPoint) {
  const Script script = MakeScript(GetParam());
  const Quiet quiet = RunQuietly(script);
  int64_t cancelled_count = 0;
  for (int64_t point = 0; point < quiet.points_count; ++point) {
    for (size_t victim = 0; victim < script.requests.size(); ++victim) {
      SCOPED_TRACE(testing::Message() << "request " << victim << " at point " << point);
      ScriptedRun run(script);
      run.at_point = [&](int64_t now) {
        if (now == point) run.Cancel(victim);
      };
      run.Run();
      if (HasFailure()) return;
      cancelled_count += run.client(victim).cancelled;
      for (size_t i = 0; i < run.clients_count(); ++i) {
        for (int32_t choice = 0; i != victim && choice < run.client(i).request().n; ++choice) {
          ASSERT_TRUE(run.Served(i, choice)) << "request " << i;
        }
      }
    }
  }
  EXPECT_GT(cancelled_count, quiet.points_count);
}

TEST_P(Faults, CancelOfEachChoiceAtEveryPoint) {
  const Script script = MakeScript(GetParam());
  const Quiet quiet = RunQuietly(script);
  for (int64_t point = 0; point < quiet.points_count; ++point) {
    for (size_t victim = 0; victim < script.requests.size(); ++victim) {
      for (int32_t choice = 0; choice < script.requests[victim].request.n; ++choice) {
        SCOPED_TRACE(testing::Message()
                     << "choice " << choice << " of request " << victim << " at point " << point);
        ScriptedRun run(script);
        run.at_point = [&](int64_t now) {
          if (now == point) run.CancelChoice(victim, choice);
        };
        run.Run();
        if (HasFailure()) return;
        for (size_t i = 0; i < run.clients_count(); ++i) {
          for (int32_t other = 0; other < run.client(i).request().n; ++other) {
            if (i == victim && other == choice) continue;
            ASSERT_TRUE(run.Served(i, other)) << "choice " << other << " of request " << i;
          }
        }
      }
    }
  }
}

TEST_P(Faults, AllAreCancelledAtEveryPoint) {
  const Script script = MakeScript(GetParam());
  const Quiet quiet = RunQuietly(script);
  for (int64_t point = 0; point < quiet.points_count; ++point) {
    SCOPED_TRACE(testing::Message() << "at point " << point);
    ScriptedRun run(script);
    run.at_point = [&](int64_t now) {
      if (now != point) return;
      for (size_t victim = 0; victim < run.clients_count(); ++victim) run.Cancel(victim);
      EXPECT_EQ(run.core().cache().pool().used_count(), 0);
      EXPECT_FALSE(run.core().has_work());
    };
    run.Run();
    if (HasFailure()) return;
  }
}

struct Failure {
  const char* name;
  void (*raise)();
  const char* said;  ///< in the message that the clients of the step get
};

const Failure kFailures[] = {
    {"exception", [] { throw std::runtime_error("the device is gone"); }, "the device is gone"},
    {"memory refused", [] { throw std::bad_alloc(); }, "bad_alloc"},
    {"without a message", [] { throw std::runtime_error(""); }, "without a message"},
    {"no exception class", [] { throw 42; }, "unknown exception"},
};

TEST_P(Faults, FailureOfEachStepEndsItsRequestsAlone) {
  const Script script = MakeScript(GetParam());
  const Quiet quiet = RunQuietly(script);
  for (int64_t step = 0; step < quiet.steps_count; ++step) {
    for (const Failure& failure : kFailures) {
      SCOPED_TRACE(testing::Message() << failure.name << " in step " << step);
      ScriptedRun run(script);
      run.in_step = [&](int64_t now) {
        return now == step ? StepFault{.raise = failure.raise} : StepFault{};
      };
      run.Run();
      if (HasFailure()) return;
      ASSERT_FALSE(run.hit().empty());
      for (size_t i = 0; i < run.clients_count(); ++i) {
        const bool hit = std::ranges::find(run.hit(), i) != run.hit().end();
        for (int32_t choice = 0; choice < run.client(i).request().n; ++choice) {
          const std::string& error = run.client(i).error(choice);
          if (!hit) {
            ASSERT_TRUE(run.Served(i, choice)) << "request " << i << ": " << error;
          } else if (!run.Served(i, choice)) {  // some choices may have ended before
            ASSERT_EQ(run.client(i).finish(choice), FinishReason::kError);
            ASSERT_NE(error.find(failure.said), std::string::npos) << error;
          }
        }
      }
    }
  }
}

TEST_P(Faults, FailureOfEachItemEndsItsRequestAlone) {
  const Script script = MakeScript(GetParam());
  const Quiet quiet = RunQuietly(script);
  int64_t failed_count = 0;
  for (int64_t step = 0; step < quiet.steps_count; ++step) {
    for (int64_t item = 0; item < script.engine.max_num_seqs; ++item) {
      SCOPED_TRACE(testing::Message() << "item " << item << " of step " << step);
      ScriptedRun run(script);
      run.in_step = [&](int64_t now) {
        return now == step ? StepFault{.raise = {}, .failed_item = item} : StepFault{};
      };
      run.Run();
      if (HasFailure()) return;
      ASSERT_LE(run.hit().size(), 1u);
      failed_count += static_cast<int64_t>(run.hit().size());
      for (size_t i = 0; i < run.clients_count(); ++i) {
        if (std::ranges::find(run.hit(), i) != run.hit().end()) continue;
        for (int32_t choice = 0; choice < run.client(i).request().n; ++choice) {
          ASSERT_TRUE(run.Served(i, choice)) << "request " << i;
        }
      }
    }
  }
  EXPECT_GE(failed_count, quiet.steps_count);
}

TEST_P(Faults, EveryStepFails) {
  const Script script = MakeScript(GetParam());
  ScriptedRun run(script);
  run.in_step = [](int64_t) {
    return StepFault{.raise = [] { throw std::runtime_error("again"); }};
  };
  run.Run();
  for (size_t i = 0; i < run.clients_count(); ++i) {
    for (int32_t choice = 0; choice < run.client(i).request().n; ++choice) {
      EXPECT_EQ(run.client(i).finish(choice), FinishReason::kError);
    }
  }
}

// The pool says no at another moment with each of its sizes: from where the longest request just
// fits to where nobody ever waits for a block.
TEST_P(Faults, BlocksAreRefusedAtEveryPoint) {
  Script script = MakeScript(GetParam());
  int64_t blocks_least = 1;
  script.engine.cache.blocks_count = blocks_least;
  const auto fits = [&] {
    script.engine.cache.blocks_count = blocks_least;
    ScriptedRun run(script);
    return std::ranges::all_of(script.requests, [&](const ScriptedRequest& scripted) {
      return run.core().Check(scripted.request).ok();
    });
  };
  while (!fits()) ++blocks_least;
  int64_t preemptions_count = 0;
  int64_t preemptions_last = 0;
  for (int64_t blocks = blocks_least; blocks < blocks_least + 60; ++blocks) {
    SCOPED_TRACE(testing::Message() << blocks << " blocks");
    script.engine.cache.blocks_count = blocks;
    ScriptedRun run(script);
    run.Run();
    for (size_t i = 0; i < run.clients_count(); ++i) {
      for (int32_t choice = 0; choice < run.client(i).request().n; ++choice) {
        ASSERT_TRUE(run.Served(i, choice)) << "request " << i;
      }
    }
    if (HasFailure()) return;
    preemptions_last = run.core().metrics().preemptions.value();
    preemptions_count += preemptions_last;
  }
  if (script.engine.kv_allocation == engine::KvAllocation::kPaged) {
    EXPECT_GT(preemptions_count, 0);
  }
}

TEST_P(Faults, TheClockJumpsAtEveryPoint) {
  const Script script = MakeScript(GetParam());
  const Quiet quiet = RunQuietly(script);
  constexpr TimeNs kYear = 365 * 24 * 3600 * kNsPerSecond;
  for (const TimeNs jump : {TimeNs{1}, kNsPerSecond, 100 * kYear, TimeNs{-1}, -kNsPerSecond,
                            -100 * kNsPerSecond, -50 * kYear}) {
    for (int64_t point = 0; point < quiet.points_count; ++point) {
      SCOPED_TRACE(testing::Message() << jump << " ns at point " << point);
      ScriptedRun run(script);
      run.at_point = [&](int64_t now) {
        if (now == point) run.clock().Jump(jump);
      };
      run.Run();
      if (HasFailure()) return;
      for (size_t i = 0; i < run.clients_count(); ++i) {
        for (int32_t choice = 0; choice < run.client(i).request().n; ++choice) {
          ASSERT_TRUE(run.Served(i, choice)) << "request " << i;
        }
      }
    }
  }
}

TEST_P(Faults, AClockThatGoesBackExpiresNobodyAndOneThatGoesOnExpiresTheQueueAlone) {
  Script script = MakeScript(GetParam());
  // No request of this run waits for so long.
  script.engine.max_queue_wait_ns = kNsPerSecond;
  const Quiet quiet = RunQuietly(script);
  int64_t expired_count = 0;
  for (const TimeNs jump : {-3600 * kNsPerSecond, 3600 * kNsPerSecond}) {
    for (int64_t point = 0; point < quiet.points_count; ++point) {
      SCOPED_TRACE(testing::Message() << jump << " ns at point " << point);
      ScriptedRun run(script);
      std::vector<bool> begun(script.requests.size(), false);
      run.at_point = [&](int64_t now) {
        if (now != point) return;
        run.clock().Jump(jump);
        for (size_t i = 0; i < run.clients_count(); ++i) begun[i] = run.Begun(i);
      };
      run.Run();
      if (HasFailure()) return;
      for (size_t i = 0; i < run.clients_count(); ++i) {
        for (int32_t choice = 0; choice < run.client(i).request().n; ++choice) {
          if (run.Served(i, choice)) continue;
          ++expired_count;
          ASSERT_GT(jump, 0);
          ASSERT_FALSE(begun[i]);
          ASSERT_EQ(run.client(i).finish(choice), FinishReason::kError);
          ASSERT_NE(run.client(i).error(choice).find("in the queue"), std::string::npos);
        }
      }
    }
  }
  EXPECT_GT(expired_count, 0);
}

INSTANTIATE_TEST_SUITE_P(Scripts, Faults, testing::Range(0, kScripts), ScriptName);

}  // namespace
}  // namespace kvasir::simulation
