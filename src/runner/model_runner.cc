#include "runner/model_runner.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>
#include <utility>

#include "base/check.h"
#include "sample/logprobs.h"

namespace kvasir::runner {
namespace {

// Logits are computed for this many rows at a time: enough to read the head's weights seldom, and
// at V = 262144 no more than 64 MiB.
constexpr size_t kRowsAtOnce = 64;

// Layer l is slot s of its group: its part of every block begins s slots into it.
std::vector<kernels::KvView> MakeKvViews(const model::ModelSpec& spec, const RunnerOptions& options,
                                         const KvStorage& storage) {
  std::vector<kernels::KvView> views(spec.layers.size());
  const int64_t slot_bytes = storage.block_bytes() / spec.layers_per_group;
  for (const model::CacheGroup& group : spec.cache_groups) {
    for (size_t slot = 0; slot < group.layers.size(); ++slot) {
      const auto layer = static_cast<size_t>(group.layers[slot]);
      const model::GroupedQueryAttention& attention = spec.layers[layer].gqa();
      kernels::KvView& view = views[layer];
      view.base = storage.base() + static_cast<int64_t>(slot) * slot_bytes;
      view.block_stride_bytes = storage.block_bytes();
      view.block_tokens = options.cache.block_tokens;
      view.kv_heads = attention.kv_heads;
      view.head_dim = attention.head_dim;
      view.dtype = options.kv_dtype;
      KVASIR_CHECK(kernels::LayerBlockBytes(view) <= slot_bytes, "layer {} takes {} bytes of {}",
                   layer, kernels::LayerBlockBytes(view), slot_bytes);
    }
  }
  return views;
}

}  // namespace

Result<std::unique_ptr<ModelRunner>> ModelRunner::Create(model::Model& model, ThreadPool& pool,
                                                         const RunnerOptions& options) {
  const model::ModelSpec& spec = model.spec();
  KVASIR_CHECK(options.cache.groups.size() == spec.cache_groups.size() &&
               options.cache.block_bytes ==
                   spec.KvBlockBytes(options.cache.block_tokens, options.kv_dtype));
  KVASIR_ASSIGN_OR_RETURN(std::unique_ptr<KvStorage> storage,
                          KvStorage::Create(options.cache.blocks_count, options.cache.block_bytes));
  return std::unique_ptr<ModelRunner>(new ModelRunner(model, pool, options, std::move(storage)));
}

ModelRunner::ModelRunner(model::Model& model, ThreadPool& pool, const RunnerOptions& options,
                         std::unique_ptr<KvStorage> storage)
    : model_(model),
      pool_(pool),
      groups_count_(options.cache.groups.size()),
      storage_(std::move(storage)),
      kv_views_(MakeKvViews(model.spec(), options, *storage_)),
      samplers_(static_cast<size_t>(pool.size())) {}

StepResult ModelRunner::Run(const StepPlan& plan) {
  StepResult result;
  result.items.resize(plan.items.size());
  for (const BlockCopy& copy : plan.copies) storage_->CopyBlock(copy.from, copy.to);
  if (plan.items.empty()) return result;
  Forward(plan);

  const std::vector<WantedRow> wanted = FindWantedRows(plan);
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const PlanItem& item = plan.items[i];
    result.items[i].samples.resize(item.samples.size());
    if (item.prompt_logprobs >= 0) result.items[i].prompt_logprobs.resize(item.next_tokens.size());
  }
  const std::span<const WantedRow> all = wanted;
  for (size_t first = 0; first < all.size(); first += kRowsAtOnce) {
    ComputeRows(plan, all.subspan(first, std::min(kRowsAtOnce, all.size() - first)), result);
  }
  for (ItemResult& item : result.items) {
    if (!item.error) continue;
    item.samples.clear();
    item.prompt_logprobs.clear();
  }
  return result;
}

