#include "schedule/scheduler.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/check.h"

namespace kvasir::schedule {

namespace {

/// The share of a step's prompt tokens that the best-ranked prompt always gets, whoever has less to
/// compute: 1/4 keeps a long prompt moving at a quarter of full speed at worst.
constexpr int64_t kFirstPromptShare = 4;

}  // namespace

Rank MakeRank(int64_t priority, TimeNs arrival, uint64_t order, TimeNs aging) {
  Rank rank{0, priority, order, 0};
  if (aging == 0) return rank;
  TimeNs shift = 0;
  if (__builtin_mul_overflow(priority, aging, &shift) ||
      __builtin_add_overflow(arrival, shift, &rank.due)) {
    rank.due =
        priority < 0 ? std::numeric_limits<TimeNs>::min() : std::numeric_limits<TimeNs>::max();
  }
  return rank;
}

Scheduler::Scheduler(const SchedulerConfig& config, cache::KvCache* cache)
    : config_(config), cache_(cache) {
  KVASIR_CHECK(config.max_num_seqs > 0);
  KVASIR_CHECK(config.max_num_batched_tokens >= config.max_num_seqs,
               "max_num_batched_tokens {} is less than max_num_seqs {}",
               config.max_num_batched_tokens, config.max_num_seqs);
}

void Scheduler::Reset() {
  running_.clear();
  waiting_.clear();
  copies_.clear();
  schedule_ = Schedule{};
}

void Scheduler::Add(Sequence* sequence) {
  KVASIR_CHECK(sequence->state == Sequence::State::kIdle && !sequence->tokens.empty());
  KVASIR_CHECK(waiting_.insert(sequence).second, "two sequences of one rank");
  sequence->state = Sequence::State::kWaiting;
}

void Scheduler::AddFork(Sequence* child, const Sequence& parent) {
  if (static_cast<int64_t>(running_.size()) >= config_.max_num_seqs) {
    Add(child);
    return;
  }
  KVASIR_CHECK(child->state == Sequence::State::kIdle);
  cache_->Fork(parent.kv, child->kv);
  if (config_.reserved_allocation) {
    // Copies of the shared last block belong into a step's plan: they are made when it is reserved
    // for writing. Here only what lies beyond it is taken.
    if (cache_->BlocksMissing(child->kv, config_.max_model_len) >
        cache_->pool().available_count()) {
      cache_->Release(child->kv);
      Add(child);
      return;
    }
    cache_->Extend(child->kv, config_.max_model_len);
  }
  StartRunning(child);
}

void Scheduler::Remove(Sequence* sequence) {
  switch (sequence->state) {
    case Sequence::State::kIdle:
      return;
    case Sequence::State::kWaiting:
      waiting_.erase(sequence);
      break;
    case Sequence::State::kRunning:
      running_.erase(std::ranges::find(running_, sequence));
      cache_->Release(sequence->kv);
      break;
  }
  sequence->state = Sequence::State::kIdle;
  sequence->scheduled = 0;
}

const Schedule& Scheduler::Plan() {
  KVASIR_CHECK(copies_.empty(), "the run before was not finished");
  schedule_.items.clear();
  schedule_.copies.clear();
  schedule_.admitted.clear();
  schedule_.preempted.clear();
  budget_ = config_.max_num_batched_tokens;
  PlanDecodes();
  // Where those who run lack blocks, nobody joins them.
  if (schedule_.preempted.empty()) Admit();
  if (config_.chunked_prefill) {
    PlanPromptsInChunks();
  } else {
    PlanWholePrompts();
  }
  for (Sequence* sequence : running_) {
    if (sequence->scheduled > 0) schedule_.items.push_back(sequence);
  }
  for (const OwnedCopy& owned : copies_) schedule_.copies.push_back(owned.copy);
  KVASIR_CHECK(!schedule_.items.empty() || empty(),
               "nothing to do in a step, with {} running, {} waiting and {} blocks available",
               running_.size(), waiting_.size(), cache_->pool().available_count());
  return schedule_;
}

void Scheduler::PlanDecodes() {
  // By index: the worst may be preempted on the way, which shortens the vector behind i.
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->decoding()) ScheduleTokens(running_[i], 1, /*whole=*/true);
  }
}

