// What `kvasir plan` answers: memory, users, speed and cost of a model on a machine.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/hardware.h"
#include "plan/memory.h"
#include "plan/model_shape.h"
#include "plan/roofline.h"

namespace kvasir::plan {

/// What a user chooses. 0 or none: worked out, as MakeAnswer says.
struct Choices {
  std::optional<NumberFormat> weights;  ///< none: as shipped
  std::optional<NumberFormat> kv;       ///< none: what the server would take
  int64_t context_tokens = 0;           ///< prompt and output of a user; 0: 8k, or the model's most
  int64_t reserved_tokens = 0;          ///< that a reservation is for; 0: the model's most
  int64_t users = 0;                    ///< 0: as many as fit, at most kUsersMost
  int64_t block_tokens = 16;
  Parallel parallel;
  double utilization = 0.95;   ///< of a device's memory
  double shared_prefix = 0.0;  ///< share of a user's context that all have in common
  int64_t step_tokens = 0;     ///< 0: 2,048 on cards; on CPUs what the server takes
  double bandwidth_share = 1.0;
  double compute_share = 1.0;
};
inline constexpr int64_t kUsersMost = 256;

struct DecodeSpeed {
  int64_t users = 0;
  StepTime step;                 ///< of one stage's batch; its seconds are a user's time per token
  double tokens_per_second = 0;  ///< of all users
};

struct PrefillSpeed {
  int64_t tokens = 0;  ///< computed; what is shared lies in the cache
  int64_t steps_count = 0;
  double seconds = 0;
  double tokens_per_second = 0;
  Bound bound = Bound::kCompute;
  StepTime first_step;
  StepTime last_step;
};

struct ContextRow {
  int64_t context_tokens = 0;
  int64_t growing_bytes = 0;   ///< of the layers that keep every token
  int64_t sequence_bytes = 0;  ///< what one user takes, in whole blocks
  int64_t users_paged = 0;
};

struct Answer {
  ModelShape model;
  Hardware hardware;
  Choices choices;  ///< all worked out
  MemoryOptions options;
  MemoryPlan memory;
  std::vector<KvKind> kv_kinds;
  int64_t kv_bytes_per_token = 0;
  int64_t kv_bytes_per_token_growing = 0;
  int64_t shared_tokens = 0;  ///< of a user's context, that all have in common
  int64_t users_paged = 0;
  int64_t users_reserved = 0;        ///< windows' blocks beyond the window not counted
  int64_t users_reserved_whole = 0;  ///< as Kvasir's own --kv-allocation reserved, which keeps them
  int64_t devices_needed = 0;        ///< that hold the weights
  /// That serve choices.users (one, where none were asked for), and how they are joined; none where
  /// no number up to 1,024 does.
  std::optional<Parallel> serving;
  int64_t serving_users = 1;
  /// That speed, price and peak are for: choices.users, or as many of them as fit; 0: none does.
  int64_t users_served = 0;
  /// One user at least. Where none does, there is no speed and no price.
  [[nodiscard]] bool fits() const { return users_paged > 0; }
  std::vector<ContextRow> rows;
  /// Memory of one device with the users at their longest: what the server's peak will be.
  int64_t peak_bytes_per_device = 0;
  StepRates rates;  ///< that the speeds are worked out with
  DecodeSpeed decode_one;
  DecodeSpeed decode_many;
  PrefillSpeed prefill;
  /// US dollars a million tokens at decode_many and prefill; none: no price or nobody fits.
  std::optional<double> output_price;
  std::optional<double> prompt_price;
};

/// Tokens that a step computes at most where nobody says: on CPUs by the server's own rule.
[[nodiscard]] int64_t DefaultStepTokens(const Hardware& hardware, const ModelShape& shape);

/// Errors name the flag that holds what cannot be.
[[nodiscard]] Result<Answer> MakeAnswer(const ModelShape& model, const Hardware& hardware,
                                        const Choices& choices);

/// Of one decode step with `users` at `context_tokens`, spread over the stages of a pipeline.
[[nodiscard]] DecodeSpeed DecodeOf(const Roofline& roofline, const Parallel& parallel,
                                   int64_t users, int64_t context_tokens);
/// Of one prompt of `tokens` behind `cached_tokens`, in steps of `step_tokens`, beside `decoding`
/// users at `context_tokens` who take their tokens in each step.
[[nodiscard]] PrefillSpeed PrefillOf(const Roofline& roofline, int64_t tokens,
                                     int64_t cached_tokens, int64_t step_tokens, int64_t decoding,
                                     int64_t context_tokens);

/// For people, for programs, and each formula with its numbers put in.
[[nodiscard]] std::string ToTable(const Answer& answer);
[[nodiscard]] nlohmann::ordered_json ToJson(const Answer& answer);
[[nodiscard]] std::string Explain(const Answer& answer);

}  // namespace kvasir::plan
