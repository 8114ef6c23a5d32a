// Memory is refused at every single allocation that the host tower makes in scripted runs: each
// request still ends exactly once, with its own tokens or a clear error, and the accounting stays
// whole.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "scripts.h"

namespace {

/// Which allocation is refused; only those made between Arm and Disarm count.
thread_local bool armed = false;
thread_local int64_t allocations_count = 0;
thread_local int64_t refused_at = -1;

bool Refused() { return armed && allocations_count++ == refused_at; }

}  // namespace

// Not inlined: g++ would see malloc and free where it expects new and delete, and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (Refused()) throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace kvasir::simulation {
namespace {

/// Takes events with memory of its own.
class Unrefused final : public RequestListener {
 public:
  explicit Unrefused(std::shared_ptr<Client> client) : client_(std::move(client)) {}
  void OnEvent(TokenEvent event) override {
    const bool was_armed = std::exchange(armed, false);
    client_->OnEvent(std::move(event));
    armed = was_armed;
  }

 private:
  std::shared_ptr<Client> client_;
};

void Watch(ScriptedRun& run, int64_t refuse) {
  run.enter_core = [] { armed = true; };
  run.leave_core = [] { armed = false; };
  run.listener_for = [](std::shared_ptr<Client> client) {
    return std::make_shared<Unrefused>(std::move(client));
  };
  allocations_count = 0;
  refused_at = refuse;
}

class RefusedMemory : public testing::TestWithParam<int> {};

TEST_P(RefusedMemory, AtEveryAllocation) {
  const Script script = MakeScript(GetParam());
  ScriptedRun quiet(script);
  Watch(quiet, -1);
  quiet.Run();
  const int64_t all = allocations_count;
  ASSERT_GT(all, 100);
  int64_t failed_count = 0;
  int64_t served_count = 0;
  for (int64_t refuse = 0; refuse < all; ++refuse) {
    SCOPED_TRACE(testing::Message() << "allocation " << refuse << " of " << all);
    ScriptedRun run(script);
    Watch(run, refuse);
    run.Run();
    ASSERT_FALSE(armed);
    if (HasFailure()) return;
    for (size_t i = 0; i < run.clients_count(); ++i) {
      for (int32_t choice = 0; choice < run.client(i).request().n; ++choice) {
        if (run.Served(i, choice)) {
          ++served_count;
          continue;
        }
        ++failed_count;
        ASSERT_EQ(run.client(i).finish(choice), FinishReason::kError);
        ASSERT_NE(run.client(i).error(choice).find("bad_alloc"), std::string::npos)
            << run.client(i).error(choice);
      }
    }
  }
  EXPECT_GT(failed_count, 0);
  EXPECT_GT(served_count, failed_count);
}

/// A client that has no memory left for an event.
class Throwing final : public RequestListener {
 public:
  Throwing(std::shared_ptr<Client> client, int64_t event)
      : client_(std::move(client)), left_(event) {}
  void OnEvent(TokenEvent event) override {
    EXPECT_GE(left_, 0) << "an event after the one that was not taken";
    if (left_-- == 0) {
      client_->cancelled = true;
      throw std::bad_alloc();
    }
    client_->OnEvent(std::move(event));
  }

 private:
  std::shared_ptr<Client> client_;
  int64_t left_;
};

TEST_P(RefusedMemory, ToTheListenerAtEveryEvent) {
  const Script script = MakeScript(GetParam());
  for (size_t victim = 0; victim < script.requests.size(); ++victim) {
    for (int64_t event = 0; event < 10; ++event) {
      SCOPED_TRACE(testing::Message() << "event " << event << " of request " << victim);
      ScriptedRun run(script);
      size_t made = 0;
      run.listener_for = [&](std::shared_ptr<Client> client) -> std::shared_ptr<RequestListener> {
        if (made++ == victim) return std::make_shared<Throwing>(std::move(client), event);
        return client;
      };
      run.Run();
      if (HasFailure()) return;
      for (size_t i = 0; i < run.clients_count(); ++i) {
        for (int32_t choice = 0; i != victim && choice < run.client(i).request().n; ++choice) {
          ASSERT_TRUE(run.Served(i, choice)) << "request " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scripts, RefusedMemory, testing::Range(0, kScripts), ScriptName);

}  // namespace
}  // namespace kvasir::simulation
