// A loaded model: its weights packed for one backend, and the forward pass over the paged cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "files/model_files.h"
#include "kernels/backend.h"
#include "model/bound_weights.h"
#include "model/rope.h"
#include "model/spec.h"
#include "model/workspace.h"

namespace kvasir::model {

struct LoadOptions {
  /// Longest sequence that will be served; 0 = spec().max_positions. Two rope scalings choose their
  /// frequencies by it (docs/models.md): longrope and dynamic.
  int64_t max_model_len = 0;
  /// Called now and then with bytes done and bytes in all, for a progress line.
  std::function<void(int64_t bytes_done, int64_t bytes_total)> progress;
};

/// The rows of one sequence in a step.
struct ForwardSequence {
  std::span<const int32_t> tokens;  ///< ids at positions start, start + 1, ...
  int64_t start = 0;
  std::span<const std::span<const int32_t>>
      block_tables;  ///< one a cache group (spec().cache_groups)
};

class Model {
 public:
  /// Reads the config, names and packs every tensor. One-line errors that name file and tensor.
  static Result<std::unique_ptr<Model>> Load(const files::ModelFiles& files,
                                             kernels::Backend& backend,
                                             const LoadOptions& options = {});

  [[nodiscard]] const ModelSpec& spec() const { return spec_; }
  /// Bytes that the packed weights take in memory.
  [[nodiscard]] int64_t weights_bytes() const { return weights_bytes_; }

  /// Computes all rows of the batch (T = sum of tokens) and stores their KV. `kv[l]` is layer l's
  /// view. Returns the hidden rows [T, M] after the final norm; valid until the next call.
  const float* Forward(std::span<const ForwardSequence> batch, std::span<const kernels::KvView> kv);

  /// logits[i, V] of hidden rows `rows[i]` of the last Forward.
  void Logits(std::span<const int64_t> rows, float* logits);

 private:
  Model(ModelSpec spec, BoundWeights weights, kernels::Backend& backend);

  void Embed(std::span<const ForwardSequence> batch);
  void RunLayer(size_t layer_index, const kernels::KvView& kv);
  /// out[T, M] = attention of the rows x[T, M], KV stored first.
  void RunAttention(size_t layer_index, const kernels::KvView& kv, const float* x, float* out);
  void RunFfn(size_t layer_index, const float* x, float* out);
  /// y[rows_count, linear.cols] of x[rows_count, K].
  void RunLinear(const BoundLinear& linear, const float* x, int64_t ldx, int64_t rows_count,
                 float* y);
  void RunNorm(const NormSpec& spec, const BoundNorm& norm, const float* x, float* y);
  void AddResidual(const float* y);

  ModelSpec spec_;
  BoundWeights weights_;
  kernels::Backend& backend_;
  int64_t weights_bytes_ = 0;
  std::vector<size_t> group_of_layer_;
  std::vector<RopeTable> rope_tables_;

  // The step at hand, refilled by each Forward.
  int64_t tokens_count_ = 0;
  std::vector<int32_t> tokens_;                                     ///< [T]
  std::vector<int64_t> positions_;                                  ///< [T]
  std::vector<std::vector<kernels::AttentionSequence>> sequences_;  ///< [groups][S]
  std::vector<kernels::MatmulOutput> matmul_outputs_;
  Workspace workspace_;
};

}  // namespace kvasir::model
