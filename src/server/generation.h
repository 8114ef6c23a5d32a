// A request that generates, from its prompts to the end of its answer: submits them to the engine,
// takes the events, turns tokens into text, and hands both to the form of the API that asked.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/request.h"
#include "server/exchange.h"
#include "server/generation_options.h"
#include "server/output.h"

namespace kvasir::server {

struct Prompt {
  std::vector<TokenId> ids;
  std::string text;  ///< as given or rendered; empty where only ids were given
  int64_t max_tokens = 0;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

/// Of the slowest choice; nullopt: not known, as nothing was drawn or all ended by a stop string.
struct Timings {
  std::optional<TimeNs> queue_ns;
  std::optional<TimeNs> prefill_ns;
  std::optional<TimeNs> decode_ns;
  TimeNs first_token_ns = 0;  ///< arrival of the request to the first event
  TimeNs total_ns = 0;
};

/// A choice, and what has not been sent of it yet (streams), or all of it.
struct ChoiceState {
  ChoiceState(const text::Tokenizer& tokenizer, std::span<const TokenId> prompt_ids,
              const OutputOptions& options)
      : output(tokenizer, prompt_ids, options) {}

  size_t index = 0;   ///< in the answer
  size_t prompt = 0;  ///< which prompt it follows
  ChoiceOutput output;
  std::string text;
  std::vector<TokenId> token_ids;
  std::vector<TokenLogprobs> logprobs;
  std::optional<Finish> finish;
  bool begun = false;  ///< a chunk of it has been sent
};

/// What a form needs to know of the whole.
struct GenerationView {
  const Context& context;
  const GenerationOptions& options;
  std::span<const Prompt> prompts;
  std::string_view id;  ///< "chatcmpl-…"
  int64_t created_s = 0;
  /// By prompt, where asked; set with its first event. Position i+1 given 0..i.
  std::span<const std::vector<TokenLogprobs>> prompt_logprobs;
  Usage usage;  ///< so far
};

/// How an API writes what happened. One for each request; called by one thread at a time.
class GenerationForm {
 public:
  virtual ~GenerationForm() = default;
  /// Events before the first chunk of content (chat's role chunks).
  virtual void AppendBegin(const GenerationView& view, std::string& out) = 0;
  /// One event with what `choice` holds, which is then cleared by the caller.
  virtual void AppendChunk(const GenerationView& view, const ChoiceState& choice,
                           const Timings* timings, std::string& out) = 0;
  /// The usage event, where asked.
  virtual void AppendUsageChunk(const GenerationView& view, const Timings* timings,
                                std::string& out) = 0;
  /// The body of an answer that is not streamed.
  virtual std::string Whole(const GenerationView& view, std::span<const ChoiceState> choices,
                            const Timings* timings) = 0;
};

/// Appends `"usage":{…}`.
void AppendUsage(const Context& context, const Usage& usage, bool stream, std::string& out);
/// Appends `"timings":{…}`.
void AppendTimings(const Usage& usage, const Timings& timings, std::string& out);
/// Appends `[1,2,3]`.
void AppendTokenIds(std::span<const TokenId> ids, std::string& out);

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  /// `id`: the response's. Prompts are not empty.
  Generation(Context& context, std::shared_ptr<Exchange> exchange, GenerationOptions options,
             std::vector<Prompt> prompts, std::string id, std::unique_ptr<GenerationForm> form);

  /// Submits everything, or answers with the error.
  void Start();

 private:
  class Listener;
  struct QueuedEvent {
    size_t prompt;
    TokenEvent event;
  };

  void OnEvent(size_t prompt, TokenEvent event);
  void Schedule();
  void Drain();
  bool Handle(QueuedEvent& queued, std::string& out);
  void BeginAnswer(std::string& out);
  void FinishAnswer(std::string& out);
  void Fail(const ApiError& error, std::string& out);
  /// Takes no more events and cancels what runs. From any thread.
  void Close(bool cancel);
  void Record();
  [[nodiscard]] Timings CurrentTimings() const;
  [[nodiscard]] GenerationView View() const;

  Context& context_;
  std::shared_ptr<Exchange> exchange_;
  GenerationOptions options_;
  std::vector<Prompt> prompts_;
  std::string id_;
  std::unique_ptr<GenerationForm> form_;

  std::mutex mutex_;
  // Under the mutex:
  std::vector<RequestId> request_ids_;
  std::deque<QueuedEvent> events_;
  bool ready_ = false;      ///< all are submitted: events may be handled
  bool scheduled_ = false;  ///< Drain runs or is about to
  bool closed_ = false;

  // Drain's thread alone, one at a time:
  bool heavy_ = false;  ///< long work a batch: on the workers rather than the event loop
  std::vector<ChoiceState> choices_;
  std::vector<std::vector<TokenLogprobs>> prompt_logprobs_;
  Usage usage_;
  size_t unfinished_count_ = 0;
  bool stream_begun_ = false;
  bool answer_begun_ = false;
  bool answered_ = false;
  TimeNs first_event_at_ = 0;
  std::optional<TimeNs> queue_ns_;
  std::optional<TimeNs> prefill_ns_;
  std::optional<TimeNs> decode_ns_;
  std::vector<QueuedEvent> batch_;
};

}  // namespace kvasir::server