void Scheduler::PlanPromptsInChunks() {
  prompts_.clear();
  for (Sequence* sequence : running_) {
    if (sequence->scheduled > 0) continue;
    // Others may have published more of it since the last chunk.
    TakePrefix(sequence);
    prompts_.push_back(sequence);
  }
  if (prompts_.empty()) return;
  by_length_ = prompts_;
  std::ranges::sort(by_length_, [](const Sequence* a, const Sequence* b) {
    return std::tuple(a->rank.priority, a->remaining(), a->rank) <
           std::tuple(b->rank.priority, b->remaining(), b->rank);
  });
  // First shares are worked out, then blocks are taken by rank.
  Sequence* first = prompts_.front();
  int64_t left = budget_;
  const int64_t first_share =
      std::min(first->remaining(), std::max<int64_t>(1, left / kFirstPromptShare));
  shares_.assign(prompts_.size(), 0);
  left -= first_share;
  for (Sequence* sequence : by_length_) {
    const int64_t had = sequence == first ? first_share : 0;
    const int64_t more = std::clamp<int64_t>(sequence->remaining() - had, 0, left);
    left -= more;
    const auto at = std::ranges::lower_bound(prompts_, sequence, ByRank{}) - prompts_.begin();
    shares_[static_cast<size_t>(at)] = had + more;
  }
  for (size_t i = 0; i < prompts_.size(); ++i) {
    if (prompts_[i]->state != Sequence::State::kRunning) break;  // pushed out, as all behind it
    if (shares_[i] > 0) ScheduleTokens(prompts_[i], shares_[i], /*whole=*/false);
  }
}

void Scheduler::PlanWholePrompts() {
  bool first = true;
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence* sequence = running_[i];
    if (sequence->scheduled > 0) continue;
    TakePrefix(sequence);
    // The first prompt of a step goes whatever its length, else a long one would never go.
    if (!first && sequence->remaining() > budget_) return;
    first = false;
    ScheduleTokens(sequence, sequence->remaining(), /*whole=*/true);
  }
}

void Scheduler::ScheduleTokens(Sequence* sequence, int64_t count, bool whole) {
  cache::SequenceBlocks& kv = sequence->kv;
  const int64_t wanted = kv.computed + count;
  while (true) {
    const int64_t end = cache_->ReservableEnd(kv, wanted);
    if (end == wanted || (!whole && end > kv.computed)) {
      new_copies_.clear();
      KVASIR_CHECK(cache_->Reserve(kv, end, &new_copies_));
      for (const BlockCopy& copy : new_copies_) copies_.push_back({sequence, copy});
      sequence->scheduled = end - kv.computed;
      budget_ -= sequence->scheduled;
      return;
    }
    // The worst keeps what it has and sits this step out; whoever needs its blocks will take them.
    if (running_.back() == sequence) return;
    PreemptWorst();
  }
}

void Scheduler::Admit() {
  if (config_.static_batching && !running_.empty()) return;
  while (!waiting_.empty()) {
    Sequence* sequence = *waiting_.begin();
    if (static_cast<int64_t>(running_.size()) >= config_.max_num_seqs) {
      if (!MayDisplaceWorst(*sequence)) return;
      PreemptWorst();
      continue;
    }
    int64_t missing = 0;
    if (!TryOpen(sequence, &missing)) {
      // Strictly in order: nobody slips past one that waits for blocks, or it might wait for ever.
      if (missing > DisplaceableBlocks(*sequence)) return;
      PreemptWorst();
      continue;
    }
    waiting_.erase(waiting_.begin());
    StartRunning(sequence);
    schedule_.admitted.push_back(sequence);
  }
}

