#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "server/json_text.h"

namespace kvasir::server {
namespace {

constexpr size_t kEventsPerDrain = 128;

// Prompt positions with logprobs above which their text is made on a worker: some ten microseconds
// each would keep other connections waiting.
constexpr size_t kHeavyPromptTokens = 256;

constexpr std::string_view kDone = "data: [DONE]\n\n";

double Ms(TimeNs ns) { return static_cast<double>(ns) / 1e6; }

void AppendMs(std::string_view name, std::optional<TimeNs> ns, std::string& out) {
  if (ns) {
    fmt::format_to(std::back_inserter(out), "\"{}\":{:.3f}", name, Ms(*ns));
  } else {
    fmt::format_to(std::back_inserter(out), "\"{}\":null", name);
  }
}

void AppendRate(std::string_view name, int64_t tokens, std::optional<TimeNs> ns, std::string& out) {
  if (ns && *ns > 0 && tokens > 0) {
    fmt::format_to(std::back_inserter(out), "\"{}\":{:.3f}", name,
                   static_cast<double>(tokens) / ToSeconds(*ns));
  } else {
    fmt::format_to(std::back_inserter(out), "\"{}\":null", name);
  }
}

void KeepMax(std::optional<TimeNs>& kept, TimeNs ns) { kept = std::max(kept.value_or(0), ns); }

}  // namespace

void AppendUsage(const Context& context, const Usage& usage, bool stream, std::string& out) {
  fmt::format_to(std::back_inserter(out),
                 "\"usage\":{{\"prompt_tokens\":{},\"total_tokens\":{},\"completion_tokens\":{}",
                 usage.prompt_tokens, usage.prompt_tokens + usage.completion_tokens,
                 usage.completion_tokens);
  if (context.config.enable_prompt_tokens_details) {
    fmt::format_to(std::back_inserter(out), ",\"prompt_tokens_details\":{{\"cached_tokens\":{}}}",
                   usage.cached_tokens);
  } else if (!stream) {
    out += ",\"prompt_tokens_details\":null";
  }
  if (!stream) out += ",\"completion_tokens_details\":null";
  out += '}';
}

void AppendTimings(const Usage& usage, const Timings& timings, std::string& out) {
  out += "\"timings\":{";
  AppendMs("queue_ms", timings.queue_ns, out);
  out += ',';
  AppendMs("prefill_ms", timings.prefill_ns, out);
  out += ',';
  AppendMs("decode_ms", timings.decode_ns, out);
  out += ',';
  AppendMs("first_token_ms", timings.first_token_ns, out);
  out += ',';
  AppendMs("total_ms", timings.total_ns, out);
  out += ',';
  AppendRate("prefill_tokens_per_second", usage.prompt_tokens - usage.cached_tokens,
             timings.prefill_ns, out);
  out += ',';
  AppendRate("decode_tokens_per_second", usage.completion_tokens - 1, timings.decode_ns, out);
  out += '}';
}

void AppendTokenIds(std::span<const TokenId> ids, std::string& out) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    AppendInt(ids[i], out);
  }
  out += ']';
}

class Generation::Listener final : public RequestListener {
 public:
  Listener(std::shared_ptr<Generation> generation, size_t prompt)
      : generation_(std::move(generation)), prompt_(prompt) {}
  void OnEvent(TokenEvent event) override { generation_->OnEvent(prompt_, std::move(event)); }

 private:
  std::shared_ptr<Generation> generation_;
  size_t prompt_;
};

Generation::Generation(Context& context, std::shared_ptr<Exchange> exchange,
                       GenerationOptions options, std::vector<Prompt> prompts, std::string id,
                       std::unique_ptr<GenerationForm> form)
    : context_(context),
      exchange_(std::move(exchange)),
      options_(std::move(options)),
      prompts_(std::move(prompts)),
      id_(std::move(id)),
      form_(std::move(form)),
      prompt_logprobs_(prompts_.size()) {
  const auto n = static_cast<size_t>(options_.request.n);
  choices_.reserve(prompts_.size() * n);
  for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    usage_.prompt_tokens += static_cast<int64_t>(prompts_[prompt].ids.size());
    for (size_t i = 0; i < n; ++i) {
      ChoiceState& choice =
          choices_.emplace_back(*context_.model.tokenizer, prompts_[prompt].ids, options_.output);
      choice.index = prompt * n + i;
      choice.prompt = prompt;
    }
  }
  unfinished_count_ = choices_.size();
  heavy_ = options_.request.prompt_logprobs >= 0 &&
           static_cast<size_t>(usage_.prompt_tokens) > kHeavyPromptTokens;
}

