#include "engine/engine_core.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/rng.h"
#include "cache/capacity.h"
#include "engine/observe.h"

namespace kvasir::engine {

namespace {

/// A bound for n where the caller has none of its own.
constexpr int32_t kChoicesMax = 4096;

schedule::SchedulerConfig SchedulerConfigOf(const EngineConfig& config) {
  return schedule::SchedulerConfig{
      .max_num_seqs = config.max_num_seqs,
      .max_num_batched_tokens = config.max_num_batched_tokens,
      .max_model_len = config.max_model_len,
      .reserved_allocation = config.kv_allocation == KvAllocation::kReserved,
      .static_batching = config.batching == Batching::kStatic,
      .chunked_prefill = config.enable_chunked_prefill,
  };
}

cache::CacheOptions CacheOptionsOf(const EngineConfig& config, const HashOptions& hashing) {
  return cache::CacheOptions{
      .prefix_caching = config.enable_prefix_caching,
      .keep_behind_window = config.kv_allocation == KvAllocation::kReserved,
      .hash_seed = hashing.seed,
      .hash = hashing.hash,
  };
}

/// The seed of a choice's stream. Choice 0 draws as a request with n = 1 does.
uint64_t ChoiceSeed(uint64_t seed, int32_t choice) {
  return choice == 0 ? seed : CombineSeeds(seed, static_cast<uint64_t>(choice));
}

std::unique_ptr<ChoiceSequence> MakeFork(const ChoiceSequence& lead, int32_t choice) {
  auto child = std::make_unique<ChoiceSequence>();
  child->rank = lead.rank;
  child->rank.choice = choice;
  child->prompt_count = lead.prompt_count;
  child->salt = lead.salt;
  child->tokens = lead.tokens;
  child->request = lead.request;
  child->choice = choice;
  return child;
}

void SetBeginTimes(const RequestState& request, TimeNs now, TokenEvent& event) {
  if (request.first_scheduled == kNotYet) {
    event.queue_ns = now - request.arrival;
    return;
  }
  event.queue_ns = request.first_scheduled - request.arrival;
  event.prefill_ns = (request.prompt_done ? request.first_token : now) - request.first_scheduled;
}

void MarkFinished(const RequestState& request, int32_t choice, FinishReason reason, TimeNs now,
                  TokenEvent& event) {
  event.finish = reason;
  SetBeginTimes(request, now, event);
  if (request.prompt_done && request.choices[static_cast<size_t>(choice)].output_count > 0) {
    event.decode_ns = request.choices[static_cast<size_t>(choice)].last_token - request.first_token;
  }
}

}  // namespace

EngineCore::EngineCore(const EngineConfig& config, std::unique_ptr<Runner> runner,
                       const Clock* clock, const HashOptions& hashing)
    : config_(config),
      runner_(std::move(runner)),
      clock_(clock),
      clock_seen_(clock->Now()),
      metrics_(config.max_model_len),
      cache_(config.cache, CacheOptionsOf(config, hashing)),
      scheduler_(SchedulerConfigOf(config), &cache_) {
  const Status valid = ValidateEngineConfig(config);
  KVASIR_CHECK(valid.ok(), "{}", valid.error().message);
  UpdateGauges();
}

TimeNs EngineCore::Now() {
  const TimeNs seen = clock_->Now();
  if (seen < clock_seen_) clock_shift_ += clock_seen_ - seen;
  clock_seen_ = seen;
  return seen + clock_shift_;
}

Status EngineCore::Check(const Request& request) const {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) {
    return MakeParamError(ErrorCode::kInvalidArgument, "prompt",
                          "the prompt must have at least one token");
  }
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= config_.vocab_size) {
      return MakeParamError(ErrorCode::kInvalidArgument, "prompt",
                            "token id {} is outside of the vocabulary (0 to {})", token,
                            config_.vocab_size - 1);
    }
  }
  if (request.n < 1 || request.n > kChoicesMax) {
    return MakeParamError(ErrorCode::kInvalidArgument, "n", "n must be between 1 and {}, got {}",
                          kChoicesMax, request.n);
  }
  if (request.max_tokens < 0) {
    return MakeParamError(ErrorCode::kInvalidArgument, "max_tokens",
                          "max_tokens must be at least 0, got {}", request.max_tokens);
  }
  if (prompt > config_.max_model_len || request.max_tokens > config_.max_model_len - prompt) {
    return MakeParamError(
        ErrorCode::kInvalidArgument, prompt > config_.max_model_len ? "prompt" : "max_tokens",
        "the model's context is {} tokens, but the request asks for {} in the prompt and {} to "
        "generate",
        config_.max_model_len, prompt, request.max_tokens);
  }
  // The last token drawn is never computed. Each choice is a sequence of its own, which can wait
  // and be computed again by itself, so one choice at a time must fit, whatever n is.
  const int64_t positions = std::max(prompt, prompt + request.max_tokens - 1);
  int64_t needed = 0;
  if (config_.kv_allocation == KvAllocation::kReserved) {
    needed = cache::BlocksFor(config_.max_model_len, config_.cache.block_tokens) *
             static_cast<int64_t>(config_.cache.groups.size());
  } else {
    needed =
        cache::PeakBlocks(config_.cache, positions, config_.enable_chunked_prefill ? 1 : positions);
  }
  if (needed > config_.cache.blocks_count) {
    return MakeParamError(
        ErrorCode::kInvalidArgument, "prompt",
        "the request can never fit: {} tokens ({} in the prompt and {} to generate) need {} KV "
        "blocks of {} tokens, and the cache has {}",
        prompt + request.max_tokens, prompt, request.max_tokens, needed, config_.cache.block_tokens,
        config_.cache.blocks_count);
  }
  return Status::Ok();
}

