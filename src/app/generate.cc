#include "app/generate.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <utility>

#include "base/log.h"
#include "server/sampling_values.h"
#include "text/detokenizer.h"

namespace kvasir::app {
namespace {

// Hands events from the engine thread to the waiting one.
class EventQueue final : public RequestListener {
 public:
  void OnEvent(TokenEvent event) override {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    arrived_.notify_one();
  }

  // The next event; nothing where none came within `timeout`.
  std::optional<TokenEvent> Take(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, timeout, [this] { return !events_.empty(); })) return std::nullopt;
    TokenEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<TokenEvent> events_;
};

Result<Request> MakeRequest(const LoadedEngine& loaded, std::vector<TokenId> prompt,
                            const SamplingFlags& flags) {
  const auto room = loaded.engine->config().max_model_len - static_cast<int64_t>(prompt.size());
  if (room < 1) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "the prompt has {} tokens, but the context holds {}", prompt.size(),
                     loaded.engine->config().max_model_len);
  }
  KVASIR_ASSIGN_OR_RETURN(const server::GenerationDefaults defaults,
                          server::ReadGenerationDefaults(loaded.files->generation_config, nullptr));
  Request request;
  request.prompt = std::move(prompt);
  request.n = 1;
  request.max_tokens = flags.max_tokens > 0 ? std::min(flags.max_tokens, room) : room;
  if (flags.max_tokens > room) {
    LogWarning(
        "--max-tokens {} is shortened to {}: a context of {} tokens holds no more after a prompt "
        "of {}",
        flags.max_tokens, room, loaded.engine->config().max_model_len, request.prompt.size());
  }
  SamplingParams& sampling = request.sampling;
  server::SetFilters(flags.asked, defaults, loaded.model->spec().vocab_size, sampling);
  sampling.stop_token_ids = loaded.tokenizer->end_of_generation_ids();
  sampling.seed = flags.seed != -1 ? static_cast<uint64_t>(flags.seed) : std::random_device()();
  return request;
}

// The same ranges as in requests to a server.
CLI::Validator In(const server::NumberRange& range) {
  return CLI::Validator(
      [range](const std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && range.holds(value)) return "";
        return fmt::format("must be {}, got {}", range.text, text);
      },
      "");
}

}  // namespace

Result<GenerateOutcome> Generate(LoadedEngine& loaded, std::vector<TokenId> prompt,
                                 const SamplingFlags& flags, const std::atomic<bool>& stop,
                                 const std::function<void(std::string_view)>& show) {
  GenerateOutcome outcome;
  outcome.prompt_tokens = static_cast<int64_t>(prompt.size());
  text::Detokenizer detokenizer(*loaded.tokenizer, prompt, true);
  KVASIR_ASSIGN_OR_RETURN(Request request, MakeRequest(loaded, std::move(prompt), flags));
  const auto events = std::make_shared<EventQueue>();
  KVASIR_ASSIGN_OR_RETURN(const RequestId id, loaded.engine->Submit(std::move(request), events));
  const auto emit = [&](const std::string& piece) {
    if (piece.empty()) return;
    outcome.text += piece;
    show(piece);
  };
  // An interrupted request has no last event that tells its times.
  const auto began = std::chrono::steady_clock::now();
  auto first_at = began;
  auto last_at = began;
  const auto seconds = [](auto from, auto to) {
    return std::chrono::duration<double>(to - from).count();
  };
  for (;;) {
    std::optional<TokenEvent> event = events->Take(std::chrono::milliseconds(50));
    if (stop.load()) {
      loaded.engine->Cancel(id);
      outcome.interrupted = true;
      outcome.prefill_s = seconds(began, first_at);
      outcome.decode_s = seconds(first_at, last_at);
      break;
    }
    if (!event) continue;
    outcome.cached_tokens += event->cached_tokens;
    if (event->token) {
      last_at = std::chrono::steady_clock::now();
      if (outcome.output_tokens++ == 0) first_at = last_at;
      if (event->stop_token != event->token) emit(detokenizer.Push(*event->token));
    }
    if (event->finish == FinishReason::kError) return event->error;
    if (event->finish != FinishReason::kNone) {
      outcome.prefill_s = ToSeconds(event->prefill_ns);
      outcome.decode_s = ToSeconds(event->decode_ns);
      break;
    }
  }
  emit(detokenizer.Flush());
  return outcome;
}

std::string DescribeSpeed(const GenerateOutcome& outcome) {
  const double speed = outcome.decode_s > 0 && outcome.output_tokens > 1
                           ? static_cast<double>(outcome.output_tokens - 1) / outcome.decode_s
                           : 0.0;
  return fmt::format("prompt {} tokens ({} cached) in {:.2f} s, {} tokens at {:.1f} tokens/s",
                     outcome.prompt_tokens, outcome.cached_tokens, outcome.prefill_s,
                     outcome.output_tokens, speed);
}

void AddSamplingFlags(CLI::App& command, SamplingFlags& flags) {
  const std::string group = "Sampling";
  server::GenerationDefaults& asked = flags.asked;
  command
      .add_option("--temperature", asked.temperature,
                  "0: always the most likely token; up to 2; default: the model's, else 1")
      ->check(In(server::kTemperatureRange))
      ->group(group);
  command
      .add_option("--top-p", asked.top_p,
                  "Share of probability to draw from, above 0, up to 1; default: the model's")
      ->check(In(server::kTopPRange))
      ->group(group);
  command.add_option("--top-k", asked.top_k, "Tokens to draw from; 0: all; default: the model's")
      ->check(In(server::kTopKRange))
      ->group(group);
  command
      .add_option("--min-p", asked.min_p,
                  "Share of the likeliest token's probability that others need, 0 to 1; default: "
                  "the model's")
      ->check(In(server::kMinPRange))
      ->group(group);
  command
      .add_option("--repetition-penalty", asked.repetition_penalty,
                  "Divides logits of tokens seen before, 0.01 to 100; default: the model's")
      ->check(In(server::kRepetitionPenaltyRange))
      ->group(group);
  command.add_option("--seed", flags.seed, "Seed of the draws; -1: a new one each time")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-tokens", flags.max_tokens,
                  "Tokens to generate at most; 0: as many as the context holds")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
}

}  // namespace kvasir::app