GenerationView Generation::View() const {
  return GenerationView{context_,         options_, prompts_, id_, exchange_->arrived_unix_s,
                        prompt_logprobs_, usage_};
}

void Generation::Start() {
  const std::shared_ptr<Generation> self = shared_from_this();
  exchange_->SetCancel([self] { self->Close(true); });
  std::vector<engine::Engine::Submission> submissions;
  submissions.reserve(prompts_.size());
  for (size_t i = 0; i < prompts_.size(); ++i) {
    Request request = options_.request;
    request.prompt = prompts_[i].ids;
    request.max_tokens = prompts_[i].max_tokens;
    submissions.push_back({std::move(request), std::make_shared<Listener>(self, i)});
  }
  Result<std::vector<RequestId>> submitted = context_.engine.SubmitAll(std::move(submissions));
  if (!submitted.ok()) {
    Close(true);
    std::string out;
    Fail(FromError(submitted.error()), out);
    return;
  }
  if (options_.stream && context_.config.sse_ping_interval_ns > 0) {
    // Comments keep proxies patient, so the head cannot wait for the first token; errors after this
    // are events. No event is handled before `ready_`.
    stream_begun_ = true;
    exchange_->BeginEventStream();
  }
  const std::lock_guard lock(mutex_);
  request_ids_ = std::move(submitted).value();
  if (closed_) {  // the client has left meanwhile
    for (const RequestId id : request_ids_) context_.engine.Cancel(id);
    return;
  }
  ready_ = true;
  if (!events_.empty() && !closed_) Schedule();
}

// Engine thread.
void Generation::OnEvent(size_t prompt, TokenEvent event) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  events_.push_back(QueuedEvent{prompt, std::move(event)});
  if (ready_ && !scheduled_) Schedule();
}

// With the mutex held.
void Generation::Schedule() {
  if (heavy_) {
    context_.workers.Post([self = shared_from_this()] {
      try {
        self->Drain();
      } catch (const std::exception& exception) {
        self->exchange_->Break(exception);
      }
    });
  } else {
    // What it throws ends the connection.
    exchange_->Post([self = shared_from_this()] { self->Drain(); });
  }
  scheduled_ = true;
}

void Generation::Drain() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    // A few at a time: between them the connection can find that its client reads too slowly.
    const auto end =
        events_.begin() + static_cast<std::ptrdiff_t>(std::min(events_.size(), kEventsPerDrain));
    batch_.assign(std::make_move_iterator(events_.begin()), std::make_move_iterator(end));
    events_.erase(events_.begin(), end);
  }
  const TimeNs begin = context_.clock.Now();
  if (first_event_at_ == 0) first_event_at_ = begin;
  std::string out;
  for (QueuedEvent& queued : batch_) {
    if (!Handle(queued, out)) break;
  }
  const bool done = answered_;
  if (!done && unfinished_count_ == 0) {
    FinishAnswer(out);
  } else if (!done && !out.empty()) {
    exchange_->Write(std::move(out));
  }
  context_.metrics.token_events.Add(static_cast<int64_t>(batch_.size()));
  context_.metrics.token_overhead_ns.Add(context_.clock.Now() - begin);
  batch_.clear();
  Record();
  const std::lock_guard lock(mutex_);
  scheduled_ = false;
  if (!events_.empty() && !closed_) Schedule();
}