Status EngineCore::EnterQueue(int64_t prompt_tokens, int64_t requests_count) {
  // Callers are serialized by the inbox's lock, and the engine thread only takes away: the bounds
  // can be missed on the safe side alone.
  const int64_t count = queued_count_.load(std::memory_order_relaxed);
  const int64_t tokens = queued_tokens_.load(std::memory_order_relaxed);
  if (count > 0 && count + requests_count > config_.max_num_queued_reqs) {
    metrics_.rejected_queue_full.Add();
    return MakeError(ErrorCode::kResourceExhausted,
                     "the queue is full: {} requests wait (limit {}); try again later", count,
                     config_.max_num_queued_reqs);
  }
  if (count > 0 && tokens + prompt_tokens > config_.max_num_queued_tokens) {
    metrics_.rejected_queue_full.Add();
    return MakeError(ErrorCode::kResourceExhausted,
                     "the queue is full: prompts of {} tokens wait and this one has {} (limit {}); "
                     "try again later",
                     tokens, prompt_tokens, config_.max_num_queued_tokens);
  }
  queued_count_.fetch_add(requests_count, std::memory_order_relaxed);
  queued_tokens_.fetch_add(prompt_tokens, std::memory_order_relaxed);
  requests_count_.fetch_add(requests_count, std::memory_order_acq_rel);
  return Status::Ok();
}

void EngineCore::Enqueue(RequestId id, Request request,
                         const std::shared_ptr<RequestListener>& listener, TimeNs arrival) {
  const int32_t n = request.n;
  const auto prompt_count = static_cast<int64_t>(request.prompt.size());
  try {
    TakeIn(id, std::move(request), listener, arrival);
  } catch (const std::exception& exception) {
    requests_.erase(id);
    RefuseArrival(*listener, n, prompt_count, exception.what());
  }
}

void EngineCore::TakeIn(RequestId id, Request request, std::shared_ptr<RequestListener> listener,
                        TimeNs arrival) {
  auto state = std::make_unique<RequestState>();
  state->id = id;
  state->request = std::move(request);
  state->listener = std::move(listener);
  // Taken from the clock by another thread, perhaps before the clock went back.
  state->arrival = std::min(arrival + clock_shift_, Now());
  state->stop_tokens = state->request.sampling.stop_token_ids;
  std::ranges::sort(state->stop_tokens);
  state->choices.resize(static_cast<size_t>(state->request.n));
  state->unfinished_count = state->request.n;

  state->choices[0].sequence = std::make_unique<ChoiceSequence>();
  ChoiceSequence& lead = *state->choices[0].sequence;
  lead.rank =
      schedule::MakeRank(state->request.priority, state->arrival, id, config_.priority_aging_ns);
  lead.prompt_count = state->prompt_count();
  lead.salt = state->request.cache_salt;
  lead.reuse_prefix = state->request.prompt_logprobs < 0;
  lead.tokens = state->request.prompt;
  lead.request = state.get();
  arrivals_.emplace_back(state->arrival, id);
  const int64_t choices_count = choices_count_ + state->request.n;
  requests_.emplace(id, std::move(state));
  ReserveForEnds(choices_count);
  scheduler_.Add(&lead);  // last: what goes wrong before leaves no trace of the request there
  choices_count_ = choices_count;
}