bool Scheduler::TryOpen(Sequence* sequence, int64_t* missing) {
  cache_->Open(sequence->kv, sequence->salt);
  const int64_t gained =
      sequence->reuse_prefix ? cache_->TakePrefix(sequence->kv, sequence->tokens) : 0;
  const int64_t available = cache_->pool().available_count();
  int64_t needed = 0;
  if (config_.reserved_allocation) {
    needed = cache_->BlocksMissing(sequence->kv, config_.max_model_len);
  } else if (!running_.empty()) {
    // Alone, whatever was accepted fits. Beside others, only what leaves them what they were
    // promised: letting it in and pushing it out again would be work for nothing.
    needed =
        PromisedBlocks() + cache_->BlocksWanted(sequence->kv, sequence->known() + 1, MaxChunk());
  }
  if (needed > available) {
    *missing = needed - available;
    cache_->Release(sequence->kv);
    return false;
  }
  if (config_.reserved_allocation) cache_->Extend(sequence->kv, config_.max_model_len);
  if (sequence->preemptions_count == 0) sequence->cached_tokens += gained;
  return true;
}

int64_t Scheduler::PromisedBlocks() const {
  int64_t blocks = 0;
  for (const Sequence* sequence : running_) blocks += PromisedBlocks(*sequence);
  return blocks;
}

int64_t Scheduler::PromisedBlocks(const Sequence& sequence) const {
  return cache_->BlocksWanted(sequence.kv, sequence.known(), MaxChunk()) + cache_->groups_count();
}

int64_t Scheduler::MaxChunk() const {
  return config_.chunked_prefill ? config_.max_num_batched_tokens : config_.max_model_len;
}

bool Scheduler::MayDisplaceWorst(const Sequence& waiting) const {
  // Both: waiting alone entitles nobody to another's place, and a request that has waited long
  // enough to be ranked first keeps its place against an urgent one.
  return !config_.static_batching && !running_.empty() &&
         waiting.rank.priority < running_.back()->rank.priority &&
         waiting.rank < running_.back()->rank;
}

int64_t Scheduler::DisplaceableBlocks(const Sequence& waiting) const {
  if (!MayDisplaceWorst(waiting)) return -1;
  int64_t blocks = 0;
  for (const Sequence* sequence : running_) {
    if (waiting.rank.priority >= sequence->rank.priority || sequence->rank < waiting.rank) continue;
    blocks += PromisedBlocks(*sequence);
    for (size_t g = 0; g < sequence->kv.tables.size(); ++g) {
      blocks += static_cast<int64_t>(sequence->kv.tables[g].size()) - sequence->kv.live_begin[g];
    }
  }
  return blocks;
}

void Scheduler::PreemptWorst() {
  Sequence* victim = running_.back();
  running_.pop_back();
  ForgetCopies(victim);
  cache_->Release(victim->kv);
  budget_ += victim->scheduled;
  victim->scheduled = 0;
  victim->state = Sequence::State::kWaiting;
  ++victim->preemptions_count;
  waiting_.insert(victim);
  schedule_.preempted.push_back(victim);
}

void Scheduler::StartRunning(Sequence* sequence) {
  sequence->state = Sequence::State::kRunning;
  running_.insert(std::ranges::upper_bound(running_, sequence, ByRank{}), sequence);
}

void Scheduler::TakePrefix(Sequence* sequence) {
  if (!sequence->reuse_prefix) return;
  const int64_t gained = cache_->TakePrefix(sequence->kv, sequence->tokens);
  if (sequence->preemptions_count == 0) sequence->cached_tokens += gained;
}

void Scheduler::ForgetCopies(const Sequence* sequence) {
  std::erase_if(copies_, [&](const OwnedCopy& owned) {
    if (owned.sequence == sequence) cache_->ForgetCopy(owned.copy);
    return owned.sequence == sequence;
  });
}

void Scheduler::FinishRun() {
  for (const OwnedCopy& owned : copies_) cache_->ForgetCopy(owned.copy);
  copies_.clear();
}

void Scheduler::Commit(Sequence* sequence) {
  cache_->Commit(sequence->kv, sequence->tokens, sequence->scheduled);
  sequence->scheduled = 0;
}

}  // namespace kvasir::schedule