// False: the answer is over.
bool Generation::Handle(QueuedEvent& queued, std::string& out) {
  TokenEvent& event = queued.event;
  const auto n = static_cast<size_t>(options_.request.n);
  ChoiceState& choice = choices_[queued.prompt * n + static_cast<size_t>(event.index)];
  if (event.finish == FinishReason::kError || event.finish == FinishReason::kAbort) {
    if (choice.finish) return true;  // ended here by a stop string, and the engine in between
    Close(true);
    ApiError error;
    if (event.finish == FinishReason::kError) {
      error = FromError(event.error);
    } else {
      error = Draining();
      error.message = "The server shut down before the answer was complete.";
    }
    Fail(error, out);
    return false;
  }
  usage_.cached_tokens += event.cached_tokens;
  // A request's first event tells them; later ones hold zeros, or the same.
  KeepMax(queue_ns_, event.queue_ns);
  KeepMax(prefill_ns_, event.prefill_ns);
  if (!event.prompt_logprobs.empty()) {
    prompt_logprobs_[queued.prompt] = std::move(event.prompt_logprobs);
  }
  if (choice.finish) return true;
  if (!answer_begun_) BeginAnswer(out);

  OutputStep step = choice.output.Push(event);
  choice.text += step.text;
  if (event.token) {
    ++usage_.completion_tokens;
    if (!options_.stream || options_.return_token_ids) choice.token_ids.push_back(*event.token);
    if (event.logprobs && options_.logprobs >= 0) {
      choice.logprobs.push_back(*std::move(event.logprobs));
    }
  }
  if (step.finish) {
    choice.finish = std::move(step.finish);
    --unfinished_count_;
    if (step.stop_string) {
      context_.metrics.stop_string_finishes.Add();
      const std::lock_guard lock(mutex_);
      context_.engine.CancelChoice(request_ids_[queued.prompt], event.index);
    } else {
      KeepMax(decode_ns_, event.decode_ns);
    }
  }
  if (!options_.stream) return true;
  if (choice.text.empty() && !choice.finish && !options_.return_token_ids) return true;
  std::optional<Timings> timings;
  if (choice.finish && unfinished_count_ == 0 && options_.timings && !options_.include_usage) {
    timings = CurrentTimings();
  }
  form_->AppendChunk(View(), choice, timings ? &*timings : nullptr, out);
  choice.begun = true;
  choice.text.clear();
  choice.token_ids.clear();
  choice.logprobs.clear();
  return true;
}

void Generation::BeginAnswer(std::string& out) {
  answer_begun_ = true;
  if (!options_.stream) return;
  if (!stream_begun_) {
    stream_begun_ = true;
    exchange_->BeginEventStream();
  }
  form_->AppendBegin(View(), out);
}

void Generation::FinishAnswer(std::string& out) {
  answered_ = true;
  Record();
  Close(false);
  const Timings timings = CurrentTimings();
  const Timings* shown = options_.timings ? &timings : nullptr;
  if (!options_.stream) {
    exchange_->RespondJson(form_->Whole(View(), choices_, shown));
    return;
  }
  if (options_.include_usage) form_->AppendUsageChunk(View(), shown, out);
  out += kDone;
  exchange_->Write(std::move(out));
  exchange_->EndStream(false);
}

void Generation::Fail(const ApiError& error, std::string& out) {
  answered_ = true;
  Record();
  if (!stream_begun_) {
    exchange_->Fail(error);
    return;
  }
  context_.metrics.failed_streams.Add();
  out += StreamError(error);
  exchange_->Write(std::move(out));
  exchange_->EndStream(true);
}

void Generation::Close(bool cancel) {
  std::vector<RequestId> running;
  std::deque<QueuedEvent> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    if (cancel) running = request_ids_;
    dropped.swap(events_);
  }
  for (const RequestId id : running) context_.engine.Cancel(id);
}

void Generation::Record() {
  GenerationRecord record;
  record.prompt_tokens = usage_.prompt_tokens;
  record.cached_tokens = usage_.cached_tokens;
  record.completion_tokens = usage_.completion_tokens;
  if (first_event_at_ > 0) record.first_token_ns = first_event_at_ - exchange_->arrived_at;
  if (choices_.front().finish) record.finish_reason = choices_.front().finish->reason;
  exchange_->SetRecord(std::move(record));
}

Timings Generation::CurrentTimings() const {
  Timings timings;
  timings.queue_ns = queue_ns_;
  timings.prefill_ns = prefill_ns_;
  timings.decode_ns = decode_ns_;
  const TimeNs now = context_.clock.Now();
  timings.total_ns = now - exchange_->arrived_at;
  timings.first_token_ns = first_event_at_ - exchange_->arrived_at;
  if (!timings.decode_ns && first_event_at_ > 0) timings.decode_ns = now - first_event_at_;
  return timings;
}

}  // namespace kvasir::server
