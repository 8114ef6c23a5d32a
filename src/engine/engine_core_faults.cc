// What the engine does where memory is refused, or something else throws, in the midst of its own
// work. The runner's failures are not here: they leave the books whole (engine_core.cc).
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/engine_core.h"

namespace kvasir::engine {

namespace {

/// In one step a choice can emit a token, and then, where the step breaks off, an error.
constexpr int64_t kEventsOfChoiceMax = 2;

template <typename T>
void ReserveAtLeast(std::vector<T>& vector, int64_t size) {
  const auto wanted = static_cast<size_t>(size);
  if (vector.capacity() < wanted) vector.reserve(std::max(wanted, 2 * vector.capacity()));
}

/// Whether anything of the request ran, or was about to, when the step broke off.
bool HadPart(const RequestState& request) {
  return std::ranges::any_of(request.choices, [&](const Choice& choice) {
    if (choice.finished) return false;
    // Without a sequence: its fork broke off, or the prompt is not computed yet.
    if (choice.sequence == nullptr) return request.prompt_done;
    return choice.sequence->state != schedule::Sequence::State::kWaiting ||
           choice.sequence->kv.open();
  });
}

/// The sequences hold nothing any more, and are nowhere.
void Empty(RequestState& request) {
  for (Choice& choice : request.choices) {
    if (choice.sequence == nullptr) continue;
    choice.sequence->kv = cache::SequenceBlocks{};
    choice.sequence->state = schedule::Sequence::State::kIdle;
    choice.sequence->scheduled = 0;
  }
}

/// Of its first choice that has a place in the order.
const schedule::Rank& RankOf(const RequestState& request) {
  const auto found = std::ranges::find_if(
      request.choices, [](const Choice& choice) { return choice.sequence != nullptr; });
  return found->sequence->rank;
}

}  // namespace

void EngineCore::ReserveForEnds(int64_t choices_count) {
  ReserveAtLeast(ended_, static_cast<int64_t>(requests_.size()));
  ReserveAtLeast(deliveries_, kEventsOfChoiceMax * choices_count);
}

void EngineCore::RefuseArrival(RequestListener& listener, int32_t n, int64_t prompt_count,
                               const std::string& failure) {
  queued_count_.fetch_sub(1, std::memory_order_relaxed);
  queued_tokens_.fetch_sub(prompt_count, std::memory_order_relaxed);
  metrics_.finished_error.Add(n);
  try {
    const Error error =
        MakeError(ErrorCode::kUnavailable, "there is no memory for this request: {}", failure);
    LogError("{}", error.message);
    for (int32_t i = 0; i < n; ++i) {
      TokenEvent event;
      event.index = i;
      event.finish = FinishReason::kError;
      event.error = error;
      listener.OnEvent(std::move(event));
    }
  } catch (const std::exception& exception) {
    LogError("a client was not told that its request failed: {}", exception.what());
  }
  requests_count_.fetch_sub(1, std::memory_order_acq_rel);
}

void EngineCore::DropListener(RequestState& request, const std::string& failure) {
  LogError("a client was not told of its tokens, its request ends: {}", failure);
  request.listener = nullptr;
  for (int32_t i = 0; i < request.request.n; ++i) {
    EndChoice(request, i, FinishReason::kAbort, Now());
  }
}

void EngineCore::StartOver(const std::string& failure) {
  const TimeNs now = Now();
  LogError("a step broke off and all blocks are given back: {}", failure);
  const Error error =
      MakeError(ErrorCode::kInternal, "the step that computed this request failed: {}", failure);
  scheduler_.Reset();
  cache_.Reset();
  step_sequences_.clear();
  // Where nobody had a part yet, the first in the queue has, else the same would happen again.
  const RequestState* first = nullptr;
  bool any_had_part = false;
  for (const auto& [id, request] : requests_) {
    any_had_part = any_had_part || HadPart(*request);
    if (first == nullptr || RankOf(*request) < RankOf(*first)) first = request.get();
  }
  for (auto next = requests_.begin(); next != requests_.end();) {
    RequestState& request = *(next++)->second;  // ending it erases it
    const bool ends = any_had_part ? HadPart(request) : &request == first;
    Empty(request);
    if (ends) {
      EndRequest(request, FinishReason::kError, error, now);
    } else {
      Requeue(request, error, now);
    }
  }
  UpdateGauges();
  Deliver();
}

void EngineCore::Requeue(RequestState& request, const Error& error, TimeNs now) {
  try {
    for (Choice& choice : request.choices) {
      if (choice.sequence != nullptr && !choice.finished) scheduler_.Add(choice.sequence.get());
    }
  } catch (const std::exception&) {
    EndRequest(request, FinishReason::kError, error, now);
  }
}

}  // namespace kvasir::engine
