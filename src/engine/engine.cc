#include "engine/engine.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine_core.h"

namespace kvasir::engine {

namespace {

HashOptions RandomHashing() {
  std::random_device device;
  return HashOptions{.seed = uint64_t{device()} << 32 | device()};
}

/// What a caller asks of the engine thread; handled in order of arrival.
struct Command {
  enum class Kind : uint8_t { kSubmit, kCancel, kCancelChoice };
  Kind kind = Kind::kSubmit;
  RequestId id = 0;
  int32_t choice = 0;
  TimeNs arrival = 0;
  Request request{};
  std::shared_ptr<RequestListener> listener{};
};

}  // namespace

struct Engine::State {
  State(const EngineConfig& config, std::unique_ptr<Runner> runner)
      : core(config, std::move(runner), &clock, RandomHashing()) {}

  void Main();
  void Handle(std::vector<Command>& commands);
  void Push(Command command);

  SteadyClock clock;
  EngineCore core;
  std::mutex mutex;
  std::condition_variable wake;
  // Under the mutex:
  std::vector<Command> inbox;
  RequestId last_id = 0;
  bool stopping = false;

  std::atomic<bool> accepting{true};
  std::atomic<bool> sleeping{false};
  std::atomic<TimeNs> heartbeat{0};
  std::mutex join_mutex;
  std::thread thread;
};

void Engine::State::Main() {
  std::vector<Command> commands;
  bool stop = false;
  while (!stop) {
    heartbeat.store(clock.Now(), std::memory_order_relaxed);
    {
      std::unique_lock lock(mutex);
      if (!core.has_work() && inbox.empty() && !stopping) {
        sleeping.store(true, std::memory_order_release);
        wake.wait(lock, [&] { return !inbox.empty() || stopping; });
        heartbeat.store(clock.Now(), std::memory_order_relaxed);
        sleeping.store(false, std::memory_order_release);
      }
      commands.swap(inbox);
      stop = stopping;
    }
    if (!commands.empty()) Handle(commands);
    if (stop) {
      core.AbortAll();
    } else {
      core.Step();
    }
  }
  // Nothing runs any more; a stopped engine is not a stuck one.
  sleeping.store(true, std::memory_order_release);
}

void Engine::State::Handle(std::vector<Command>& commands) {
  for (Command& command : commands) {
    switch (command.kind) {
      case Command::Kind::kSubmit:
        core.Enqueue(command.id, std::move(command.request), command.listener, command.arrival);
        break;
      case Command::Kind::kCancel:
        core.Cancel(command.id);
        break;
      case Command::Kind::kCancelChoice:
        core.CancelChoice(command.id, command.choice);
        break;
    }
  }
  commands.clear();
  core.UpdateGauges();
}

void Engine::State::Push(Command command) {
  {
    const std::lock_guard lock(mutex);
    if (stopping) return;
    inbox.push_back(std::move(command));
  }
  wake.notify_one();
}

Engine::Engine(const EngineConfig& config, std::unique_ptr<Runner> runner,
               RequestObserver* observer)
    : state_(std::make_unique<State>(config, std::move(runner))) {
  state_->core.set_observer(observer);
  state_->heartbeat.store(state_->clock.Now());
  state_->thread = std::thread([state = state_.get()] { state->Main(); });
}

Engine::~Engine() { Stop(); }

Result<RequestId> Engine::Submit(Request request, std::shared_ptr<RequestListener> listener) {
  std::vector<Submission> one;
  one.push_back(Submission{std::move(request), std::move(listener)});
  KVASIR_ASSIGN_OR_RETURN(const std::vector<RequestId> ids, SubmitAll(std::move(one)));
  return ids.front();
}

Result<std::vector<RequestId>> Engine::SubmitAll(std::vector<Submission> submissions) {
  KVASIR_CHECK(!submissions.empty());
  int64_t prompt_tokens = 0;
  std::vector<Command> commands(submissions.size());
  for (size_t i = 0; i < submissions.size(); ++i) {
    KVASIR_RETURN_IF_ERROR(state_->core.Check(submissions[i].request));
    prompt_tokens += static_cast<int64_t>(submissions[i].request.prompt.size());
    commands[i].request = std::move(submissions[i].request);
    commands[i].listener = std::move(submissions[i].listener);
  }
  std::vector<RequestId> ids;
  ids.reserve(commands.size());
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->stopping || !state_->accepting.load(std::memory_order_relaxed)) {
      return MakeError(ErrorCode::kUnavailable, "the server is shutting down");
    }
    KVASIR_RETURN_IF_ERROR(
        state_->core.EnterQueue(prompt_tokens, static_cast<int64_t>(commands.size())));
    const TimeNs now = state_->clock.Now();
    for (Command& command : commands) {
      command.id = ++state_->last_id;
      command.arrival = now;
      ids.push_back(command.id);
      state_->inbox.push_back(std::move(command));
    }
  }
  state_->wake.notify_one();
  return ids;
}

void Engine::Cancel(RequestId id) {
  state_->Push(Command{.kind = Command::Kind::kCancel, .id = id});
}

void Engine::CancelChoice(RequestId id, int32_t index) {
  state_->Push(Command{.kind = Command::Kind::kCancelChoice, .id = id, .choice = index});
}

bool Engine::Idle() const { return state_->core.requests_count() == 0; }

bool Engine::Accepting() const { return state_->accepting.load(std::memory_order_acquire); }

TimeNs Engine::SinceHeartbeatNs() const {
  if (state_->sleeping.load(std::memory_order_acquire)) return 0;
  return state_->clock.Now() - state_->heartbeat.load(std::memory_order_relaxed);
}

void Engine::Stop() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->accepting.store(false, std::memory_order_release);
    state_->stopping = true;
  }
  state_->wake.notify_one();
  const std::lock_guard lock(state_->join_mutex);
  if (state_->thread.joinable()) state_->thread.join();
}

const EngineMetrics& Engine::metrics() const { return state_->core.metrics(); }

const EngineConfig& Engine::config() const { return state_->core.config(); }

}  // namespace kvasir::engine
