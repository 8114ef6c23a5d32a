#include "app/bench_streams.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/rng.h"

namespace kvasir::app {
namespace {

// Counts down as streams end.
class Latch {
 public:
  explicit Latch(int64_t count) : count_(count) {}
  void Down() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) done_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int64_t count_;
};

// Notes when each token came. Read after the latch alone.
class Stopwatch final : public RequestListener {
 public:
  explicit Stopwatch(std::shared_ptr<Latch> latch) : latch_(std::move(latch)) {}

  void OnEvent(TokenEvent event) override {
    if (event.token) tokens_at.push_back(clock_.Now());
    if (event.finish == FinishReason::kError) error = std::move(event.error);
    if (event.finish != FinishReason::kNone) latch_->Down();
  }

  std::vector<TimeNs> tokens_at;
  std::optional<Error> error;

 private:
  SteadyClock clock_;
  std::shared_ptr<Latch> latch_;
};

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
}

Result<StreamsOutcome> RunOnce(engine::Engine& engine, const StreamsOptions& options,
                               int64_t streams, Rng& rng) {
  const SteadyClock clock;
  const auto latch = std::make_shared<Latch>(streams);
  std::vector<std::shared_ptr<Stopwatch>> watches;
  std::vector<engine::Engine::Submission> submissions;
  const auto vocab_size = static_cast<uint64_t>(engine.config().vocab_size);
  for (int64_t i = 0; i < streams; ++i) {
    Request request;
    for (int64_t at = 0; at < options.prompt_tokens; ++at) {
      request.prompt.push_back(static_cast<TokenId>(rng.Below(vocab_size)));
    }
    request.sampling.temperature = 0;
    request.max_tokens = options.output_tokens;
    watches.push_back(std::make_shared<Stopwatch>(latch));
    submissions.push_back({std::move(request), watches.back()});
  }
  const TimeNs began = clock.Now();
  KVASIR_ASSIGN_OR_RETURN([[maybe_unused]] const auto ids,
                          engine.SubmitAll(std::move(submissions)));
  latch->Wait();

  std::vector<double> first;
  std::vector<double> gaps;
  std::vector<double> rates;
  TimeNs end = began;
  for (const auto& watch : watches) {
    if (watch->error) return *watch->error;
    const std::vector<TimeNs>& at = watch->tokens_at;
    first.push_back(ToSeconds(at.front() - began));
    for (size_t i = 1; i < at.size(); ++i) gaps.push_back(ToSeconds(at[i] - at[i - 1]));
    if (at.size() > 1) {
      rates.push_back(static_cast<double>(at.size() - 1) / ToSeconds(at.back() - at.front()));
    }
    end = std::max(end, at.back());
  }
  StreamsOutcome outcome;
  outcome.streams = streams;
  outcome.ttft_s_median = Quantile(first, 0.5);
  outcome.ttft_s_max = Quantile(first, 1.0);
  outcome.itl_s_median = Quantile(gaps, 0.5);
  outcome.itl_s_p99 = Quantile(gaps, 0.99);
  outcome.prefill_tokens_per_s =
      static_cast<double>(streams * options.prompt_tokens) / outcome.ttft_s_max;
  outcome.stream_tokens_per_s = Quantile(rates, 0.5);
  outcome.output_tokens_per_s =
      static_cast<double>(streams * options.output_tokens) / ToSeconds(end - began);
  return outcome;
}

StreamsOutcome MedianOf(const std::vector<StreamsOutcome>& runs) {
  StreamsOutcome median;
  median.streams = runs.front().streams;
  for (double StreamsOutcome::*field :
       {&StreamsOutcome::ttft_s_median, &StreamsOutcome::ttft_s_max, &StreamsOutcome::itl_s_median,
        &StreamsOutcome::itl_s_p99, &StreamsOutcome::prefill_tokens_per_s,
        &StreamsOutcome::stream_tokens_per_s, &StreamsOutcome::output_tokens_per_s}) {
    std::vector<double> values(runs.size());
    std::ranges::transform(runs, values.begin(), field);
    median.*field = Quantile(std::move(values), 0.5);
  }
  return median;
}

}  // namespace

Result<std::vector<StreamsOutcome>> BenchStreams(engine::Engine& engine,
                                                 const StreamsOptions& options) {
  Rng rng(1);
  // Touches the memory and wakes the threads, outside of what is measured.
  StreamsOptions warm = options;
  warm.output_tokens = 2;
  KVASIR_ASSIGN_OR_RETURN([[maybe_unused]] const StreamsOutcome warmed,
                          RunOnce(engine, warm, 1, rng));
  const int64_t total =
      std::accumulate(options.streams.begin(), options.streams.end(), int64_t{0}) * options.repeat;
  int64_t done = 0;
  std::vector<StreamsOutcome> outcomes;
  for (const int64_t streams : options.streams) {
    std::vector<StreamsOutcome> runs;
    for (int64_t i = 0; i < options.repeat; ++i) {
      options.progress(static_cast<double>(done) / static_cast<double>(total));
      KVASIR_ASSIGN_OR_RETURN(StreamsOutcome outcome, RunOnce(engine, options, streams, rng));
      runs.push_back(outcome);
      done += streams;
    }
    outcomes.push_back(MedianOf(runs));
  }
  options.progress(1);
  return outcomes;
}

}  // namespace kvasir::app
