#include "runner/step_budget.h"

#include <algorithm>

namespace kvasir::runner {

int64_t ValuesPerToken(const model::ModelSpec& spec) {
  int64_t values = spec.vocab_size * spec.hidden_size;
  for (const model::LayerSpec& layer : spec.layers) {
    const model::GroupedQueryAttention& attention = layer.gqa();
    values += spec.hidden_size * 2 * (attention.QueryCols() + attention.KvCols());
    const model::DenseFfn& ffn = layer.dense_ffn();
    values += (ffn.gated ? 3 : 2) * spec.hidden_size * ffn.hidden_size;
  }
  return values;
}

int64_t DefaultStepTokens(int64_t values_per_token, std::string_view backend, int64_t threads) {
  constexpr double kStepSeconds = 0.15;
  // Operations a second and core that the kernels reach on small models.
  const double operations_per_second = backend == "avx512" ? 150e9
                                       : backend == "avx2" ? 60e9
                                                           : 1.5e9;
  const double tokens = kStepSeconds * operations_per_second * static_cast<double>(threads) /
                        (2.0 * static_cast<double>(values_per_token));
  const auto rounded = static_cast<int64_t>(tokens / 32.0) * 32;
  return std::clamp<int64_t>(rounded, 32, 2048);
}

}  // namespace kvasir::runner
