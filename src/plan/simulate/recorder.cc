#include "plan/simulate/recorder.h"

#include <algorithm>

namespace kvasir::plan {

namespace {

using Kind = CacheGroupSpec::Kind;

/// Blocks of a pool that a snapshot shows at most.
constexpr int64_t kBlocksShown = 8192;

bool Decodes(const PlanItem& item) {
  return item.tokens.size() == 1 && !item.samples.empty() &&
         static_cast<int64_t>(item.samples[0].history.size()) > item.samples[0].prompt_tokens_count;
}

/// Slots that the sequence holds in vain, once the present step is computed.
int64_t WastedSlots(const cache::SequenceBlocks& kv, int64_t scheduled, const CacheSpec& spec) {
  int64_t wasted = 0;
  for (size_t g = 0; g < kv.tables.size(); ++g) {
    const CacheGroupSpec& group = spec.groups[g];
    const auto blocks = static_cast<int64_t>(kv.tables[g].size());
    const int64_t held = (blocks - kv.live_begin[g]) * spec.block_tokens;
    const int64_t readable_begin =
        group.kind == Kind::kFull ? 0 : std::max<int64_t>(0, kv.computed - group.window_tokens + 1);
    wasted += held - (kv.computed + scheduled - readable_begin);
  }
  return wasted;
}

/// Drops every second one.
template <typename T>
void Thin(std::vector<T>& all) {
  for (size_t i = 1; 2 * i < all.size(); ++i) all[i] = std::move(all[2 * i]);
  all.resize((all.size() + 1) / 2);
}

}  // namespace

void Recorder::OnStep(const StepPlan& plan, double seconds) {
  const StepSample sample = Sample(plan, seconds);
  AddIntegrals(sample);
  const int64_t step = result_->steps_count;
  if (step % sample_stride_ == 0) {
    result_->steps.push_back(sample);
    if (static_cast<int64_t>(result_->steps.size()) >= options_.samples_max) {
      Thin(result_->steps);
      sample_stride_ *= 2;
    }
  }
  if (step < options_.details_max) AddDetail(plan, sample);
  if (options_.snapshots_max > 0 && step % snapshot_stride_ == 0) {
    AddSnapshot(sample);
    if (static_cast<int64_t>(result_->snapshots.size()) >= options_.snapshots_max) {
      Thin(result_->snapshots);
      snapshot_stride_ *= 2;
    }
  }
  ++result_->steps_count;
}

StepSample Recorder::Sample(const StepPlan& plan, double seconds) {
  StepSample sample;
  sample.begin_s = ToSeconds(clock_->Now());
  sample.seconds = seconds;
  for (const PlanItem& item : plan.items) {
    sample.tokens += static_cast<int64_t>(item.tokens.size());
    ++(Decodes(item) ? sample.decodes : sample.prompts);
  }
  const schedule::Scheduler& scheduler = core_->scheduler();
  sample.running = static_cast<int64_t>(scheduler.running().size());
  sample.waiting = scheduler.waiting_count();
  const int64_t preemptions = core_->metrics().preemptions.value();
  sample.preempted = preemptions - result_->preemptions;
  result_->preemptions = preemptions;
  if (preemptions > 0) {
    for (const schedule::Sequence* sequence : scheduler.running()) {
      result_->requests[static_cast<size_t>(IndexOf(*sequence))].preemptions =
          static_cast<int32_t>(sequence->preemptions_count);
    }
  }
  const cache::BlockPool& pool = core_->cache().pool();
  const CacheSpec& spec = core_->cache().spec();
  sample.blocks_used = pool.used_count();
  sample.blocks_cached = pool.cached_count();
  sample.blocks_free = pool.free_count();
  reached_.resize(result_->requests.size());
  for (const schedule::Sequence* sequence : scheduler.running()) {
    sample.slots_wasted += WastedSlots(sequence->kv, sequence->scheduled, spec);
    const int64_t begin = sequence->kv.computed;
    const int64_t end = begin + sequence->scheduled;
    int64_t& reached = reached_[static_cast<size_t>(IndexOf(*sequence))];
    if (begin < reached) result_->recomputed_tokens += std::min(end, reached) - begin;
    reached = std::max(reached, end);
  }
  sample.slots_filled =
      std::max<int64_t>(0, sample.blocks_used * spec.block_tokens - sample.slots_wasted);
  return sample;
}

void Recorder::AddIntegrals(const StepSample& sample) {
  SimulationResult& result = *result_;
  const auto add = [&](double& integral, int64_t value) {
    integral += static_cast<double>(value) * sample.seconds;
  };
  result.busy_s += sample.seconds;
  add(result.running_seconds, sample.running);
  add(result.waiting_seconds, sample.waiting);
  add(result.blocks_used_seconds, sample.blocks_used);
  add(result.slots_filled_seconds, sample.slots_filled);
  add(result.slots_wasted_seconds, sample.slots_wasted);
  result.running_max = std::max(result.running_max, sample.running);
  result.waiting_max = std::max(result.waiting_max, sample.waiting);
  result.blocks_used_max = std::max(result.blocks_used_max, sample.blocks_used);
  result.computed_tokens += sample.tokens;
  result.seats_count += sample.decodes + sample.prompts;
}

void Recorder::AddDetail(const StepPlan& plan, const StepSample& sample) {
  StepDetail detail;
  detail.sample = sample;
  seated_.assign(result_->requests.size(), false);
  size_t item = 0;
  for (const schedule::Sequence* sequence : core_->scheduler().running()) {
    const int64_t request = IndexOf(*sequence);
    seated_[static_cast<size_t>(request)] = true;
    if (sequence->scheduled == 0) {
      detail.sat_out.push_back(request);
      continue;
    }
    // The plan's items are those that run and are scheduled, in this order.
    detail.seats.push_back(StepSeat{request, sequence->kv.computed, sequence->scheduled,
                                    !plan.items[item].samples.empty()});
    ++item;
  }
  std::vector<RequestRecord>& requests = result_->requests;
  while (waiting_begin_ < requests.size() &&
         requests[waiting_begin_].end != RequestEnd::kUnfinished) {
    ++waiting_begin_;
  }
  for (size_t i = waiting_begin_; i < requests.size(); ++i) {
    if (detail.waiting.size() == kWaitingShown) break;
    if (requests[i].end == RequestEnd::kUnfinished && !seated_[i]) {
      detail.waiting.push_back(static_cast<int64_t>(i));
    }
  }
  result_->details.push_back(std::move(detail));
}

void Recorder::AddSnapshot(const StepSample& sample) {
  const cache::KvCache& cache = core_->cache();
  const int64_t block_tokens = cache.spec().block_tokens;
  const int64_t total = cache.pool().blocks_count();
  const int64_t shown = std::min(total, kBlocksShown);
  CacheSnapshot snapshot;
  snapshot.at_s = sample.begin_s;
  snapshot.blocks.resize(static_cast<size_t>(shown));
  for (int64_t block = 0; block < shown; ++block) {
    BlockView& view = snapshot.blocks[static_cast<size_t>(block)];
    const auto id = static_cast<BlockId>(block * total / shown);
    view.references = cache.pool().references(id);
    if (view.references > 0) {
      view.state = BlockView::State::kUsed;
    } else if (cache.NodeOf(id) != cache::kNoNode) {
      view.state = BlockView::State::kCached;
    }
  }
  const std::vector<schedule::Sequence*>& running = core_->scheduler().running();
  // The first in rank last, so that its name stays.
  for (size_t i = running.size(); i-- > 0;) {
    const schedule::Sequence& sequence = *running[i];
    const int64_t end = sequence.kv.computed + sequence.scheduled;
    for (const std::vector<BlockId>& table : sequence.kv.tables) {
      for (size_t j = 0; j < table.size(); ++j) {
        if (table[j] == kNoBlock) continue;
        const int64_t block = (table[j] * shown + total - 1) / total;
        if (block * total / shown != table[j]) continue;  // is not drawn
        BlockView& view = snapshot.blocks[static_cast<size_t>(block)];
        view.request = IndexOf(sequence);
        view.filled = static_cast<int32_t>(
            std::clamp<int64_t>(end - static_cast<int64_t>(j) * block_tokens, 0, block_tokens));
      }
    }
  }
  result_->snapshots.push_back(std::move(snapshot));
}

}  // namespace kvasir::plan
