#include "plan/simulate/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <numbers>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace kvasir::plan {

namespace {

/// A user whose request was refused comes back after this long, as Retry-After says.
constexpr double kRetrySeconds = 1;

// What random draws are for; each has its own stream, so that none moves another.
enum Purpose : uint64_t {
  kArrivals = 1,
  kUnits,
  kPrefixes,
  kDocuments,
  kBlocks,
  kSessions,
  kTails
};

uint64_t StreamOf(uint64_t seed, Purpose purpose, uint64_t which) {
  return CombineSeeds(CombineSeeds(seed, purpose), which);
}

double Normal(Rng& rng) {
  // Box and Muller 1958. 1 - u is never 0.
  const double radius = std::sqrt(-2.0 * std::log(1.0 - rng.Uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * rng.Uniform());
}

/// Of mean 1.
double Gamma(Rng& rng, double shape) {
  // Marsaglia and Tsang 2000; below 1 by raising the shape by one.
  double scale = 1.0 / shape;
  double raised = shape;
  if (shape < 1.0) {
    scale *= std::pow(1.0 - rng.Uniform(), 1.0 / shape);
    raised += 1.0;
  }
  const double d = raised - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = Normal(rng);
    const double v = std::pow(1.0 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1.0 - rng.Uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      return d * v * scale;
    }
  }
}

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

constexpr int64_t kLongest = int64_t{1} << 30;

std::optional<LengthSpec> LognormalOf(std::string_view text) {
  LengthSpec length{.kind = LengthSpec::Kind::kLognormal, .low = 1, .high = kLongest};
  const size_t first = text.find(',');
  if (first == std::string_view::npos) return std::nullopt;
  const size_t second = text.find(',', first + 1);
  const auto mean = ParseNumber<double>(text.substr(0, first));
  const auto sigma = ParseNumber<double>(text.substr(first + 1, second - first - 1));
  if (!mean || !sigma) return std::nullopt;
  length.mean = *mean;
  length.sigma = *sigma;
  if (second != std::string_view::npos) {
    const auto high = ParseNumber<int64_t>(text.substr(second + 1));
    if (!high) return std::nullopt;
    length.high = *high;
  }
  const bool sane = length.mean >= 1 && length.mean <= static_cast<double>(kLongest) &&
                    length.sigma >= 0 && length.sigma <= 10 && length.high >= 1 &&
                    length.high <= kLongest;
  return sane ? std::optional(length) : std::nullopt;
}

std::optional<LengthSpec> LengthOf(std::string_view text) {
  constexpr std::string_view kLognormal = "lognormal:";
  if (text.substr(0, kLognormal.size()) == kLognormal) {
    return LognormalOf(text.substr(kLognormal.size()));
  }
  LengthSpec length;
  const size_t dots = text.find("..");
  const auto low = ParseNumber<int64_t>(text.substr(0, dots));
  if (!low) return std::nullopt;
  length.low = length.high = *low;
  if (dots != std::string_view::npos) {
    const auto high = ParseNumber<int64_t>(text.substr(dots + 2));
    if (!high) return std::nullopt;
    length.kind = LengthSpec::Kind::kUniform;
    length.high = *high;
  }
  const bool sane = length.low >= 1 && length.low <= length.high && length.high <= kLongest;
  return sane ? std::optional(length) : std::nullopt;
}

/// Draws with probabilities as 1 / rank.
class Zipf {
 public:
  explicit Zipf(int64_t count) {
    double sum = 0;
    for (int64_t rank = 1; rank <= count; ++rank) {
      sum += 1.0 / static_cast<double>(rank);
      sums_.push_back(sum);
    }
  }
  [[nodiscard]] int64_t Draw(Rng& rng) const {
    return std::ranges::upper_bound(sums_, rng.Uniform() * sums_.back()) - sums_.begin();
  }

 private:
  std::vector<double> sums_;
};

/// A turn that has a time, of a conversation under way.
struct Due {
  double at_s = 0;
  int64_t order = 0;  ///< of two at one time the first that was made known
  SimulatedRequest request;
  bool operator>(const Due& other) const {
    return std::pair(at_s, order) > std::pair(other.at_s, other.order);
  }
};
using DueQueue = std::priority_queue<Due, std::vector<Due>, std::greater<>>;

Due TakeDue(DueQueue& queue) {
  Due due = queue.top();
  queue.pop();
  return due;
}

class SyntheticWorkload final : public Workload {
 public:
  explicit SyntheticWorkload(const WorkloadSpec& spec)
      : spec_(spec),
        arrivals_rng_(StreamOf(spec.seed, kArrivals, 0)),
        documents_(spec.traffic.documents_count) {
    for (int64_t unit = 0; unit < spec.traffic.requests_count; ++unit) {
      // Turns are the first thing that a unit draws.
      if (spec.traffic.turns.kind == LengthSpec::Kind::kFixed) {
        requests_count_ = spec.traffic.requests_count * spec.traffic.turns.low;
        break;
      }
      Rng rng(StreamOf(spec.seed, kUnits, static_cast<uint64_t>(unit)));
      requests_count_ += spec.traffic.turns.Draw(rng);
    }
    if (spec.arrivals.kind == ArrivalSpec::Kind::kClosed) {
      for (int64_t user = 0; user < spec.arrivals.users; ++user) BeginUnit(0);
    } else {
      ScheduleArrival();
    }
  }

