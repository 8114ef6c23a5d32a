// A loaded model: its weights packed for one backend, and the forward pass over the paged cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "files/model_files.h"
#include "kernels/backend.h"
#include "model/spec.h"

namespace kvasir::model {

struct LoadOptions {
  /// Called now and then with bytes done and bytes in all, for a progress line.
  std::function<void(int64_t bytes_done, int64_t bytes_total)> progress;
};

/// The rows of one sequence in a step.
struct ForwardSequence {
  std::span<const int32_t> tokens;                     ///< ids at positions start, start + 1, ...
  int64_t start = 0;
  std::span<const std::span<const int32_t>> block_tables;  ///< one a cache group (spec().cache_groups)
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