void EngineCore::Cancel(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  RequestState& request = *found->second;
  for (int32_t choice = 0; choice < request.request.n; ++choice) {
    EndChoice(request, choice, FinishReason::kAbort, Now());
  }
  Deliver();
}

void EngineCore::CancelChoice(RequestId id, int32_t index) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  RequestState& request = *found->second;
  if (index < 0 || index >= request.request.n) return;
  EndChoice(request, index, FinishReason::kStop, Now());
  Deliver();
}

bool EngineCore::Step() {
  try {
    return TryStep();
  } catch (const std::exception& exception) {
    StartOver(exception.what());
  }
  return true;
}

bool EngineCore::TryStep() {
  const TimeNs begin = Now();
  ExpireWaiting(begin);
  if (scheduler_.empty()) {
    Deliver();
    UpdateGauges();
    return false;
  }
  const schedule::Schedule& schedule = scheduler_.Plan();
  NoteScheduled(schedule, begin);
  BuildPlan(schedule);

  StepResult result;
  std::string failure;
  const TimeNs run_begin = Now();
  try {
    result = runner_->Run(plan_);
  } catch (const std::exception& exception) {
    failure = exception.what();
    if (failure.empty()) failure = "an exception without a message";
  } catch (...) {
    failure = "an unknown exception";
  }
  const TimeNs run_end = Now();

  scheduler_.FinishRun();
  if (failure.empty()) {
    CommitStep(result, run_end);
  } else {
    LogError("a step of {} sequences failed: {}", step_sequences_.size(), failure);
    const Error error =
        MakeError(ErrorCode::kInternal, "the step that computed this request failed: {}", failure);
    for (ChoiceSequence* sequence : step_sequences_) {
      EndRequest(*sequence->request, FinishReason::kError, error, run_end);
    }
  }
  ObserveStep(run_end - run_begin);
  UpdateGauges();
  Deliver();
  metrics_.step_overhead_seconds.Observe(ToSeconds(Now() - begin - (run_end - run_begin)));
  return true;
}

void EngineCore::AbortAll() {
  const TimeNs now = Now();
  while (!requests_.empty()) {
    EndRequest(*requests_.begin()->second, FinishReason::kAbort, Error{}, now);
  }
  arrivals_.clear();
  UpdateGauges();
  Deliver();
}

void EngineCore::ExpireWaiting(TimeNs now) {
  while (!arrivals_.empty()) {
    const auto [arrival, id] = arrivals_.front();
    const auto found = requests_.find(id);
    if (found != requests_.end() && found->second->in_queue) {
      if (config_.max_queue_wait_ns == 0 || now - arrival <= config_.max_queue_wait_ns) return;
      EndRequest(*found->second, FinishReason::kError,
                 MakeError(ErrorCode::kResourceExhausted,
                           "waited {:.1f} s in the queue (limit {:.1f} s); try again later",
                           ToSeconds(now - arrival), ToSeconds(config_.max_queue_wait_ns)),
                 now);
    }
    arrivals_.pop_front();
  }
}

void EngineCore::NoteScheduled(const schedule::Schedule& schedule, TimeNs now) {
  for (schedule::Sequence* sequence : schedule.admitted) {
    RequestState& request = *static_cast<ChoiceSequence*>(sequence)->request;
    if (!request.in_queue) continue;
    LeaveQueue(request);
    metrics_.prefix_cache_queries.Add(request.prompt_count());
  }
  metrics_.preemptions.Add(static_cast<int64_t>(schedule.preempted.size()));
  for (schedule::Sequence* sequence : schedule.items) {
    RequestState& request = *static_cast<ChoiceSequence*>(sequence)->request;
    if (request.first_scheduled == kNotYet) request.first_scheduled = now;
  }
}

