// Who comes when and with how many tokens. The same seed gives the same requests, whatever the
// server does with them: only the moments of those that wait for an answer depend on it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <queue>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "plan/simulate/token_stream.h"
#include "plan/simulate/trace.h"

namespace kvasir::plan {

/// How many tokens (or turns).
struct LengthSpec {
  enum class Kind : uint8_t { kFixed, kUniform, kLognormal };
  Kind kind = Kind::kFixed;
  int64_t low = 1;   ///< the fixed length, or the least
  int64_t high = 1;  ///< the greatest
  double mean = 1;   ///< kLognormal, before the bounds
  double sigma = 0;  ///< kLognormal: standard deviation of the logarithm

  [[nodiscard]] int64_t Draw(Rng& rng) const;
};

/// "512", "100..900" or "lognormal:MEAN,SIGMA" with ",MAX" behind it where a bound is wanted.
[[nodiscard]] Result<LengthSpec> ParseLength(std::string_view text);
[[nodiscard]] std::string ToString(const LengthSpec& length);

struct ArrivalSpec {
  enum class Kind : uint8_t {
    kPoisson,   ///< independent of each other, `rate` a second
    kGamma,     ///< the same with gaps of another coefficient of variation
    kConstant,  ///< at equal distances
    kBurst,     ///< `burst_size` at once, every `burst_every_s`
    kClosed,    ///< `users`, each of whom waits for the answer, thinks, and asks again
  };
  Kind kind = Kind::kPoisson;
  double rate = 1;       ///< requests (or conversations) a second
  double variation = 1;  ///< kGamma: standard deviation of a gap over its mean; 1 is Poisson
  int64_t burst_size = 32;
  double burst_every_s = 10;
  int64_t users = 1;
};

/// All but the moments.
struct TrafficSpec {
  int64_t requests_count = 1000;               ///< conversations, where there are turns
  LengthSpec prompt{.low = 512, .high = 512};  ///< of it what is like no other's
  LengthSpec output{.low = 128, .high = 128};

  // A system prompt or the like, in front of everything.
  double prefix_share = 1;  ///< of requests that begin with one
  int64_t prefix_tokens = 0;
  int64_t prefixes_count = 1;  ///< different ones

  // Documents behind it, drawn from a library; the first is wanted most (1 / rank).
  int64_t documents_count = 0;  ///< 0: none
  int64_t documents_per_request = 3;
  LengthSpec document{.low = 1000, .high = 1000};

  // Conversations: each turn sends all that was said before.
  LengthSpec turns;
  LengthSpec turn{.low = 100, .high = 100};  ///< new tokens of each turn but the first
  double think_s = 0;  ///< from an answer to the next turn, or to the user's next request
};

struct WorkloadSpec {
  ArrivalSpec arrivals;
  TrafficSpec traffic;
  uint64_t seed = 0;
};

/// Requests, with all turns, at most: a simulation keeps some hundred bytes of each.
inline constexpr int64_t kSimulatedRequestsMax = 100'000'000;

/// Names the flag that is wrong.
[[nodiscard]] Status ValidateWorkload(const WorkloadSpec& spec);

/// One request as the simulator takes it: a recipe of a prompt.
struct SimulatedRequest {
  double arrival_s = 0;
  int64_t unit = 0;  ///< conversation, or request where there are no turns
  int32_t turn = 0;
  bool in_session = false;
  std::vector<PromptPart> parts;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 1;
  uint64_t stream = 0;  ///< the answer's token at position p of the sequence is its token there
};

inline constexpr double kNoArrival = std::numeric_limits<double>::infinity();

/// Yields requests in the order of their arrival.
class Workload {
 public:
  virtual ~Workload() = default;
  /// When the next one comes; kNoArrival where none comes unless another ends.
  [[nodiscard]] virtual double NextArrival() const = 0;
  /// Takes the next one. There must be one.
  virtual SimulatedRequest Take() = 0;
  /// The request has ended: its user may go on. Refused ones end too.
  virtual void Ended(const SimulatedRequest& request, double now_s, bool refused) = 0;
  /// That will be taken in all.
  [[nodiscard]] virtual int64_t requests_count() const = 0;
};

/// `spec` has passed ValidateWorkload.
[[nodiscard]] std::unique_ptr<Workload> MakeWorkload(const WorkloadSpec& spec);

/// Requests of a trace, `speed` times as fast. Errors name the request that is wrong.
[[nodiscard]] Result<std::unique_ptr<Workload>> MakeTraceWorkload(const Trace& trace, double speed,
                                                                  uint64_t seed);

}  // namespace kvasir::plan
