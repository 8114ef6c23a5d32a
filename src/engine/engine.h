// The loop and its thread: inbox, step, outbox, cancel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "contract/request.h"
#include "contract/runner.h"
#include "engine/config.h"
#include "engine/metrics.h"
#include "engine/request_observer.h"

namespace kvasir::engine {

/// Starts its thread in the constructor; the destructor ends whatever still runs with kAbort.
class Engine {
 public:
  /// `observer`, where there is one, must outlive the engine.
  Engine(const EngineConfig& config, std::unique_ptr<Runner> runner,
         RequestObserver* observer = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues a request. Any thread; never waits for a step. Errors:
  /// - kInvalidArgument: can never fit, prompt + max_tokens over max_model_len, or more blocks than
  ///   the pool has (with the numbers)
  /// - kResourceExhausted: the queue is full, by count or by tokens (429)
  /// - kUnavailable: stopped (503)
  Result<RequestId> Submit(Request request, std::shared_ptr<RequestListener> listener);

  struct Submission {
    Request request;
    std::shared_ptr<RequestListener> listener;
  };
  /// Several requests that belong together (the prompts of one call): all are queued or none. An
  /// empty queue takes them whatever its limits. Errors as Submit. Ids are in their order.
  Result<std::vector<RequestId>> SubmitAll(std::vector<Submission> submissions);

  /// The client left, or a stop string was found. Any thread. No event follows (but those already
  /// under way); blocks are back before the next step. Unknown and finished ids are ignored.
  void Cancel(RequestId id);
  /// Ends one choice of a request (a stop string was found in its text); others go on.
  void CancelChoice(RequestId id, int32_t index);

  /// True when nothing runs and nothing waits.
  [[nodiscard]] bool Idle() const;
  /// True while new work is taken.
  [[nodiscard]] bool Accepting() const;
  /// Nanoseconds since the engine thread last finished a step or found nothing to do; a health
  /// check compares it with what a step may take.
  [[nodiscard]] TimeNs SinceHeartbeatNs() const;
  /// Ends everything that runs or waits with kAbort and joins the thread.
  void Stop();

  [[nodiscard]] const EngineMetrics& metrics() const;
  [[nodiscard]] const EngineConfig& config() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvasir::engine
