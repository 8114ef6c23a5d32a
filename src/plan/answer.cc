#include "plan/answer.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/strings.h"
#include "plan/units.h"
#include "runner/step_budget.h"

namespace kvasir::plan {
namespace {

constexpr int64_t kContextTokens = 8192;
constexpr int64_t kCardStepTokens = 2048;
constexpr int64_t kLogitsRows = 64;  // as the server's runner computes them
constexpr int64_t kDevicesMost = 1024;
constexpr double kPerMillion = 1e6;
constexpr double kSecondsPerHour = 3600.0;

Error BadChoice(const char* flag, const std::string& expected_and_came) {
  return MakeParamError(ErrorCode::kInvalidArgument, flag, "--{}: {}", flag, expected_and_came);
}

Status Check(const ModelShape& model, const Choices& choices) {
  const auto at_most = [&](const char* flag, int64_t tokens) -> Status {
    if (tokens <= model.max_positions) return Status::Ok();
    return BadChoice(flag, fmt::format("{} can stand at {} positions, got {}", model.name,
                                       CountText(model.max_positions), CountText(tokens)));
  };
  KVASIR_RETURN_IF_ERROR(at_most("context", choices.context_tokens));
  KVASIR_RETURN_IF_ERROR(at_most("max-model-len", choices.reserved_tokens));
  if (choices.reserved_tokens > 0 && choices.reserved_tokens < choices.context_tokens) {
    return BadChoice("max-model-len", fmt::format("expected at least --context {}, got {}",
                                                  choices.context_tokens, choices.reserved_tokens));
  }
  return Status::Ok();
}

Choices WorkOut(const ModelShape& model, const Hardware& hardware, const Choices& given) {
  Choices out = given;
  if (!out.kv) out.kv = model.kv_format;
  if (out.context_tokens == 0) {
    const int64_t most = out.reserved_tokens > 0 ? out.reserved_tokens : model.max_positions;
    out.context_tokens = std::min(kContextTokens, most);
  }
  if (out.reserved_tokens == 0) out.reserved_tokens = model.max_positions;
  if (out.step_tokens == 0) out.step_tokens = DefaultStepTokens(hardware, model);
  return out;
}

MemoryOptions OptionsOf(const ModelShape& model, const Choices& choices) {
  MemoryOptions options;
  options.as_shipped = !choices.weights;
  options.weights = choices.weights ? FormatsWith(model, *choices.weights) : model.shipped;
  options.kv = *choices.kv;
  options.block_tokens = choices.block_tokens;
  options.parallel = choices.parallel;
  options.utilization = choices.utilization;
  options.step_tokens = choices.step_tokens;
  options.logits_rows = choices.users > 0 ? std::min(kLogitsRows, choices.users) : kLogitsRows;
  return options;
}

int64_t SharedTokens(const Choices& choices) {
  const auto shared =
      static_cast<int64_t>(static_cast<double>(choices.context_tokens) * choices.shared_prefix);
  // The last token is always computed.
  return std::min(shared, choices.context_tokens - 1);
}

// The fewest devices with room for the users; of equally many the shorter pipeline.
std::optional<Parallel> FindServing(const Hardware& hardware, const ModelShape& model,
                                    const MemoryOptions& options, const Choices& choices,
                                    int64_t users) {
  std::optional<Parallel> best;
  for (int64_t tensor = 1; tensor <= hardware.devices_linked; ++tensor) {
    for (int64_t pipeline = 1; pipeline <= model.layers_count; ++pipeline) {
      const Parallel parallel{tensor, pipeline, 1};
      if (parallel.DevicesCount() > kDevicesMost) break;
      const bool fewer = !best || parallel.DevicesCount() < best->DevicesCount();
      const bool shorter = best && parallel.DevicesCount() == best->DevicesCount() &&
                           parallel.pipeline < best->pipeline;
      if (!fewer && !shorter) break;
      if (!CheckParallel(hardware, model, parallel).ok()) break;
      MemoryOptions tried = options;
      tried.parallel = parallel;
      const MemoryPlan plan = PlanMemory(hardware, model, tried);
      if (UsersPaged(plan, 1, choices.context_tokens, SharedTokens(choices)) >= users) {
        best = parallel;
        break;
      }
    }
  }
  return best;
}

std::vector<ContextRow> MakeRows(const Answer& answer) {
  const Choices& choices = answer.choices;
  std::set<int64_t> contexts = {choices.context_tokens, choices.reserved_tokens};
  for (int64_t context = 2048; context <= answer.model.max_positions && context <= 131072;
       context *= 4) {
    contexts.insert(context);
  }
  std::vector<ContextRow> rows;
  for (const int64_t context : contexts) {
    ContextRow row;
    row.context_tokens = context;
    row.growing_bytes = answer.kv_bytes_per_token_growing * context;
    row.sequence_bytes = SequenceBytes(answer.memory, context);
    row.users_paged =
        UsersPaged(answer.memory, choices.parallel.expert, context,
                   static_cast<int64_t>(static_cast<double>(context) * choices.shared_prefix));
    rows.push_back(row);
  }
  return rows;
}

void AddSpeed(Answer& answer) {
  const Choices& choices = answer.choices;
  const Roofline roofline(answer.hardware, answer.model,
                          {.weights = answer.options.weights,
                           .kv = answer.options.kv,
                           .parallel = choices.parallel,
                           .bandwidth_share = choices.bandwidth_share,
                           .compute_share = choices.compute_share});
  answer.rates = roofline.rates();
  answer.decode_one = DecodeOf(roofline, choices.parallel, 1, choices.context_tokens);
  answer.decode_many =
      DecodeOf(roofline, choices.parallel, answer.users_served, choices.context_tokens);
  const int64_t shared = SharedTokens(choices);
  answer.prefill = PrefillOf(roofline, choices.context_tokens - shared, shared, choices.step_tokens,
                             0, choices.context_tokens);
  if (!answer.hardware.price_per_hour) return;
  const double hourly =
      *answer.hardware.price_per_hour * static_cast<double>(choices.parallel.DevicesCount());
  const auto price = [&](double tokens_per_second) {
    return tokens_per_second > 0 ? hourly / kSecondsPerHour / tokens_per_second * kPerMillion : 0;
  };
  answer.output_price = price(answer.decode_many.tokens_per_second);
  // A pipeline computes as many prompts at once as it has stages.
  answer.prompt_price =
      price(answer.prefill.tokens_per_second * static_cast<double>(choices.parallel.pipeline));
}

}  // namespace

int64_t DefaultStepTokens(const Hardware& hardware, const ModelShape& shape) {
  if (hardware.kind == Hardware::Kind::kGpu) return kCardStepTokens;
  // The server gives each of its --max-num-seqs at least a token.
  constexpr int64_t kDefaultSeqs = 64;
  const int64_t values = shape.ActiveParametersCount() - shape.ParametersCount(Part::kNorms);
  return std::max(kDefaultSeqs, runner::DefaultStepTokens(
                                    values, hardware.kernels.empty() ? "avx2" : hardware.kernels,
                                    std::max<int64_t>(1, hardware.cores)));
}

DecodeSpeed DecodeOf(const Roofline& roofline, const Parallel& parallel, int64_t users,
                     int64_t context_tokens) {
  DecodeSpeed speed;
  speed.users = users;
  const int64_t batch = (users + parallel.pipeline - 1) / parallel.pipeline;
  const StepSequence sequences[] = {{1, std::max<int64_t>(0, context_tokens - 1), batch}};
  speed.step = roofline.Step(sequences, batch);
  speed.tokens_per_second = static_cast<double>(users) / speed.step.seconds;
  return speed;
}

PrefillSpeed PrefillOf(const Roofline& roofline, int64_t tokens, int64_t cached_tokens,
                       int64_t step_tokens, int64_t decoding, int64_t context_tokens) {
  KVASIR_CHECK(tokens > 0 && step_tokens > decoding);
  PrefillSpeed speed;
  speed.tokens = tokens;
  StepSequence sequences[] = {{1, std::max<int64_t>(0, context_tokens - 1), decoding}, {}};
  double most = 0;
  for (int64_t done = 0; done < tokens; ++speed.steps_count) {
    const int64_t chunk = std::min(step_tokens - decoding, tokens - done);
    sequences[1] = {chunk, cached_tokens + done};
    done += chunk;
    speed.last_step = roofline.Step(sequences, decoding + (done == tokens ? 1 : 0));
    if (speed.steps_count == 0) speed.first_step = speed.last_step;
    speed.seconds += speed.last_step.seconds;
    if (speed.last_step.seconds >= most) {
      most = speed.last_step.seconds;
      speed.bound = speed.last_step.bound;
    }
  }
  speed.tokens_per_second = static_cast<double>(tokens) / speed.seconds;
  return speed;
}

Result<Answer> MakeAnswer(const ModelShape& model, const Hardware& hardware,
                          const Choices& choices) {
  KVASIR_RETURN_IF_ERROR(Check(model, choices));
  if (!choices.weights) KVASIR_RETURN_IF_ERROR(CheckShipped(model));
  KVASIR_RETURN_IF_ERROR(CheckParallel(hardware, model, choices.parallel));
  Answer answer;
  answer.model = model;
  answer.hardware = hardware;
  answer.choices = WorkOut(model, hardware, choices);
  answer.options = OptionsOf(model, answer.choices);
  answer.memory = PlanMemory(hardware, model, answer.options);
  answer.kv_kinds = KvKinds(model, answer.options.kv);
  answer.kv_bytes_per_token = KvBytesPerToken(model, answer.options.kv);
  answer.kv_bytes_per_token_growing = KvBytesPerTokenGrowing(model, answer.options.kv);
  const int64_t replicas = choices.parallel.expert;
  const int64_t context = answer.choices.context_tokens;
  answer.shared_tokens = SharedTokens(answer.choices);
  answer.users_paged = UsersPaged(answer.memory, replicas, context, answer.shared_tokens);
  answer.users_reserved = UsersReserved(answer.memory, replicas, answer.choices.reserved_tokens);
  answer.users_reserved_whole =
      UsersReservedWhole(answer.memory, replicas, answer.choices.reserved_tokens);
  answer.devices_needed = DevicesForWeights(hardware, model, answer.options);
  answer.serving_users = std::max<int64_t>(1, choices.users);
  answer.serving =
      FindServing(hardware, model, answer.options, answer.choices, answer.serving_users);
  if (answer.choices.users == 0) answer.choices.users = std::min(answer.users_paged, kUsersMost);
  answer.users_served = std::min(answer.choices.users, answer.users_paged);
  answer.rows = MakeRows(answer);
  const MemoryPlan& memory = answer.memory;
  // Where nobody fits, the peak says what the users would take.
  const int64_t users = answer.fits() ? answer.users_served : answer.choices.users;
  const int64_t users_each = (users + replicas - 1) / replicas;
  const int64_t shared = SharedBytes(memory, answer.shared_tokens);
  const int64_t kv = users_each * (SequenceBytes(memory, context) - shared) + shared;
  const Parallel& parallel = choices.parallel;
  answer.peak_bytes_per_device = memory.weights_bytes_per_device +
                                 memory.activations_bytes_per_device +
                                 memory.workspace_bytes_per_device +
                                 kv * memory.kv_copies / parallel.tensor / parallel.pipeline;
  if (answer.fits()) AddSpeed(answer);
  return answer;
}

}  // namespace kvasir::plan
