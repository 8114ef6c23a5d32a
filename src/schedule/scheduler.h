// Which tokens run next. One rule: a sequence has tokens known and tokens computed, and a step
// closes gaps within a token budget. docs/scheduling.md tells the policy in words.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "cache/kv_cache.h"
#include "contract/step.h"
#include "schedule/sequence.h"

namespace kvasir::schedule {

struct SchedulerConfig {
  int64_t max_num_seqs = 64;
  int64_t max_num_batched_tokens = 256;  ///< at least max_num_seqs
  int64_t max_model_len = 0;
  bool reserved_allocation = false;  ///< each sequence takes blocks for max_model_len up front
  bool static_batching = false;      ///< nobody joins until all that run have ended
  bool chunked_prefill = true;       ///< false: a prompt is computed whole, in one step
};

/// What Plan decided. Valid until the next call of Plan.
struct Schedule {
  std::vector<Sequence*> items;  ///< each computes its `scheduled` next tokens
  std::vector<BlockCopy> copies;
  std::vector<Sequence*> admitted;   ///< left the waiting queue
  std::vector<Sequence*> preempted;  ///< returned to it
};

/// Sequences belong to the caller and must stay put while they are here. One thread.
class Scheduler {
 public:
  /// `cache` must outlive the scheduler.
  Scheduler(const SchedulerConfig& config, cache::KvCache* cache);

  /// Forgets all sequences, whatever state they and the plan are in. Their owner empties or drops
  /// them.
  void Reset();

  /// Queues a sequence. Where memory for that is refused, nothing has changed.
  void Add(Sequence* sequence);
  /// Starts `child` with what `parent` has computed, if a seat is free; queues it otherwise.
  void AddFork(Sequence* child, const Sequence& parent);
  /// Takes a sequence out, wherever it is; its blocks are free at once. Not between Plan and
  /// FinishRun.
  void Remove(Sequence* sequence);

  /// Decides the next step and reserves its blocks. Never empty while anything waits or runs.
  const Schedule& Plan();
  /// The runner has returned, whatever came of it: the plan's copies are made or not needed. Before
  /// any Commit or Remove of the step.
  void FinishRun();
  /// The sequence's part of the step has been computed: its KV may be trusted and shared. What is
  /// not committed must be removed.
  void Commit(Sequence* sequence);

  /// Best rank first.
  [[nodiscard]] const std::vector<Sequence*>& running() const { return running_; }
  [[nodiscard]] int64_t waiting_count() const { return static_cast<int64_t>(waiting_.size()); }
  [[nodiscard]] bool empty() const { return running_.empty() && waiting_.empty(); }

 private:
  struct ByRank {
    bool operator()(const Sequence* a, const Sequence* b) const { return a->rank < b->rank; }
  };
  struct OwnedCopy {
    const Sequence* sequence;
    BlockCopy copy;
  };

  void PlanDecodes();
  void Admit();
  void PlanPromptsInChunks();
  void PlanWholePrompts();
  /// Schedules up to `count` tokens of `sequence`, as many as its blocks allow; where `whole`, all
  /// or none. Sequences of worse rank are preempted where not one block is left for it.
  void ScheduleTokens(Sequence* sequence, int64_t count, bool whole);
  /// Gives a waiting sequence its cached prefix, and its blocks under reserved allocation. False,
  /// with nothing taken, where it does not fit; then `missing` tells how many blocks were lacking.
  bool TryOpen(Sequence* sequence, int64_t* missing);
  /// Whether a waiting sequence may push out the worst that runs.
  [[nodiscard]] bool MayDisplaceWorst(const Sequence& waiting) const;
  /// Blocks held by and promised to all that `waiting` may push out (an upper bound, since some may
  /// be shared), or -1 where it may push out nobody.
  [[nodiscard]] int64_t DisplaceableBlocks(const Sequence& waiting) const;
  /// Blocks that those which run still need to compute all that they know, and one more each.
  [[nodiscard]] int64_t PromisedBlocks() const;
  [[nodiscard]] int64_t PromisedBlocks(const Sequence& sequence) const;
  void PreemptWorst();
  void StartRunning(Sequence* sequence);
  void TakePrefix(Sequence* sequence);
  void ForgetCopies(const Sequence* sequence);
  /// Tokens of one sequence that one step can hold, which bounds the blocks a window needs.
  [[nodiscard]] int64_t MaxChunk() const;

  SchedulerConfig config_;
  cache::KvCache* cache_;
  std::vector<Sequence*> running_;  ///< by rank
  std::set<Sequence*, ByRank> waiting_;
  Schedule schedule_;
  int64_t budget_ = 0;  ///< tokens left in the step being planned
  std::vector<OwnedCopy> copies_;
  std::vector<BlockCopy> new_copies_;  ///< scratch
  std::vector<Sequence*> prompts_;  ///< scratch: those that run and are not scheduled yet, by rank
  std::vector<Sequence*> by_length_;  ///< scratch: the same by what remains
  std::vector<int64_t> shares_;       ///< scratch: tokens that each of prompts_ may compute
};

}  // namespace kvasir::schedule
