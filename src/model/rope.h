// Rotary position embedding: frequencies of every scaling kind, and the cos/sin table of a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/spec.h"

namespace kvasir::model {

/// How a checkpoint stretches its frequencies. Names as Hugging Face has them.
struct RopeScaling {
  enum class Kind : uint8_t { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongrope, kDivisors };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  int64_t original_max_positions = 0;
  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // yarn
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 0.0;          ///< 0 = not given
  double mscale_all_dim = 0.0;  ///< 0 = not given
  bool truncate = true;
  /// Of cos and sin; 0 = by the kind's own formula.
  double attention_factor = 0.0;
  // longrope, [r / 2] each; kDivisors (GGUF's rope_freqs) has them in short_factors.
  std::vector<double> short_factors;
  std::vector<double> long_factors;
  int64_t max_positions = 0;  ///< of the config, for longrope's attention factor
};

/// Frequencies for `rotated_dims` (even) of base `theta`. `max_model_len` chooses between the two
/// forms of longrope and dynamic, as docs/models.md tells.
[[nodiscard]] Result<RopeTableSpec> MakeRopeTable(double theta, int64_t rotated_dims,
                                                  const RopeScaling& scaling,
                                                  int64_t max_model_len);

/// cos and sin [positions, r / 2] of one RopeTableSpec, grown as positions are needed. Angles are
/// computed in double from the position alone.
class RopeTable {
 public:
  explicit RopeTable(const RopeTableSpec& spec) : spec_(spec) {}
  /// Makes rows [0, positions_count) readable.
  void Grow(int64_t positions_count);
  [[nodiscard]] int64_t rotated_dims() const {
    return static_cast<int64_t>(spec_.frequencies.size()) * 2;
  }
  [[nodiscard]] const float* cos() const { return cos_.data(); }
  [[nodiscard]] const float* sin() const { return sin_.data(); }

 private:
  RopeTableSpec spec_;
  int64_t positions_count_ = 0;
  std::vector<float> cos_;
  std::vector<float> sin_;
};

}  // namespace kvasir::model