  [[nodiscard]] double NextArrival() const override {
    const double due = due_.empty() ? kNoArrival : due_.top().at_s;
    return std::min(due, next_arrival_s_);
  }

  SimulatedRequest Take() override {
    if (next_arrival_s_ <= (due_.empty() ? kNoArrival : due_.top().at_s)) {
      const double arrival_s = next_arrival_s_;
      ScheduleArrival();
      return FirstTurn(begun_++, arrival_s);
    }
    return std::move(TakeDue(due_).request);
  }

  void Ended(const SimulatedRequest& request, double now_s, bool refused) override {
    const double pause_s =
        refused ? std::max(spec_.traffic.think_s, kRetrySeconds) : spec_.traffic.think_s;
    // A conversation whose turn was refused ends there.
    if (request.in_session && !refused) {
      Rng rng(StreamOf(spec_.seed, kUnits, static_cast<uint64_t>(request.unit)));
      if (request.turn + 1 < spec_.traffic.turns.Draw(rng)) {
        Schedule(NextTurn(request, now_s + pause_s));
        return;
      }
    } else if (request.in_session) {
      requests_count_ -= TurnsOf(request.unit) - request.turn - 1;
    }
    if (spec_.arrivals.kind == ArrivalSpec::Kind::kClosed) BeginUnit(now_s + pause_s);
  }

  [[nodiscard]] int64_t requests_count() const override { return requests_count_; }

 private:
  [[nodiscard]] int64_t TurnsOf(int64_t unit) const {
    Rng rng(StreamOf(spec_.seed, kUnits, static_cast<uint64_t>(unit)));
    return spec_.traffic.turns.Draw(rng);
  }

  void BeginUnit(double at_s) {
    if (begun_ < spec_.traffic.requests_count) Schedule(FirstTurn(begun_++, at_s));
  }

  void Schedule(SimulatedRequest request) {
    const double at_s = request.arrival_s;
    due_.push(Due{at_s, order_++, std::move(request)});
  }

  void ScheduleArrival() {
    const ArrivalSpec& arrivals = spec_.arrivals;
    if (arrivals.kind == ArrivalSpec::Kind::kClosed || arrived_ == spec_.traffic.requests_count) {
      next_arrival_s_ = kNoArrival;
      return;
    }
    const int64_t index = arrived_++;
    switch (arrivals.kind) {
      case ArrivalSpec::Kind::kPoisson:
        last_s_ += -std::log(1.0 - arrivals_rng_.Uniform()) / arrivals.rate;
        break;
      case ArrivalSpec::Kind::kGamma:
        last_s_ +=
            Gamma(arrivals_rng_, 1.0 / (arrivals.variation * arrivals.variation)) / arrivals.rate;
        break;
      case ArrivalSpec::Kind::kConstant:
        last_s_ = static_cast<double>(index) / arrivals.rate;
        break;
      case ArrivalSpec::Kind::kBurst: {
        const int64_t bursts_before = index / arrivals.burst_size;
        last_s_ = static_cast<double>(bursts_before) * arrivals.burst_every_s;
        break;
      }
      case ArrivalSpec::Kind::kClosed:
        break;
    }
    next_arrival_s_ = last_s_;
  }

