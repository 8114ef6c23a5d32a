#include "app/generate.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <utility>

#include "server/server.h"
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
  SamplingParams& sampling = request.sampling;
  sampling.temperature = static_cast<float>(
      flags.temperature >= 0 ? flags.temperature : defaults.temperature.value_or(1.0));
  sampling.top_p =
      static_cast<float>(flags.top_p >= 0 ? flags.top_p : defaults.top_p.value_or(1.0));
  sampling.top_k =
      static_cast<int32_t>(flags.top_k >= 0 ? flags.top_k : defaults.top_k.value_or(0));
  sampling.min_p = static_cast<float>(defaults.min_p.value_or(0.0));
  sampling.repetition_penalty = static_cast<float>(defaults.repetition_penalty.value_or(1.0));
  sampling.stop_token_ids = loaded.tokenizer->end_of_generation_ids();
  sampling.seed = flags.seed != 0 ? flags.seed : std::random_device()();
  return request;
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
  for (;;) {
    std::optional<TokenEvent> event = events->Take(std::chrono::milliseconds(50));
    if (stop.load()) {
      loaded.engine->Cancel(id);
      outcome.interrupted = true;
      break;
    }
    if (!event) continue;
    outcome.cached_tokens += event->cached_tokens;
    if (event->token) {
      ++outcome.output_tokens;
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
  command
      .add_option("--temperature", flags.temperature,
                  "0: always the most likely token; default: the model's, else 1")
      ->check(CLI::Range(0.0, 2.0))
      ->group(group);
  command.add_option("--top-p", flags.top_p, "Share of probability to draw from, 0 to 1")
      ->check(CLI::Range(0.0, 1.0))
      ->group(group);
  command.add_option("--top-k", flags.top_k, "Tokens to draw from; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  command.add_option("--seed", flags.seed, "Seed of the draws; 0: a new one each time")
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