void EngineCore::BuildPlan(const schedule::Schedule& schedule) {
  plan_.copies = schedule.copies;
  const size_t count = schedule.items.size();
  while (plan_.items.size() > count) {
    spare_items_.push_back(std::move(plan_.items.back()));
    plan_.items.pop_back();
  }
  while (plan_.items.size() < count) {
    if (spare_items_.empty()) {
      plan_.items.emplace_back();
    } else {
      plan_.items.push_back(std::move(spare_items_.back()));
      spare_items_.pop_back();
    }
  }
  step_sequences_.clear();
  for (size_t i = 0; i < count; ++i) {
    auto* sequence = static_cast<ChoiceSequence*>(schedule.items[i]);
    step_sequences_.push_back(sequence);
    FillItem(*sequence, plan_.items[i]);
  }
}

void EngineCore::FillItem(ChoiceSequence& sequence, PlanItem& item) {
  RequestState& request = *sequence.request;
  const std::span<const TokenId> known = sequence.tokens;
  const int64_t start = sequence.kv.computed;
  const int64_t count = sequence.scheduled;
  item.start = start;
  item.tokens = known.subspan(static_cast<size_t>(start), static_cast<size_t>(count));
  item.block_tables.assign(sequence.kv.tables.begin(), sequence.kv.tables.end());
  item.samples.clear();
  item.prompt_logprobs = -1;
  item.next_tokens = {};
  if (request.request.prompt_logprobs >= 0 && !request.prompt_done) {
    // A preempted prompt begins anew.
    if (start == 0) request.prompt_logprobs.clear();
    item.prompt_logprobs = request.request.prompt_logprobs;
    const int64_t next_count = std::min(count, sequence.prompt_count - 1 - start);
    item.next_tokens =
        known.subspan(static_cast<size_t>(start + 1), static_cast<size_t>(next_count));
  }
  if (start + count < sequence.known() || request.request.max_tokens == 0) return;
  for (int32_t choice = 0; choice < request.request.n; ++choice) {
    const bool draws = request.prompt_done ? choice == sequence.choice
                                           : !request.choices[static_cast<size_t>(choice)].finished;
    if (!draws) continue;
    item.samples.push_back(SampleSlot{&request.request.sampling,
                                      ChoiceSeed(request.request.sampling.seed, choice), known,
                                      sequence.prompt_count});
  }
}

void EngineCore::CommitStep(StepResult& result, TimeNs now) {
  KVASIR_CHECK(result.items.size() == plan_.items.size(), "{} results for {} items",
               result.items.size(), plan_.items.size());
  for (size_t i = 0; i < step_sequences_.size(); ++i) {
    ChoiceSequence& sequence = *step_sequences_[i];
    // Another choice of the same request may have failed in this step.
    if (sequence.request->ended) continue;
    CommitItem(sequence, plan_.items[i], result.items[i], now);
  }
}

void EngineCore::CommitItem(ChoiceSequence& sequence, const PlanItem& item, ItemResult& result,
                            TimeNs now) {
  RequestState& request = *sequence.request;
  if (result.error.has_value()) {
    EndRequest(request, FinishReason::kError, *result.error, now);
    return;
  }
  KVASIR_CHECK(result.samples.size() == item.samples.size(), "{} samples for {} slots",
               result.samples.size(), item.samples.size());
  for (const SampledToken& sampled : result.samples) {
    if (sampled.token >= 0 && sampled.token < config_.vocab_size) continue;
    EndRequest(
        request, FinishReason::kError,
        MakeError(ErrorCode::kInternal, "token {} was drawn, outside of the vocabulary of {}",
                  sampled.token, config_.vocab_size),
        now);
    return;
  }
  scheduler_.Commit(&sequence);
  if (item.prompt_logprobs >= 0) {
    KVASIR_CHECK(result.prompt_logprobs.size() == item.next_tokens.size());
    std::ranges::move(result.prompt_logprobs, std::back_inserter(request.prompt_logprobs));
  }
  if (sequence.remaining() > 0) return;
  if (!request.prompt_done) {
    FinishPrompt(request, sequence, result, now);
  } else {
    TakeToken(request, sequence.choice, result.samples[0], now);
  }
}

