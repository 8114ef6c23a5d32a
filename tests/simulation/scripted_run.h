// A short run of the real engine, scheduler and cache that is always the same: some requests, each
// with the step before which it arrives. Faults are put at chosen points of it; whatever they are,
// the accounting must be whole after every point and everybody who was not hit must get what he
// gets alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_core.h"
#include "shadow_runner.h"
#include "simulation.h"

namespace kvasir::simulation {

/// A clock that can also be set.
class JumpingClock final : public Clock {
 public:
  [[nodiscard]] TimeNs Now() const override { return now_; }
  void Jump(TimeNs delta) { now_ += delta; }

 private:
  TimeNs now_ = 100 * kNsPerSecond;
};

struct ScriptedRequest {
  int64_t before_step = 0;
  Request request;
};

struct Script {
  engine::EngineConfig engine;
  std::vector<ScriptedRequest> requests;  ///< by before_step
};

/// One run. A point is a moment between two things that the engine is told to do: before each
/// request's arrival and before each step; they are numbered from 0.
class ScriptedRun {
 public:
  explicit ScriptedRun(Script script) : script_(std::move(script)) {
    SetLogLevel(LogLevel::kOff);  // steps fail on purpose
    const engine::EngineConfig& config = script_.engine;
    auto runner =
        std::make_unique<ShadowRunner>(config.cache, config.vocab_size, ShadowFaults{}, 1);
    runner_ = runner.get();
    core_ = std::make_unique<engine::EngineCore>(config, std::move(runner), &clock_,
                                                 engine::HashOptions{});
  }

  /// Called at every point with its number.
  std::function<void(int64_t)> at_point;
  /// Asked in every step with its number, from 0.
  std::function<StepFault(int64_t)> in_step;
  /// Called before and after whatever the core is told to do.
  std::function<void()> enter_core = [] {};
  std::function<void()> leave_core = [] {};
  /// What the core gets for a client: it must hand on what it hears.
  std::function<std::shared_ptr<RequestListener>(std::shared_ptr<Client>)> listener_for =
      [](std::shared_ptr<Client> client) { return client; };

  void Run() {
    runner_->set_script([this](const StepPlan&) {
      for (const schedule::Sequence* sequence : core_->scheduler().running()) {
        begun_.insert(RequestOf(*sequence));
      }
      if (!in_step) return StepFault{};
      StepFault fault = in_step(steps_count_);
      if (fault.raise || fault.failed_item >= 0) NoteHit(fault.failed_item);
      return fault;
    });
    size_t arrived = 0;
    while (arrived < script_.requests.size() || core_->has_work()) {
      ASSERT_LT(steps_count_, 2000) << "the run does not end";
      if (arrived < script_.requests.size() &&
          script_.requests[arrived].before_step <= steps_count_) {
        Point();
        Arrive(script_.requests[arrived++].request);
      } else {
        Point();
        clock_.Jump(kNsPerMs);
        enter_core();
        core_->Step();
        leave_core();
        ++steps_count_;
      }
      ASSERT_EQ(BrokenInvariant(), "") << "after step " << steps_count_;
      if (testing::Test::HasFailure()) return;
    }
    CheckEnd();
  }

  void Cancel(size_t request) {
    if (request >= clients_.size()) return;
    if (!clients_[request]->ended()) clients_[request]->cancelled = true;
    core_->Cancel(IdOf(request));
  }
  void CancelChoice(size_t request, int32_t choice) {
    if (request >= clients_.size()) return;
    if (!clients_[request]->ended() && !clients_[request]->finished(choice)) {
      clients_[request]->NoteChoiceCancelled(choice);
    }
    core_->CancelChoice(IdOf(request), choice);
  }

  [[nodiscard]] JumpingClock& clock() { return clock_; }
  [[nodiscard]] engine::EngineCore& core() { return *core_; }
  [[nodiscard]] int64_t points_count() const { return points_count_; }
  [[nodiscard]] int64_t steps_count() const { return steps_count_; }
  /// The requests that were computed in steps with a fault, or whose item failed.
  [[nodiscard]] const std::vector<size_t>& hit() const { return hit_; }
  [[nodiscard]] const Client& client(size_t request) const { return *clients_[request]; }
  [[nodiscard]] size_t clients_count() const { return clients_.size(); }
  /// Whether the request has had a part in a step.
  [[nodiscard]] bool Begun(size_t request) const { return begun_.contains(request); }
  /// Whether choice `choice` of `request` was served to its end.
  [[nodiscard]] bool Served(size_t request, int32_t choice) const {
    const FinishReason reason = clients_[request]->finish(choice);
    return reason == FinishReason::kStop || reason == FinishReason::kLength;
  }