  [[nodiscard]] SimulatedRequest FirstTurn(int64_t unit, double arrival_s) const {
    const TrafficSpec& traffic = spec_.traffic;
    Rng rng(StreamOf(spec_.seed, kUnits, static_cast<uint64_t>(unit)));
    SimulatedRequest request;
    request.arrival_s = arrival_s;
    request.unit = unit;
    request.in_session = traffic.turns.Draw(rng) > 1;
    request.stream = StreamOf(spec_.seed, kTails, static_cast<uint64_t>(unit));
    const auto add = [&](uint64_t stream, int64_t begin, int64_t count) {
      request.parts.push_back(PromptPart{stream, begin, count});
      request.prompt_tokens += count;
    };
    if (traffic.prefix_tokens > 0 && rng.Chance(traffic.prefix_share)) {
      const uint64_t which = rng.Below(static_cast<uint64_t>(traffic.prefixes_count));
      add(StreamOf(spec_.seed, kPrefixes, which), 0, traffic.prefix_tokens);
    }
    for (int64_t i = 0; i < (traffic.documents_count > 0 ? traffic.documents_per_request : 0);
         ++i) {
      const uint64_t stream =
          StreamOf(spec_.seed, kDocuments, static_cast<uint64_t>(documents_.Draw(rng)));
      Rng of_document(stream);
      add(stream, 0, traffic.document.Draw(of_document));
    }
    add(request.stream, request.prompt_tokens, traffic.prompt.Draw(rng));
    request.output_tokens = traffic.output.Draw(rng);
    return request;
  }

  [[nodiscard]] SimulatedRequest NextTurn(const SimulatedRequest& before, double arrival_s) const {
    const auto turn = static_cast<uint64_t>(before.turn) + 1;
    Rng rng(
        CombineSeeds(StreamOf(spec_.seed, kSessions, static_cast<uint64_t>(before.unit)), turn));
    SimulatedRequest request = before;
    request.arrival_s = arrival_s;
    ++request.turn;
    // The answer and the new question go on in the conversation's own stream.
    const int64_t more = before.output_tokens + spec_.traffic.turn.Draw(rng);
    request.parts.back().count += more;
    request.prompt_tokens += more;
    request.output_tokens = spec_.traffic.output.Draw(rng);
    return request;
  }

  WorkloadSpec spec_;
  Rng arrivals_rng_;
  Zipf documents_;
  int64_t requests_count_ = 0;
  int64_t begun_ = 0;    ///< units whose first turn has been made
  int64_t arrived_ = 0;  ///< units whose arrival has been drawn
  double last_s_ = 0;
  double next_arrival_s_ = kNoArrival;
  DueQueue due_;
  int64_t order_ = 0;
};

class TraceWorkload final : public Workload {
 public:
  TraceWorkload(const Trace& trace, double speed, uint64_t seed)
      : requests_(trace.requests),
        speed_(speed),
        seed_(seed),
        next_turn_(trace.requests.size(), -1) {
    std::unordered_map<int64_t, int64_t> last_of_session;
    for (size_t i = 0; i < requests_.size(); ++i) {
      const int64_t session = requests_[i].session;
      const auto index = static_cast<int64_t>(i);
      if (session < 0) {
        firsts_.push_back(index);
        continue;
      }
      const auto [last, is_first] = last_of_session.try_emplace(session, index);
      if (is_first) {
        firsts_.push_back(index);
      } else {
        next_turn_[static_cast<size_t>(last->second)] = index;
        last->second = index;
      }
    }
  }

  [[nodiscard]] double NextArrival() const override {
    return std::min(NextFirst(), due_.empty() ? kNoArrival : due_.top().at_s);
  }

  SimulatedRequest Take() override {
    if (NextFirst() <= (due_.empty() ? kNoArrival : due_.top().at_s)) {
      const double arrival_s = NextFirst();
      return Make(firsts_[first_at_++], arrival_s);
    }
    return std::move(TakeDue(due_).request);
  }

  void Ended(const SimulatedRequest& request, double now_s, bool refused) override {
    const int64_t next = next_turn_[static_cast<size_t>(request.unit)];
    if (next < 0) return;
    if (refused) {
      // The conversation ends there.
      for (int64_t i = next; i >= 0; i = next_turn_[static_cast<size_t>(i)]) ++dropped_count_;
      return;
    }
    const TraceRequest& turn = requests_[static_cast<size_t>(next)];
    const double at_s =
        turn.think_s >= 0 ? now_s + turn.think_s : std::max(now_s, turn.arrival_s / speed_);
    SimulatedRequest made = Make(next, at_s);
    made.turn = request.turn + 1;
    due_.push(Due{at_s, order_++, std::move(made)});
  }

  [[nodiscard]] int64_t requests_count() const override {
    return static_cast<int64_t>(requests_.size()) - dropped_count_;
  }

 private:
  [[nodiscard]] double NextFirst() const {
    if (first_at_ == firsts_.size()) return kNoArrival;
    return requests_[static_cast<size_t>(firsts_[first_at_])].arrival_s / speed_;
  }