void EngineCore::FinishPrompt(RequestState& request, ChoiceSequence& lead, ItemResult& result,
                              TimeNs now) {
  request.prompt_done = true;
  request.first_token = now;
  request.cached_tokens = lead.cached_tokens;
  lead.reuse_prefix = true;
  metrics_.prompt_tokens.Add(request.prompt_count());
  metrics_.prompt_tokens_cached.Add(request.cached_tokens);
  metrics_.prefix_cache_hits.Add(request.cached_tokens);
  if (request.request.max_tokens == 0) {
    EndRequest(request, FinishReason::kLength, Error{}, now);
    return;
  }
  metrics_.time_to_first_token_seconds.Observe(ToSeconds(now - request.arrival));
  // All fork before the lead takes its token, which may be its last.
  size_t slot = 0;
  for (int32_t i = 0; i < request.request.n; ++i) {
    Choice& choice = request.choices[static_cast<size_t>(i)];
    if (choice.finished) continue;
    const TokenId token = result.samples[slot++].token;
    if (i != lead.choice && ReasonToFinish(request, 0, token) == FinishReason::kNone) {
      choice.sequence = MakeFork(lead, i);
      scheduler_.AddFork(choice.sequence.get(), lead);
    }
  }
  KVASIR_CHECK(slot == result.samples.size());
  slot = 0;
  for (int32_t i = 0; i < request.request.n; ++i) {
    // TakeToken ends choice i at most, so the ones skipped here are the ones skipped above.
    if (request.choices[static_cast<size_t>(i)].finished) continue;
    TakeToken(request, i, result.samples[slot++], now);
  }
}

void EngineCore::TakeToken(RequestState& request, int32_t index, SampledToken& sampled,
                           TimeNs now) {
  Choice& choice = request.choices[static_cast<size_t>(index)];
  const FinishReason reason = ReasonToFinish(request, choice.output_count, sampled.token);
  if (choice.output_count > 0) {
    metrics_.inter_token_latency_seconds.Observe(ToSeconds(now - choice.last_token));
  }
  metrics_.generation_tokens.Add();
  ++choice.output_count;
  choice.last_token = now;
  TokenEvent& event = Emit(request, index);
  event.token = sampled.token;
  event.logprobs = std::move(sampled.logprobs);
  if (reason == FinishReason::kNone) {
    choice.sequence->tokens.push_back(sampled.token);
    return;
  }
  if (reason == FinishReason::kStop) event.stop_token = sampled.token;
  MarkFinished(request, index, reason, now, event);
  EndChoice(request, index, reason, now);
}

FinishReason EngineCore::ReasonToFinish(const RequestState& request, int64_t output_count,
                                        TokenId token) const {
  // Until min_tokens the sampler masks the stop tokens; one that came all the same does not stop.
  if (output_count >= request.request.sampling.min_tokens &&
      std::ranges::binary_search(request.stop_tokens, token)) {
    return FinishReason::kStop;
  }
  const bool last = output_count + 1 >= request.request.max_tokens ||
                    request.prompt_count() + output_count + 1 >= config_.max_model_len;
  return last ? FinishReason::kLength : FinishReason::kNone;
}

void EngineCore::EndRequest(RequestState& request, FinishReason reason, const Error& error,
                            TimeNs now) {
  for (int32_t i = 0; i < request.request.n; ++i) {
    if (request.choices[static_cast<size_t>(i)].finished) continue;
    Error copy = error;
    TokenEvent& event = Emit(request, i);
    event.error = std::move(copy);
    MarkFinished(request, i, reason, now, event);
    EndChoice(request, i, reason, now);
  }
}

