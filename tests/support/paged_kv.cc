#include "support/paged_kv.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kvasir::test {

PagedKv::PagedKv(const model::ModelSpec& spec, int64_t blocks_count, uint64_t seed,
                 int64_t block_tokens, DType dtype)
    : block_tokens_(block_tokens), views_(spec.layers.size()) {
  Rng rng(seed);
  for (const model::CacheGroup& group : spec.cache_groups) {
    int64_t layer_bytes = 0;
    for (const int layer : group.layers) {
      const model::GroupedQueryAttention& attention = spec.layers[static_cast<size_t>(layer)].gqa();
      kernels::KvView& view = views_[static_cast<size_t>(layer)];
      view.block_tokens = block_tokens;
      view.kv_heads = attention.kv_heads;
      view.head_dim = attention.head_dim;
      view.dtype = dtype;
      layer_bytes = std::max(layer_bytes, kernels::LayerBlockBytes(view));
    }
    const int64_t block_bytes = layer_bytes * spec.layers_per_group;
    pools_.emplace_back(static_cast<size_t>(block_bytes * blocks_count), std::byte{0xFF});
    for (size_t slot = 0; slot < group.layers.size(); ++slot) {
      kernels::KvView& view = views_[static_cast<size_t>(group.layers[slot])];
      view.base = pools_.back().data() + static_cast<int64_t>(slot) * layer_bytes;
      view.block_stride_bytes = block_bytes;
    }
    std::vector<int32_t> free(static_cast<size_t>(blocks_count));
    for (size_t i = 0; i < free.size(); ++i) free[i] = static_cast<int32_t>(i);
    for (size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[rng.Below(i)]);
    free_.push_back(std::move(free));
  }
}

int32_t PagedKv::TakeBlock(size_t group) {
  KVASIR_CHECK(!free_[group].empty(), "the test's pool is too small");
  const int32_t block = free_[group].back();
  free_[group].pop_back();
  return block;
}

model::ForwardSequence TestSequence::Next(std::span<const int32_t> tokens) {
  model::ForwardSequence sequence;
  sequence.tokens = tokens;
  sequence.start = computed_;
  computed_ += static_cast<int64_t>(tokens.size());
  spans_.clear();
  for (size_t group = 0; group < tables_.size(); ++group) {
    while (static_cast<int64_t>(tables_[group].size()) * kv_.block_tokens() < computed_) {
      tables_[group].push_back(kv_.TakeBlock(group));
    }
    spans_.emplace_back(tables_[group]);
  }
  sequence.block_tables = spans_;
  return sequence;
}

double LogProb(std::span<const float> logits, int32_t token) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  return static_cast<double>(logits[static_cast<size_t>(token)]) - most - std::log(sum);
}

int32_t ArgMax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace kvasir::test
