#include "plan/search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <tuple>

#include "base/strings.h"
#include "plan/units.h"

namespace kvasir::plan {
namespace {

constexpr std::array<int64_t, 6> kStepTokens = {8192, 4096, 2048, 1024, 512, 256};

struct WeightChoice {
  std::string name;
  std::optional<NumberFormat> format;
};

std::vector<WeightChoice> WeightChoices(const Choices& choices) {
  if (choices.weights) return {{choices.weights->name, choices.weights}};
  std::vector<WeightChoice> out = {{"as shipped", std::nullopt}};
  for (const char* name : {"fp8", "int4-g128"}) {
    out.push_back({name, ParseWeightFormat(name).value()});
  }
  return out;
}

// The same bytes or more than as shipped are no choice.
bool IsSmaller(const ModelShape& model, const NumberFormat& format) {
  const WeightFormats formats = FormatsWith(model, format);
  int64_t shipped = 0;
  int64_t smaller = 0;
  for (size_t i = 0; i < kPartCount; ++i) {
    const auto part = static_cast<Part>(i);
    shipped += model.stored ? model.stored->part_bytes[i] : PartBytes(model, part, model.shipped);
    smaller += PartBytes(model, part, formats);
  }
  return smaller < shipped;
}

class Trial {
 public:
  Trial(const ModelShape& model, const Hardware& hardware, const Choices& choices, const Goal& goal)
      : model_(model), hardware_(hardware), choices_(choices), goal_(goal) {}

  // The best of all step sizes: the largest that satisfies, else the one that is nearest to it.
  [[nodiscard]] Candidate Run(const WeightChoice& weights) const {
    Candidate best;
    best.shortfall = std::numeric_limits<double>::infinity();
    const int64_t given[] = {choices_.step_tokens};
    const std::span<const int64_t> sizes =
        choices_.step_tokens > 0 ? std::span<const int64_t>(given) : kStepTokens;
    for (const int64_t step_tokens : sizes) {
      if (step_tokens <= choices_.users) break;
      Candidate candidate = TryStep(weights, step_tokens);
      if (candidate.failure.empty()) return candidate;
      if (candidate.shortfall < best.shortfall) best = std::move(candidate);
    }
    return best;
  }

 private:
  static void Miss(Candidate& candidate, double shortfall, std::string why) {
    if (candidate.failure.empty()) candidate.failure = std::move(why);
    candidate.shortfall += shortfall;
  }

  [[nodiscard]] Candidate TryStep(const WeightChoice& weights, int64_t step_tokens) const {
    Candidate out;
    out.hardware = hardware_.name;
    out.parallel = choices_.parallel;
    out.weights = weights.name;
    out.step_tokens = step_tokens;
    if (hardware_.price_per_hour)
      out.price_per_hour =
          *hardware_.price_per_hour * static_cast<double>(choices_.parallel.DevicesCount());
    const NumberFormat kv = choices_.kv.value_or(model_.kv_format);
    out.kv = kv.name;
    MemoryOptions options;
    options.as_shipped = !weights.format;
    options.weights = weights.format ? FormatsWith(model_, *weights.format) : model_.shipped;
    options.kv = kv;
    options.block_tokens = choices_.block_tokens;
    options.parallel = choices_.parallel;
    options.utilization = choices_.utilization;
    options.step_tokens = step_tokens;
    const MemoryPlan memory = PlanMemory(hardware_, model_, options);
    const int64_t context = choices_.context_tokens;
    const auto shared = std::min(
        context - 1, static_cast<int64_t>(static_cast<double>(context) * choices_.shared_prefix));
    out.users_paged = UsersPaged(memory, choices_.parallel.expert, context, shared);
    if (memory.left_bytes_per_device <= 0) {
      const auto bytes = static_cast<double>(memory.weights_bytes_per_device);
      const auto usable = static_cast<double>(memory.usable_bytes_per_device);
      const auto left = static_cast<double>(memory.left_bytes_per_device);
      // Far behind whatever fits.
      Miss(out, 1e6 * bytes / usable,
           fmt::format("weights of {} and {} beside them on a device do not fit into {}",
                       BytesText(bytes), BytesText(usable - left - bytes), BytesText(usable)));
      return out;
    }
    if (out.users_paged < choices_.users) {
      Miss(out,
           1e3 * static_cast<double>(choices_.users) / static_cast<double>(out.users_paged + 1),
           fmt::format("room for {} of {}", CountText(out.users_paged),
                       CountedText(choices_.users, "user")));
    }
    AddLatencies(options, shared, out);
    return out;
  }