void EngineCore::EndChoice(RequestState& request, int32_t index, FinishReason reason, TimeNs now) {
  Choice& choice = request.choices[static_cast<size_t>(index)];
  if (choice.finished) return;
  choice.finished = true;
  --request.unfinished_count;
  --choices_count_;
  ObserveChoice(metrics_, request, choice, reason, now);
  if (!request.prompt_done && choice.sequence != nullptr && request.unfinished_count > 0) {
    // The lead goes on for the others.
    const auto heir = std::ranges::find(request.choices, false, &Choice::finished);
    heir->sequence = std::move(choice.sequence);
    heir->sequence->choice = static_cast<int32_t>(heir - request.choices.begin());
    return;
  }
  if (choice.sequence != nullptr) scheduler_.Remove(choice.sequence.get());
  if (request.unfinished_count > 0) return;
  // The state, and with it the sequences, stays until its events are delivered.
  if (request.in_queue) LeaveQueue(request);
  ObserveRequest(metrics_, request);
  if (observer_ != nullptr) observer_->OnEnd(request);
  request.ended = true;
  const auto found = requests_.find(request.id);
  ended_.push_back(std::move(found->second));
  requests_.erase(found);
}

void EngineCore::LeaveQueue(RequestState& request) {
  request.in_queue = false;
  queued_count_.fetch_sub(1, std::memory_order_relaxed);
  queued_tokens_.fetch_sub(request.prompt_count(), std::memory_order_relaxed);
}

TokenEvent& EngineCore::Emit(RequestState& request, int32_t index) {
  TokenEvent& event = deliveries_.emplace_back(Delivery{&request, TokenEvent{}}).event;
  event.index = index;
  if (!request.any_event) {
    request.any_event = true;
    event.cached_tokens = request.cached_tokens;
    SetBeginTimes(request, clock_->Now(), event);
    if (request.prompt_done) event.prompt_logprobs = std::move(request.prompt_logprobs);
  }
  return event;
}

void EngineCore::Deliver() {
  for (Delivery& delivery : deliveries_) {
    RequestState& request = *delivery.request;
    if (request.listener == nullptr) continue;
    try {
      request.listener->OnEvent(std::move(delivery.event));
    } catch (const std::exception& exception) {
      DropListener(request, exception.what());
    }
  }
  deliveries_.clear();
  if (ended_.empty()) return;
  const auto ended_count = static_cast<int64_t>(ended_.size());
  ended_.clear();
  requests_count_.fetch_sub(ended_count, std::memory_order_acq_rel);
}

void EngineCore::UpdateGauges() {
  const cache::BlockPool& pool = cache_.pool();
  metrics_.requests_running.Set(static_cast<double>(scheduler_.running().size()));
  metrics_.requests_waiting.Set(static_cast<double>(scheduler_.waiting_count()));
  metrics_.requests_waiting_tokens.Set(
      static_cast<double>(queued_tokens_.load(std::memory_order_relaxed)));
  // arrivals_ may begin with some that have left the queue; a step cleans them away.
  const bool any_waits = queued_count_.load(std::memory_order_relaxed) > 0 && !arrivals_.empty();
  metrics_.queue_age_seconds_max.Set(any_waits ? ToSeconds(Now() - arrivals_.front().first) : 0);
  metrics_.kv_blocks_used.Set(static_cast<double>(pool.used_count()));
  metrics_.kv_blocks_cached.Set(static_cast<double>(pool.cached_count()));
  metrics_.kv_blocks_free.Set(static_cast<double>(pool.free_count()));
  metrics_.kv_cache_usage.Set(static_cast<double>(pool.used_count()) /
                              static_cast<double>(pool.blocks_count()));
}

void EngineCore::ObserveStep(TimeNs run_time) {
  const auto sequences_count = static_cast<int64_t>(plan_.items.size());
  // An item whose last token was drawn, not given, and is its only one, decodes.
  const int64_t decodes_count = std::ranges::count_if(plan_.items, [](const PlanItem& item) {
    return item.tokens.size() == 1 && !item.samples.empty() &&
           static_cast<int64_t>(item.samples[0].history.size()) >
               item.samples[0].prompt_tokens_count;
  });
  Histogram& histogram = decodes_count == 0                 ? metrics_.step_seconds_prefill
                         : decodes_count == sequences_count ? metrics_.step_seconds_decode
                                                            : metrics_.step_seconds_mixed;
  histogram.Observe(ToSeconds(run_time));
  metrics_.steps.Add();
  metrics_.iteration_tokens.Observe(static_cast<double>(plan_.TokensCount()));
  metrics_.step_sequences.Observe(static_cast<double>(sequences_count));
}

}  // namespace kvasir::engine