  [[nodiscard]] SimulatedRequest Make(int64_t index, double arrival_s) const {
    const TraceRequest& traced = requests_[static_cast<size_t>(index)];
    SimulatedRequest request;
    request.arrival_s = arrival_s;
    request.unit = index;
    request.in_session = traced.session >= 0;
    request.stream = traced.session >= 0
                         ? StreamOf(seed_, kSessions, static_cast<uint64_t>(traced.session))
                         : StreamOf(seed_, kTails, static_cast<uint64_t>(index));
    for (const uint64_t hash : traced.block_hashes) {
      const int64_t count =
          std::min(traced.hash_block_tokens, traced.prompt_tokens - request.prompt_tokens);
      if (count <= 0) break;
      request.parts.push_back(PromptPart{StreamOf(seed_, kBlocks, hash), 0, count});
      request.prompt_tokens += count;
    }
    const int64_t rest = traced.prompt_tokens - request.prompt_tokens;
    if (rest > 0) {
      request.parts.push_back(PromptPart{request.stream, request.prompt_tokens, rest});
      request.prompt_tokens += rest;
    }
    request.output_tokens = traced.output_tokens;
    return request;
  }

  std::vector<TraceRequest> requests_;
  double speed_;
  uint64_t seed_;
  std::vector<int64_t> next_turn_;  ///< of each request the next of its session, or -1
  std::vector<int64_t> firsts_;     ///< requests that wait for no other
  size_t first_at_ = 0;
  int64_t dropped_count_ = 0;
  DueQueue due_;
  int64_t order_ = 0;
};

Status Positive(const char* flag, int64_t value) {
  if (value > 0) return Status::Ok();
  return MakeError(ErrorCode::kInvalidArgument, "{}: expected more than 0, got {}", flag, value);
}

Status Within(const char* flag, double value, double least, double most) {
  // Written so that NaN fails.
  if (value >= least && value <= most) return Status::Ok();
  return MakeError(ErrorCode::kInvalidArgument, "{}: expected {:g} to {:g}, got {:g}", flag, least,
                   most, value);
}

/// Simulated time that a workload may take to come, thirty years: what comes after it would lie
/// beyond the clock's end.
constexpr double kSpanSecondsMax = 1e9;

Status CheckSpan(const char* flags, double seconds) {
  if (seconds <= kSpanSecondsMax) return Status::Ok();
  return MakeError(ErrorCode::kInvalidArgument,
                   "{}: expected requests that come within {:g} s, got {:g} s", flags,
                   kSpanSecondsMax, seconds);
}

/// Of turns as of lengths.
double MeanOf(const LengthSpec& length) {
  switch (length.kind) {
    case LengthSpec::Kind::kFixed:
    case LengthSpec::Kind::kUniform:
      return static_cast<double>(length.low + length.high) / 2;
    case LengthSpec::Kind::kLognormal:
      break;
  }
  return std::min(length.mean, static_cast<double>(length.high));
}

Status CheckArrivals(const WorkloadSpec& spec) {
  const ArrivalSpec& arrivals = spec.arrivals;
  const auto requests = static_cast<double>(spec.traffic.requests_count);
  switch (arrivals.kind) {
    case ArrivalSpec::Kind::kGamma:
      KVASIR_RETURN_IF_ERROR(Within("--variation", arrivals.variation, 0.01, 100));
      [[fallthrough]];
    case ArrivalSpec::Kind::kPoisson:
    case ArrivalSpec::Kind::kConstant:
      KVASIR_RETURN_IF_ERROR(Within("--rate", arrivals.rate, 1e-6, 1e9));
      return CheckSpan("--requests over --rate", requests / arrivals.rate);
    case ArrivalSpec::Kind::kBurst:
      KVASIR_RETURN_IF_ERROR(Positive("--burst-size", arrivals.burst_size));
      KVASIR_RETURN_IF_ERROR(Within("--burst-every", arrivals.burst_every_s, 1e-9, 1e8));
      return CheckSpan(
          "--requests over --burst-size, times --burst-every",
          requests / static_cast<double>(arrivals.burst_size) * arrivals.burst_every_s);
    case ArrivalSpec::Kind::kClosed:
      break;
  }
  KVASIR_RETURN_IF_ERROR(Positive("--users", arrivals.users));
  return CheckSpan("--requests over --users, times --think-time",
                   requests / static_cast<double>(arrivals.users) * spec.traffic.think_s);
}

}  // namespace

int64_t LengthSpec::Draw(Rng& rng) const {
  switch (kind) {
    case Kind::kFixed:
      return low;
    case Kind::kUniform:
      return rng.Between(low, high);
    case Kind::kLognormal:
      break;
  }
  const double mu = std::log(mean) - sigma * sigma / 2;
  const double drawn = std::round(std::exp(mu + sigma * Normal(rng)));
  return static_cast<int64_t>(
      std::clamp(drawn, static_cast<double>(low), static_cast<double>(high)));
}

