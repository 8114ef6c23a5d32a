#include "plan/simulate/measure_load.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/engine_core.h"

namespace kvasir::plan {
namespace {

constexpr int64_t kHostSequencesMax = 32;
constexpr int64_t kHostOutputTokens = 24;

// Passes steps on to another runner, and counts.
class WatchedRunner final : public Runner {
 public:
  WatchedRunner(Runner& runner, const CacheSpec& cache, const FittedStepTime* step_time,
                LoadOutcome& outcome)
      : runner_(runner), cache_(cache), step_time_(step_time), outcome_(outcome) {}

  StepResult Run(const StepPlan& plan) override {
    const TimeNs began = clock_.Now();
    StepResult result = runner_.Run(plan);
    outcome_.runner_seconds += ToSeconds(clock_.Now() - began);
    ++outcome_.steps;
    outcome_.sequences += static_cast<int64_t>(plan.items.size());
    if (step_time_ != nullptr) {
      outcome_.predicted_seconds += step_time_->Seconds(ShapeOf(plan, cache_.groups));
    }
    return result;
  }

 private:
  Runner& runner_;
  const CacheSpec& cache_;
  const FittedStepTime* step_time_;
  LoadOutcome& outcome_;
  SteadyClock clock_;
};

// Keeps the error of whatever failed.
class ErrorListener final : public RequestListener {
 public:
  void OnEvent(TokenEvent event) override {
    if (event.finish == FinishReason::kError) error = std::move(event.error);
  }
  std::optional<Error> error;
};

Request MakeRequest(const LoadRequest& load, const engine::EngineConfig& config, uint64_t seed) {
  Request request;
  Rng rng(seed);
  for (int64_t i = 0; i < load.prompt_tokens; ++i) {
    request.prompt.push_back(
        static_cast<TokenId>(rng.Below(static_cast<uint64_t>(config.vocab_size))));
  }
  request.sampling.temperature = 0;
  request.max_tokens = load.output_tokens;
  return request;
}

}  // namespace

Result<LoadOutcome> RunLoad(Runner& runner, const engine::EngineConfig& config,
                            const std::vector<LoadRequest>& requests,
                            const FittedStepTime* step_time) {
  const SteadyClock clock;
  LoadOutcome outcome;
  engine::EngineCore core(config,
                          std::make_unique<WatchedRunner>(runner, config.cache, step_time, outcome),
                          &clock, engine::HashOptions{});
  const auto listener = std::make_shared<ErrorListener>();
  size_t next = 0;
  while (next < requests.size() || core.has_work()) {
    while (next < requests.size() &&
           (requests[next].arrival_step <= outcome.steps || !core.has_work())) {
      Request request = MakeRequest(requests[next], config, next);
      KVASIR_RETURN_IF_ERROR(core.Check(request));
      KVASIR_RETURN_IF_ERROR(core.EnterQueue(requests[next].prompt_tokens));
      core.Enqueue(++next, std::move(request), listener, clock.Now());
    }
    const TimeNs began = clock.Now();
    core.Step();
    outcome.seconds += ToSeconds(clock.Now() - began);
  }
  if (listener->error) return *listener->error;
  return outcome;
}

Result<HostSeconds> MeasureHost(Runner& runner, const engine::EngineConfig& config) {
  const int64_t many = std::min(kHostSequencesMax, config.max_num_seqs);
  const auto measure = [&](int64_t sequences) {
    return RunLoad(
        runner, config,
        std::vector<LoadRequest>(static_cast<size_t>(sequences),
                                 {.prompt_tokens = 1, .output_tokens = kHostOutputTokens}),
        nullptr);
  };
  KVASIR_ASSIGN_OR_RETURN(const LoadOutcome one, measure(1));
  KVASIR_ASSIGN_OR_RETURN(const LoadOutcome all, measure(many));
  const auto per_step = [](const LoadOutcome& outcome) {
    return (outcome.seconds - outcome.runner_seconds) / static_cast<double>(outcome.steps);
  };
  HostSeconds host;
  if (many > 1) {
    host.per_sequence =
        std::max(0.0, per_step(all) - per_step(one)) / static_cast<double>(many - 1);
  }
  host.per_step = std::max(0.0, per_step(one) - host.per_sequence);
  return host;
}

std::vector<LoadRequest> MixedLoad(const engine::EngineConfig& config) {
  constexpr int64_t kRequests = 16;
  std::vector<LoadRequest> requests;
  for (int64_t i = 0; i < kRequests; ++i) {
    const int64_t prompt = std::clamp<int64_t>(config.max_model_len / 4, 1, 24 + 40 * (i % 7));
    const int64_t output = std::clamp<int64_t>(config.max_model_len / 4, 1, 12 + 9 * (i % 5));
    requests.push_back({.prompt_tokens = prompt, .output_tokens = output, .arrival_step = 3 * i});
  }
  return requests;
}

}  // namespace kvasir::plan
