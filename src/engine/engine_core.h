// The engine without its thread: deterministic, driven step by step. Engine drives it from the
// engine thread, simulations drive it directly with a clock of their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cache/kv_cache.h"
#include "contract/request.h"
#include "contract/runner.h"
#include "engine/config.h"
#include "engine/metrics.h"
#include "engine/request_observer.h"
#include "engine/request_state.h"
#include "schedule/scheduler.h"

namespace kvasir::engine {

/// How block hashes are made; a test can make them collide.
struct HashOptions {
  uint64_t seed = 0;
  cache::BlockHash hash = &cache::HashBlock;
};

class EngineCore {
 public:
  /// `config` has passed ValidateEngineConfig. `clock` must outlive the core.
  EngineCore(const EngineConfig& config, std::unique_ptr<Runner> runner, const Clock* clock,
             const HashOptions& hashing);
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  /// Before the first request; must outlive the core.
  void set_observer(RequestObserver* observer) { observer_ = observer; }

  // Any thread.

  /// Whether the request is valid and can ever fit; kInvalidArgument with the numbers where not.
  [[nodiscard]] Status Check(const Request& request) const;
  /// Takes a place in the bounded queue, or kResourceExhausted. Enqueue must follow.
  /// `requests_count` requests together, all or none: an empty queue takes them whatever they are,
  /// else they could never be served.
  [[nodiscard]] Status EnterQueue(int64_t prompt_tokens, int64_t requests_count = 1);
  /// Requests that have entered and whose last event has not been delivered.
  [[nodiscard]] int64_t requests_count() const {
    return requests_count_.load(std::memory_order_acquire);
  }
  [[nodiscard]] const EngineMetrics& metrics() const { return metrics_; }
  [[nodiscard]] const EngineConfig& config() const { return config_; }

  // The owning thread alone, and not from within a listener.

  /// A request that has passed Check and EnterQueue. Ids ascend with arrival, which is the clock's.
  /// Where memory for it is refused it ends with an error.
  void Enqueue(RequestId id, Request request, const std::shared_ptr<RequestListener>& listener,
               TimeNs arrival);
  /// Ends a request without further events; its blocks are free on return.
  void Cancel(RequestId id);
  /// Ends one choice without further events, as stopped: its text held a stop string.
  void CancelChoice(RequestId id, int32_t index);
  /// Plans, runs and commits one step, then delivers its events. False where there was nothing to
  /// do. An exception in it ends the requests of the step with an error; the others go on.
  bool Step();
  /// Ends everything with kAbort.
  void AbortAll();
  /// Brings the gauges up to date.
  void UpdateGauges();
  [[nodiscard]] bool has_work() const { return !scheduler_.empty(); }

  [[nodiscard]] const cache::KvCache& cache() const { return cache_; }
  [[nodiscard]] const schedule::Scheduler& scheduler() const { return scheduler_; }

 private:
  struct Delivery {
    RequestState* request;
    TokenEvent event;
  };

  /// The clock's time, which here never goes back: where the clock does, time stands still for that
  /// moment and goes on.
  [[nodiscard]] TimeNs Now();
  void TakeIn(RequestId id, Request request, std::shared_ptr<RequestListener> listener,
              TimeNs arrival);
  bool TryStep();
  void ExpireWaiting(TimeNs now);
  void NoteScheduled(const schedule::Schedule& schedule, TimeNs now);
  void BuildPlan(const schedule::Schedule& schedule);
  void FillItem(ChoiceSequence& sequence, PlanItem& item);
  void CommitStep(StepResult& result, TimeNs now);
  void CommitItem(ChoiceSequence& sequence, const PlanItem& item, ItemResult& result, TimeNs now);
  void FinishPrompt(RequestState& request, ChoiceSequence& lead, ItemResult& result, TimeNs now);
  void TakeToken(RequestState& request, int32_t index, SampledToken& sampled, TimeNs now);
  [[nodiscard]] FinishReason ReasonToFinish(const RequestState& request, int64_t output_count,
                                            TokenId token) const;
  /// Ends each unfinished choice with an event.
  void EndRequest(RequestState& request, FinishReason reason, const Error& error, TimeNs now);
  /// Frees what the choice holds, without an event; with the last choice the request goes too.
  void EndChoice(RequestState& request, int32_t index, FinishReason reason, TimeNs now);
  void LeaveQueue(RequestState& request);
  /// An event to fill in, to be delivered after the step. Valid until the next call.
  TokenEvent& Emit(RequestState& request, int32_t index);
  void Deliver();

  // engine_core_faults.cc: where memory is refused.

  /// Makes room for the ends of all that is here, `choices_count` choices, so that they need no
  /// memory when they come.
  void ReserveForEnds(int64_t choices_count);
  /// Ends what could not be taken in.
  void RefuseArrival(RequestListener& listener, int32_t n, int64_t prompt_count,
                     const std::string& failure);
  /// The listener did not take an event: its request ends and it hears no more.
  void DropListener(RequestState& request, const std::string& failure);
  /// Planning or committing broke off in the midst, so that the books of the scheduler and the
  /// cache are in doubt. They begin anew, empty: what had a part in the step ends with an error,
  /// what waited waits on.
  void StartOver(const std::string& failure);
  void Requeue(RequestState& request, const Error& error, TimeNs now);

  void ObserveStep(TimeNs run_time);

  EngineConfig config_;
  std::unique_ptr<Runner> runner_;
  const Clock* clock_;
  RequestObserver* observer_ = nullptr;
  TimeNs clock_seen_;       ///< the clock's last answer
  TimeNs clock_shift_ = 0;  ///< how far the clock has gone back so far
  EngineMetrics metrics_;
  cache::KvCache cache_;
  schedule::Scheduler scheduler_;
  std::unordered_map<RequestId, std::unique_ptr<RequestState>> requests_;
  std::vector<std::unique_ptr<RequestState>> ended_;  ///< until their last events are delivered
  std::deque<std::pair<TimeNs, RequestId>>
      arrivals_;  ///< of the queue, oldest first, lazily cleaned
  std::vector<Delivery> deliveries_;
  int64_t choices_count_ = 0;  ///< unfinished, of all requests

  StepPlan plan_;
  std::vector<PlanItem> spare_items_;  ///< keeps their vectors' memory between steps
  std::vector<ChoiceSequence*> step_sequences_;

  std::atomic<int64_t> requests_count_{0};
  std::atomic<int64_t> queued_count_{0};
  std::atomic<int64_t> queued_tokens_{0};
};

}  // namespace kvasir::engine