 private:
  static RequestId IdOf(size_t request) { return static_cast<RequestId>(request + 1); }

  static size_t RequestOf(const schedule::Sequence& sequence) {
    return static_cast<size_t>(static_cast<const engine::ChoiceSequence&>(sequence).request->id -
                               1);
  }

  void Point() {
    if (at_point) at_point(points_count_);
    ++points_count_;
    ASSERT_EQ(BrokenInvariant(), "") << "at point " << points_count_ - 1;
  }

  void Arrive(const Request& request) {
    ASSERT_TRUE(core_->Check(request).ok());
    ASSERT_TRUE(core_->EnterQueue(static_cast<int64_t>(request.prompt.size())).ok());
    clients_.push_back(std::make_shared<Client>(request));
    choices_count_ += request.n;
    const std::shared_ptr<RequestListener> listener = listener_for(clients_.back());
    Request copy = request;
    enter_core();
    core_->Enqueue(IdOf(clients_.size() - 1), std::move(copy), listener, clock_.Now());
    leave_core();
  }

  void NoteHit(int64_t failed_item) {
    int64_t item = 0;
    for (const schedule::Sequence* sequence : core_->scheduler().running()) {
      if (sequence->scheduled == 0) continue;
      if (failed_item < 0 || failed_item == item) {
        hit_.push_back(RequestOf(*sequence));
      }
      ++item;
    }
  }

  std::string BrokenInvariant() {
    open_.clear();
    for (const schedule::Sequence* sequence : core_->scheduler().running()) {
      open_.push_back(&sequence->kv);
    }
    for (const BlockId block : core_->cache().pool().free_blocks()) runner_->Poison(block);
    return cache::FindBrokenInvariant(core_->cache(), open_);
  }

  void CheckEnd() {
    const engine::EngineConfig& config = script_.engine;
    for (const std::shared_ptr<Client>& client : clients_) {
      EXPECT_TRUE(client->ended());
      client->CheckAgainstAlone(config.vocab_size, config.cache.block_tokens);
    }
    const cache::BlockPool& pool = core_->cache().pool();
    EXPECT_EQ(pool.used_count(), 0);
    EXPECT_EQ(pool.free_count() + pool.cached_count(), pool.blocks_count());
    EXPECT_EQ(core_->requests_count(), 0);
    core_->UpdateGauges();
    const engine::EngineMetrics& metrics = core_->metrics();
    for (const Gauge* gauge :
         {&metrics.requests_running, &metrics.requests_waiting, &metrics.requests_waiting_tokens,
          &metrics.queue_age_seconds_max, &metrics.kv_blocks_used, &metrics.kv_cache_usage}) {
      EXPECT_EQ(gauge->value(), 0);
    }
    EXPECT_EQ(metrics.finished_stop.value() + metrics.finished_length.value() +
                  metrics.finished_abort.value() + metrics.finished_error.value(),
              choices_count_);
    for (const Histogram* histogram :
         {&metrics.time_to_first_token_seconds, &metrics.inter_token_latency_seconds,
          &metrics.e2e_request_latency_seconds, &metrics.request_queue_time_seconds,
          &metrics.step_overhead_seconds}) {
      EXPECT_GE(histogram->sum(), 0);
    }
  }

  Script script_;
  JumpingClock clock_;
  ShadowRunner* runner_ = nullptr;
  std::unique_ptr<engine::EngineCore> core_;
  std::vector<std::shared_ptr<Client>> clients_;
  std::vector<size_t> hit_;
  std::set<size_t> begun_;
  std::vector<const cache::SequenceBlocks*> open_;
  int64_t points_count_ = 0;
  int64_t steps_count_ = 0;
  int64_t choices_count_ = 0;
};

}  // namespace kvasir::simulation