  void AddLatencies(const MemoryOptions& options, int64_t shared, Candidate& out) const {
    const Roofline roofline(hardware_, model_,
                            {.weights = options.weights,
                             .kv = options.kv,
                             .parallel = choices_.parallel,
                             .bandwidth_share = choices_.bandwidth_share,
                             .compute_share = choices_.compute_share});
    const int64_t context = choices_.context_tokens;
    const DecodeSpeed decode = DecodeOf(roofline, choices_.parallel, choices_.users, context);
    out.decode_itl_s = decode.step.seconds;
    // The others go on decoding while a prompt is computed in what is left of each step.
    const PrefillSpeed prefill =
        PrefillOf(roofline, context - shared, shared, out.step_tokens, choices_.users - 1, context);
    out.ttft_s = prefill.seconds;
    out.itl_s =
        std::max(out.decode_itl_s, prefill.seconds / static_cast<double>(prefill.steps_count));
    // A step with a whole chunk is the longest.
    const int64_t chunk = std::min(out.step_tokens - choices_.users + 1, context - shared);
    const StepSequence sequences[] = {{1, context - 1, choices_.users - 1},
                                      {chunk, context - chunk}};
    const StepTime mixed = roofline.Step(sequences, choices_.users);
    out.itl_s = std::max(out.itl_s, mixed.seconds);
    if (goal_.itl_s && out.itl_s > *goal_.itl_s) {
      const bool alone = out.decode_itl_s > *goal_.itl_s;
      const StepTime& step = alone ? decode.step : mixed;
      Miss(out, out.itl_s / *goal_.itl_s,
           fmt::format("ITL {}{}: {}", SecondsText(alone ? out.decode_itl_s : out.itl_s),
                       alone ? " for decoding alone" : " beside a prompt", BoundName(step.bound)));
    }
    if (goal_.ttft_s && out.ttft_s > *goal_.ttft_s) {
      Miss(out, out.ttft_s / *goal_.ttft_s,
           fmt::format("TTFT {}: {}", SecondsText(out.ttft_s), BoundName(prefill.bound)));
    }
  }

  const ModelShape& model_;
  const Hardware& hardware_;
  const Choices& choices_;
  const Goal& goal_;
};

// Further behind than weights that do not fit.
Candidate CannotBeJoined(const Hardware& hardware, const Choices& choices,
                         const std::string& weights, const Error& error) {
  Candidate out;
  out.hardware = hardware.name;
  out.parallel = choices.parallel;
  out.weights = weights;
  out.failure = error.message;
  out.shortfall = std::numeric_limits<double>::max();
  return out;
}

bool Cheaper(const Candidate& a, const Candidate& b) {
  const auto key = [](const Candidate& c) {
    const double price = c.price_per_hour.value_or(std::numeric_limits<double>::infinity());
    // At one price: fewer devices, weights as shipped, the quicker one.
    return std::make_tuple(price, c.parallel.DevicesCount(), c.weights != "as shipped", c.itl_s);
  };
  return key(a) < key(b);
}

}  // namespace

Result<SearchResult> Search(const ModelShape& model, const std::vector<Hardware>& machines,
                            const Choices& choices, const Goal& goal) {
  if (choices.users < 1 || choices.users >= kStepTokens.front()) {
    return MakeParamError(ErrorCode::kInvalidArgument, "users",
                          "--users: expected 1 to {} with --max-ttft or --max-itl, got {}",
                          kStepTokens.front() - 1, choices.users);
  }
  if (choices.context_tokens < 1 || choices.context_tokens > model.max_positions) {
    return MakeParamError(ErrorCode::kInvalidArgument, "context",
                          "--context: expected 1 to {}, the positions of {}, got {}",
                          CountText(model.max_positions), model.name,
                          CountText(choices.context_tokens));
  }
  if (!choices.weights) KVASIR_RETURN_IF_ERROR(CheckShipped(model));
  if (choices.step_tokens > 0 && choices.step_tokens <= choices.users) {
    return MakeParamError(ErrorCode::kInvalidArgument, "max-num-batched-tokens",
                          "--max-num-batched-tokens: expected more than --users {}, a token each "
                          "and a prompt's, got {}",
                          choices.users, choices.step_tokens);
  }
  SearchResult result;
  for (const Hardware& hardware : machines) {
    std::optional<Candidate> nearest;
    bool satisfied = false;
    const int64_t least = goal.tensor_fixed ? choices.parallel.tensor : 1;
    const int64_t most = goal.tensor_fixed ? least : hardware.devices_linked;
    for (const WeightChoice& weights : WeightChoices(choices)) {
      if (weights.format && !choices.weights && !IsSmaller(model, *weights.format)) continue;
      for (int64_t tensor = least; tensor <= most; tensor *= 2) {
        Choices tried = choices;
        tried.parallel = Parallel{tensor, choices.parallel.pipeline, choices.parallel.expert};
        if (const Status status = CheckParallel(hardware, model, tried.parallel); !status.ok()) {
          if (!nearest) nearest = CannotBeJoined(hardware, tried, weights.name, status.error());
          continue;
        }
        Candidate candidate = Trial(model, hardware, tried, goal).Run(weights);
        if (candidate.failure.empty()) {
          satisfied = true;
          result.satisfying.push_back(std::move(candidate));
          break;  // more devices cost more
        }
        if (!nearest || candidate.shortfall < nearest->shortfall) nearest = std::move(candidate);
      }
    }
    if (!satisfied && nearest) result.failing.push_back(*std::move(nearest));
  }
  std::stable_sort(result.satisfying.begin(), result.satisfying.end(), Cheaper);
  std::stable_sort(
      result.failing.begin(), result.failing.end(),
      [](const Candidate& a, const Candidate& b) { return a.shortfall < b.shortfall; });
  return result;
}

}  // namespace kvasir::plan
