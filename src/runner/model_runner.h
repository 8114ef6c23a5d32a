// The Runner of real models: step plan -> batch -> hidden rows -> logits -> tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "contract/cache_spec.h"
#include "contract/runner.h"
#include "model/model.h"
#include "runner/kv_storage.h"
#include "sample/sampler.h"

namespace kvasir::runner {

struct RunnerOptions {
  CacheSpec cache;               ///< PlanKv's
  DType kv_dtype = DType::kF16;  ///< the one that cache.block_bytes was worked out for
};

/// Owns the KV storage. Engine thread only; the pool helps. A row's logits that hold NaN or
/// +infinity fail their item alone. Memory that cannot be had throws std::bad_alloc out of Run.
class ModelRunner final : public Runner {
 public:
  /// `model` and `pool` must outlive the runner. Errors where the storage cannot be reserved.
  static Result<std::unique_ptr<ModelRunner>> Create(model::Model& model, ThreadPool& pool,
                                                     const RunnerOptions& options);

  StepResult Run(const StepPlan& plan) override;

 private:
  // A row of the batch whose logits are wanted, and for what.
  struct WantedRow {
    int64_t row = 0;           // of the batch
    size_t item = 0;           // of the plan
    size_t token = 0;          // of the item
    bool scores_next = false;  // prompt logprobs of next_tokens[token]
    bool draws = false;        // the item's samples
  };

  ModelRunner(model::Model& model, ThreadPool& pool, const RunnerOptions& options,
              std::unique_ptr<KvStorage> storage);

  void Forward(const StepPlan& plan);
  [[nodiscard]] static std::vector<WantedRow> FindWantedRows(const StepPlan& plan);
  void ComputeRows(const StepPlan& plan, std::span<const WantedRow> wanted, StepResult& result);
  // Fills the row's part of `result`, which no other row touches.
  [[nodiscard]] Status UseRow(const PlanItem& item, const WantedRow& wanted,
                              std::span<const float> logits, sample::Sampler& sampler,
                              ItemResult& result) const;

  model::Model& model_;
  ThreadPool& pool_;
  const size_t groups_count_;
  std::unique_ptr<KvStorage> storage_;
  std::vector<kernels::KvView> kv_views_;  // [L]
  std::vector<sample::Sampler> samplers_;  // one a worker
  std::vector<float> logits_;              // of the rows at hand, [rows, V]
};

}  // namespace kvasir::runner