Result<LengthSpec> ParseLength(std::string_view text) {
  if (const auto length = LengthOf(text)) return *length;
  return MakeError(ErrorCode::kInvalidArgument,
                   "expected a length such as 512, 100..900 or lognormal:MEAN,SIGMA[,MAX] with "
                   "whole numbers from 1 to {}, got '{}'",
                   kLongest, text);
}

std::string ToString(const LengthSpec& length) {
  switch (length.kind) {
    case LengthSpec::Kind::kFixed:
      return fmt::format("{}", length.low);
    case LengthSpec::Kind::kUniform:
      return fmt::format("{}..{}", length.low, length.high);
    case LengthSpec::Kind::kLognormal:
      break;
  }
  const std::string text = fmt::format("lognormal:{},{}", length.mean, length.sigma);
  return length.high == kLongest ? text : fmt::format("{},{}", text, length.high);
}

Status ValidateWorkload(const WorkloadSpec& spec) {
  const TrafficSpec& traffic = spec.traffic;
  KVASIR_RETURN_IF_ERROR(Positive("--requests", traffic.requests_count));
  KVASIR_RETURN_IF_ERROR(CheckArrivals(spec));
  KVASIR_RETURN_IF_ERROR(Positive("--prefixes", traffic.prefixes_count));
  KVASIR_RETURN_IF_ERROR(Within("--prefix-share", traffic.prefix_share, 0, 1));
  KVASIR_RETURN_IF_ERROR(Within("--prefix-tokens", static_cast<double>(traffic.prefix_tokens), 0,
                                static_cast<double>(kLongest)));
  if (traffic.documents_count > 0) {
    KVASIR_RETURN_IF_ERROR(Positive("--documents-per-request", traffic.documents_per_request));
    if (traffic.documents_per_request > traffic.documents_count) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "--documents-per-request: expected at most the {} of --documents, got {}",
                       traffic.documents_count, traffic.documents_per_request);
    }
  }
  const double turns = MeanOf(traffic.turns);
  const double turns_all = turns * static_cast<double>(traffic.requests_count);
  if (turns_all > static_cast<double>(kSimulatedRequestsMax)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--requests times --turns: expected at most {} requests in all, got {:g}",
                     kSimulatedRequestsMax, turns_all);
  }
  // All that was said before is sent with each turn.
  const double longest = turns * (MeanOf(traffic.turn) + MeanOf(traffic.output));
  if (turns > 1 && longest > static_cast<double>(kLongest)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--turns times --turn-tokens and --output-tokens: expected conversations of "
                     "at most {} tokens, got {:g}",
                     kLongest, longest);
  }
  return CheckSpan("--turns times --think-time", turns > 1 ? turns * traffic.think_s : 0);
}

std::unique_ptr<Workload> MakeWorkload(const WorkloadSpec& spec) {
  const Status valid = ValidateWorkload(spec);
  KVASIR_CHECK(valid.ok(), "{}", valid.error().message);
  return std::make_unique<SyntheticWorkload>(spec);
}

Result<std::unique_ptr<Workload>> MakeTraceWorkload(const Trace& trace, double speed,
                                                    uint64_t seed) {
  KVASIR_CHECK(speed > 0);
  if (trace.requests.empty()) {
    return MakeError(ErrorCode::kInvalidArgument, "{}: the trace has no requests", trace.source);
  }
  double last_s = 0;
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    const TraceRequest& request = trace.requests[i];
    const auto wrong = [&](const char* what, auto value) {
      return MakeError(ErrorCode::kInvalidArgument, "{}: request {}: {}, got {}", trace.source, i,
                       what, value);
    };
    if (request.prompt_tokens < 1 || request.prompt_tokens > kLongest) {
      return wrong("expected 1 to 2^30 prompt tokens", request.prompt_tokens);
    }
    if (request.output_tokens < 1 || request.output_tokens > kLongest) {
      return wrong("expected 1 to 2^30 output tokens", request.output_tokens);
    }
    if (!(request.arrival_s >= last_s)) {
      return wrong("expected an arrival at or after the one before", request.arrival_s);
    }
    if (!request.block_hashes.empty() && request.hash_block_tokens < 1) {
      return wrong("expected at least 1 token a hash", request.hash_block_tokens);
    }
    last_s = request.arrival_s;
  }
  return std::unique_ptr<Workload>(std::make_unique<TraceWorkload>(trace, speed, seed));
}

}  // namespace kvasir::plan
