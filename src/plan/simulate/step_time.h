// How long a step takes on a calibrated machine: a sum of parts that only grow, fitted to what was
// measured.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "contract/cache_spec.h"
#include "contract/step.h"
#include "plan/simulate/calibration.h"

namespace kvasir::plan {

/// What a step's time depends on. Tokens of context are means over the layers: a layer with a
/// window of w reads at most w.
struct StepShape {
  int64_t tokens = 0;      ///< rows through the layers
  int64_t drawn_rows = 0;  ///< rows through the head
  int64_t sequences = 0;   ///< items
  /// Read by items of one token: the sum of their contexts, the tokens themselves included.
  double decode_context = 0;
  /// Read at least once by items of several tokens: the sum of their contexts after the step.
  double prefill_context = 0;
  /// Pairs of a token and one that it reads, of items of several tokens.
  double prefill_pairs = 0;
};

/// Adds an item of `tokens` tokens after `start` computed ones. All groups have equally many
/// layers.
void AddItem(int64_t tokens, int64_t start, bool draws, std::span<const CacheGroupSpec> groups,
             StepShape& shape);

[[nodiscard]] StepShape ShapeOf(const StepPlan& plan, std::span<const CacheGroupSpec> groups);

/// seconds = layers(tokens) + head(drawn_rows) + costs of context and pairs + the host's share,
/// where layers() and head() are piecewise linear and never fall. All coefficients are at least 0,
/// so that more work never takes less time. Beyond the largest step that was measured the last
/// piece goes on, at least as steep as all pieces are on average.
class FittedStepTime {
 public:
  /// Errors: points that do not tell all parts apart (no step of a prompt, or none that decodes).
  [[nodiscard]] static Result<FittedStepTime> Fit(const Calibration& calibration);

  /// Of the runner alone.
  [[nodiscard]] double RunnerSeconds(const StepShape& shape) const;
  /// Of the runner and the engine around it.
  [[nodiscard]] double Seconds(const StepShape& shape) const {
    return RunnerSeconds(shape) + host_per_step_ +
           host_per_sequence_ * static_cast<double>(shape.sequences);
  }

  /// Mean over the points of |predicted - measured| / measured.
  [[nodiscard]] double fit_error_mean() const { return fit_error_mean_; }
  [[nodiscard]] double fit_error_max() const { return fit_error_max_; }

 private:
  /// Seconds at 0, then a slope (seconds a unit) up to each knot, and one beyond the last.
  struct Curve {
    double base = 0;
    std::vector<double> knots;
    std::vector<double> slopes;
    double tail_slope = 0;
    void FindTail();
    [[nodiscard]] double At(double x) const;
  };

  Curve layers_;
  Curve head_;
  double per_decode_context_ = 0;
  double per_prefill_context_ = 0;
  double per_prefill_pair_ = 0;
  double host_per_step_ = 0;
  double host_per_sequence_ = 0;
  double fit_error_mean_ = 0;
  double fit_error_max_ = 0;
};

}  // namespace kvasir::plan