void ModelRunner::Forward(const StepPlan& plan) {
  std::vector<model::ForwardSequence> batch;
  batch.reserve(plan.items.size());
  for (const PlanItem& item : plan.items) {
    KVASIR_CHECK(!item.tokens.empty());
    KVASIR_CHECK(item.block_tables.size() == groups_count_, "{} block tables, {} groups",
                 item.block_tables.size(), groups_count_);
    batch.push_back({item.tokens, item.start, item.block_tables});
  }
  model_.Forward(batch, kv_views_);
}

std::vector<ModelRunner::WantedRow> ModelRunner::FindWantedRows(const StepPlan& plan) {
  std::vector<WantedRow> wanted;
  int64_t first_row = 0;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const PlanItem& item = plan.items[i];
    const size_t scored = item.prompt_logprobs >= 0 ? item.next_tokens.size() : 0;
    KVASIR_CHECK(scored <= item.tokens.size());
    for (size_t token = 0; token < item.tokens.size(); ++token) {
      const bool draws = token + 1 == item.tokens.size() && !item.samples.empty();
      const bool scores_next = token < scored;
      if (!draws && !scores_next) continue;
      wanted.push_back({first_row + static_cast<int64_t>(token), i, token, scores_next, draws});
    }
    first_row += static_cast<int64_t>(item.tokens.size());
  }
  return wanted;
}

void ModelRunner::ComputeRows(const StepPlan& plan, std::span<const WantedRow> wanted,
                              StepResult& result) {
  const auto vocab_size = static_cast<size_t>(model_.spec().vocab_size);
  std::vector<int64_t> rows;
  rows.reserve(wanted.size());
  for (const WantedRow& row : wanted) rows.push_back(row.row);
  if (logits_.size() < rows.size() * vocab_size) logits_.resize(rows.size() * vocab_size);
  model_.Logits(rows, logits_.data());

  std::vector<Status> statuses(wanted.size());
  std::atomic<bool> out_of_memory{false};
  pool_.ParallelFor(static_cast<int64_t>(wanted.size()), [&](int64_t index, int worker) {
    const auto at = static_cast<size_t>(index);
    const WantedRow& row = wanted[at];
    const std::span<const float> logits(logits_.data() + at * vocab_size, vocab_size);
    try {
      statuses[at] = UseRow(plan.items[row.item], row, logits,
                            samplers_[static_cast<size_t>(worker)], result.items[row.item]);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;  // must not leave a worker thread; thrown again below
    }
  });
  if (out_of_memory) throw std::bad_alloc();
  for (size_t at = 0; at < wanted.size(); ++at) {
    std::optional<Error>& error = result.items[wanted[at].item].error;
    if (!statuses[at].ok() && !error) error = std::move(statuses[at]).error();
  }
}

Status ModelRunner::UseRow(const PlanItem& item, const WantedRow& wanted,
                           std::span<const float> logits, sample::Sampler& sampler,
                           ItemResult& result) const {
  std::optional<sample::RowLogprobs> logprobs;
  const auto need_logprobs = [&]() -> Status {
    if (logprobs) return Status::Ok();
    KVASIR_ASSIGN_OR_RETURN(logprobs, sample::RowLogprobs::Make(logits));
    return Status::Ok();
  };
  if (wanted.scores_next) {
    KVASIR_RETURN_IF_ERROR(need_logprobs());
    result.prompt_logprobs[wanted.token] =
        logprobs->For(item.next_tokens[wanted.token], item.prompt_logprobs, {});
  }
  if (!wanted.draws) return Status::Ok();
  for (size_t i = 0; i < item.samples.size(); ++i) {
    const SampleSlot& slot = item.samples[i];
    SampledToken& sampled = result.samples[i];
    KVASIR_ASSIGN_OR_RETURN(sampled.token, sampler.Draw(logits, slot));
    if (slot.params->logprobs < 0) continue;
    KVASIR_RETURN_IF_ERROR(need_logprobs());
    sampled.logprobs =
        logprobs->For(sampled.token, slot.params->logprobs, slot.params->logprob_token_ids);
  }
  return Status::Ok();
}

}  // namespace kvasir::runner
