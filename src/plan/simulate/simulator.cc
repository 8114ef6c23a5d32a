#include "plan/simulate/simulator.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "engine/engine_core.h"
#include "plan/simulate/modelled_runner.h"
#include "plan/simulate/recorder.h"

namespace kvasir::plan {

namespace {

/// Steps between two looks at the progress.
constexpr int64_t kProgressSteps = 512;

/// Later moments than this, a century, count as this one: nanoseconds must not overflow.
constexpr double kSecondsMax = 4e9;

/// Places for requests that are taken before any comes.
constexpr int64_t kReservedMax = 1'000'000;

TimeNs ToNs(double seconds) {
  return static_cast<TimeNs>(
      std::llround(std::min(seconds, kSecondsMax) * static_cast<double>(kNsPerSecond)));
}

class Simulation {
 public:
  Simulation(const engine::EngineConfig& config, const StepCostModel& cost, Workload& workload,
             const SimulationOptions& options)
      : config_(config),
        options_(options),
        workload_(workload),
        recorder_(options_, &clock_, &result_),
        core_(config,
              std::make_unique<ModelledRunner>(&cost, config.vocab_size, &clock_, &recorder_),
              &clock_, engine::HashOptions{}) {
    KVASIR_CHECK(options.samples_max >= 2 && options.snapshots_max != 1);
    recorder_.Watch(&core_);
    result_.block_tokens = config.cache.block_tokens;
    result_.block_bytes = config.cache.block_bytes;
    result_.blocks_count = config.cache.blocks_count;
    result_.groups_count = static_cast<int64_t>(config.cache.groups.size());
    result_.max_num_seqs = config.max_num_seqs;
    result_.max_num_batched_tokens = config.max_num_batched_tokens;
    result_.max_model_len = config.max_model_len;
    result_.slo = options.slo;
    result_.requests.reserve(
        static_cast<size_t>(std::min(workload.requests_count(), kReservedMax)));
  }

  SimulationResult Run() {
    while (!OutOfTime() && GoesOn()) {
      if (TakeArrivals()) continue;
      if (core_.has_work()) {
        core_.Step();
        continue;
      }
      const double next_s = NextInQueue();
      if (next_s == kNoArrival) break;
      clock_.Advance(std::max<TimeNs>(0, ToNs(next_s) - clock_.Now()));
    }
    result_.end_s = ToSeconds(clock_.Now());
    const engine::EngineMetrics& metrics = core_.metrics();
    result_.prompt_tokens = metrics.prompt_tokens.value();
    result_.cached_tokens = metrics.prompt_tokens_cached.value();
    result_.output_tokens = metrics.generation_tokens.value();
    return std::move(result_);
  }

 private:
  class Listener final : public RequestListener {
   public:
    Listener(Simulation* simulation, SimulatedRequest request, size_t index)
        : simulation_(simulation), request_(std::move(request)), index_(index) {}
    void OnEvent(TokenEvent event) override {
      simulation_->OnEvent(event, request_, index_, last_token_);
    }

   private:
    Simulation* simulation_;
    SimulatedRequest request_;
    size_t index_;
    TimeNs last_token_ = 0;
  };

  /// When the next request stands in the queue.
  [[nodiscard]] double NextInQueue() const {
    const double sent_s = workload_.NextArrival();
    return sent_s == kNoArrival ? kNoArrival : sent_s + options_.request_overhead_s;
  }

  /// True where one was refused or taken; those that come of it may be due at once, too.
  bool TakeArrivals() {
    bool any = false;
    while (true) {
      const double next_s = NextInQueue();
      if (next_s == kNoArrival || ToNs(next_s) > clock_.Now()) return any;
      Take(workload_.Take());
      any = true;
    }
  }

  void Take(SimulatedRequest taken) {
    const size_t index = result_.requests.size();
    RequestRecord& record = result_.requests.emplace_back();
    record.session = taken.in_session ? taken.unit : -1;
    record.turn = taken.turn;
    record.arrival_s = taken.arrival_s;
    record.queued_s = taken.arrival_s + options_.request_overhead_s;
    record.prompt_tokens = taken.prompt_tokens;
    Request request;
    const int64_t longest = config_.max_model_len;
    if (taken.prompt_tokens > longest) {
      Refuse(record, RequestEnd::kNeverFits, taken);
      return;
    }
    request.prompt.reserve(static_cast<size_t>(taken.prompt_tokens));
    for (const PromptPart& part : taken.parts) {
      AppendPart(part, config_.vocab_size, request.prompt);
    }
    request.max_tokens = taken.output_tokens;
    request.sampling.temperature = 0;
    request.sampling.seed = taken.stream;
    if (!core_.Check(request).ok()) {
      Refuse(record, RequestEnd::kNeverFits, taken);
      return;
    }
    if (!core_.EnterQueue(taken.prompt_tokens).ok()) {
      Refuse(record, RequestEnd::kQueueFull, taken);
      return;
    }
    const TimeNs arrival = ToNs(record.queued_s);
    core_.Enqueue(index + 1, std::move(request),
                  std::make_shared<Listener>(this, std::move(taken), index), arrival);
  }

  void Refuse(RequestRecord& record, RequestEnd end, const SimulatedRequest& taken) {
    record.end = end;
    record.end_s = ToSeconds(clock_.Now());
    ++ended_count_;
    workload_.Ended(taken, record.end_s, /*refused=*/true);
  }

  void OnEvent(const TokenEvent& event, const SimulatedRequest& request, size_t index,
               TimeNs& last_token) {
    const TimeNs now = clock_.Now();
    RequestRecord& record = result_.requests[index];
    if (event.token.has_value()) {
      if (record.output_tokens == 0) {
        record.first_token_s = ToSeconds(now);
        record.cached_tokens = event.cached_tokens;
      } else {
        const double itl_s = ToSeconds(now - last_token);
        result_.itl_s.Add(itl_s);
        record.itl_max_s = std::max(record.itl_max_s, itl_s);
      }
      ++record.output_tokens;
      last_token = now;
    }
    if (event.finish == FinishReason::kNone) return;
    const bool finished =
        event.finish == FinishReason::kLength || event.finish == FinishReason::kStop;
    record.end = finished ? RequestEnd::kFinished : RequestEnd::kWaitedOut;
    record.end_s = ToSeconds(now);
    if (finished) record.scheduled_s = record.queued_s + ToSeconds(event.queue_ns);
    ++ended_count_;
    workload_.Ended(request, record.end_s, !finished);
  }

  [[nodiscard]] bool OutOfTime() const {
    return options_.seconds_max > 0 && clock_.Now() >= ToNs(options_.seconds_max);
  }

  bool GoesOn() {
    if (!options_.progress || result_.steps_count < next_progress_) return true;
    next_progress_ = result_.steps_count + kProgressSteps;
    return options_.progress(
        SimulationProgress{ended_count_, workload_.requests_count(), ToSeconds(clock_.Now())});
  }

  engine::EngineConfig config_;
  SimulationOptions options_;
  Workload& workload_;
  ManualClock clock_;
  SimulationResult result_;
  Recorder recorder_;
  engine::EngineCore core_;
  int64_t ended_count_ = 0;
  int64_t next_progress_ = 0;
};

}  // namespace

SimulationResult Simulate(const engine::EngineConfig& config, const StepCostModel& cost,
                          Workload& workload, const SimulationOptions& options) {
  return Simulation(config, cost, workload, options).Run();
}

}  // namespace kvasir::plan
