#include "plan/simulate/step_time.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace kvasir::plan {
namespace {

// What a token at position p reads of one group, summed over p = start ... start + tokens - 1.
double PairsOf(const CacheGroupSpec& group, int64_t start, int64_t tokens) {
  int64_t growing = tokens;
  if (group.kind == CacheGroupSpec::Kind::kSlidingWindow) {
    growing = std::clamp<int64_t>(group.window_tokens - start, 0, tokens);
  }
  const auto count = static_cast<double>(growing);
  return count * static_cast<double>(start) + count * (count + 1) / 2 +
         static_cast<double>(tokens - growing) * static_cast<double>(group.window_tokens);
}

// What all of them together read of one group.
int64_t ContextOf(const CacheGroupSpec& group, int64_t start, int64_t tokens) {
  const int64_t all = start + tokens;
  if (group.kind == CacheGroupSpec::Kind::kFull) return all;
  return std::min(all, group.window_tokens - 1 + tokens);
}

// How much of x lies in the piece that ends at knots[i].
double InPiece(const std::vector<double>& knots, size_t i, double x) {
  const double begin = i == 0 ? 0 : knots[i - 1];
  return std::clamp(x, begin, knots[i]) - begin;
}

struct Equations {
  std::vector<std::vector<double>> rows;  // [points][unknowns]
  std::vector<double> wanted;             // [points]
};

// Least squares with every unknown at least 0, by coordinate descent: exact where it stops, because
// the problem is convex.
std::vector<double> SolveNonNegative(const Equations& equations) {
  constexpr int kSweepsMax = 50'000;
  constexpr double kStopChange = 1e-12;
  const size_t count = equations.rows.front().size();
  // Columns of equal length, so that one threshold fits them all.
  std::vector<double> scale(count, 0.0);
  for (const std::vector<double>& row : equations.rows) {
    for (size_t j = 0; j < count; ++j) scale[j] += row[j] * row[j];
  }
  for (double& length : scale) length = std::sqrt(length);
  std::vector<double> gram(count * count, 0.0);
  std::vector<double> right(count, 0.0);
  for (size_t r = 0; r < equations.rows.size(); ++r) {
    const std::vector<double>& row = equations.rows[r];
    for (size_t j = 0; j < count; ++j) {
      if (scale[j] == 0) continue;
      right[j] += row[j] / scale[j] * equations.wanted[r];
      for (size_t k = 0; k < count; ++k) {
        if (scale[k] != 0) gram[j * count + k] += row[j] / scale[j] * row[k] / scale[k];
      }
    }
  }
  std::vector<double> solution(count, 0.0);
  for (int sweep = 0; sweep < kSweepsMax; ++sweep) {
    double change_max = 0;
    for (size_t j = 0; j < count; ++j) {
      if (scale[j] == 0) continue;
      double slope = right[j];
      for (size_t k = 0; k < count; ++k) slope -= gram[j * count + k] * solution[k];
      const double better = std::max(0.0, solution[j] + slope);
      change_max = std::max(change_max, std::abs(better - solution[j]));
      solution[j] = better;
    }
    if (change_max < kStopChange) break;
  }
  for (size_t j = 0; j < count; ++j) solution[j] = scale[j] == 0 ? 0 : solution[j] / scale[j];
  return solution;
}

std::vector<CacheGroupSpec> GroupsOf(const Calibration& calibration) {
  std::vector<CacheGroupSpec> groups;
  for (const int64_t window : calibration.window_tokens) {
    groups.push_back(
        {.kind = window == 0 ? CacheGroupSpec::Kind::kFull : CacheGroupSpec::Kind::kSlidingWindow,
         .window_tokens = window});
  }
  return groups;
}

StepShape ShapeOfPoint(const CalibrationPoint& point, std::span<const CacheGroupSpec> groups) {
  StepShape shape;
  if (point.prefill_tokens > 0) {
    AddItem(point.prefill_tokens, point.prefill_start, point.prefill_draws, groups, shape);
  }
  if (point.decode_sequences > 0) {
    StepShape one;
    AddItem(1, std::max<int64_t>(0, point.decode_context - 1), true, groups, one);
    shape.tokens += point.decode_sequences;
    shape.drawn_rows += point.decode_sequences;
    shape.sequences += point.decode_sequences;
    shape.decode_context += static_cast<double>(point.decode_sequences) * one.decode_context;
  }
  return shape;
}

}  // namespace

void AddItem(int64_t tokens, int64_t start, bool draws, std::span<const CacheGroupSpec> groups,
             StepShape& shape) {
  shape.tokens += tokens;
  shape.drawn_rows += draws ? 1 : 0;
  ++shape.sequences;
  const auto share = 1.0 / static_cast<double>(groups.size());
  for (const CacheGroupSpec& group : groups) {
    const auto context = static_cast<double>(ContextOf(group, start, tokens));
    if (tokens == 1) {
      shape.decode_context += share * context;
    } else {
      shape.prefill_context += share * context;
      shape.prefill_pairs += share * PairsOf(group, start, tokens);
    }
  }
}

StepShape ShapeOf(const StepPlan& plan, std::span<const CacheGroupSpec> groups) {
  StepShape shape;
  for (const PlanItem& item : plan.items) {
    AddItem(static_cast<int64_t>(item.tokens.size()), item.start, !item.samples.empty(), groups,
            shape);
  }
  return shape;
}

double FittedStepTime::Curve::At(double x) const {
  double value = base;
  for (size_t i = 0; i < knots.size(); ++i) {
    const double part = InPiece(knots, i, x);
    if (part <= 0) break;
    value += slopes[i] * part;
  }
  return value + tail_slope * std::max(0.0, x - knots.back());
}

void FittedStepTime::Curve::FindTail() {
  double mean = 0;
  for (size_t i = 0; i < knots.size(); ++i) mean += slopes[i] * InPiece(knots, i, knots.back());
  mean /= knots.back();
  tail_slope = std::max(slopes.back(), mean);
}

double FittedStepTime::RunnerSeconds(const StepShape& shape) const {
  double seconds = layers_.At(static_cast<double>(shape.tokens));
  if (shape.drawn_rows > 0) seconds += head_.At(static_cast<double>(shape.drawn_rows));
  return seconds + per_decode_context_ * shape.decode_context +
         per_prefill_context_ * shape.prefill_context + per_prefill_pair_ * shape.prefill_pairs;
}

Result<FittedStepTime> FittedStepTime::Fit(const Calibration& calibration) {
  const std::vector<CacheGroupSpec> groups = GroupsOf(calibration);
  FittedStepTime time;
  std::vector<StepShape> shapes;
  std::set<double> layer_knots;
  std::set<double> head_knots;
  for (const CalibrationPoint& point : calibration.points) {
    const StepShape& shape = shapes.emplace_back(ShapeOfPoint(point, groups));
    // A knot that steps of both kinds alone touch could not be told from a knot of the other curve.
    if (point.prefill_tokens > 0 && point.decode_sequences > 0) continue;
    layer_knots.insert(static_cast<double>(shape.tokens));
    if (shape.drawn_rows > 0) head_knots.insert(static_cast<double>(shape.drawn_rows));
  }
  const auto prefills = std::ranges::count_if(
      calibration.points, [](const CalibrationPoint& point) { return point.prefill_tokens > 1; });
  const auto decodes = std::ranges::count_if(
      calibration.points, [](const CalibrationPoint& point) { return point.decode_sequences > 0; });
  if (groups.empty() || prefills < 2 || decodes < 2) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "the calibration of {}: expected at least 2 measured steps with a prompt and "
                     "2 that decode, got {} and {}",
                     calibration.model, prefills, decodes);
  }
  time.layers_.knots.assign(layer_knots.begin(), layer_knots.end());
  time.head_.knots.assign(head_knots.begin(), head_knots.end());

  // Unknowns in their order: layers' base and slopes, head's base and slopes, three of context.
  Equations equations;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const StepShape& shape = shapes[i];
    // Errors count as shares of what was measured, so that short steps weigh as much as long ones.
    const double weight = 1.0 / calibration.points[i].seconds;
    std::vector<double>& row = equations.rows.emplace_back();
    row.push_back(weight);
    for (size_t k = 0; k < time.layers_.knots.size(); ++k) {
      row.push_back(weight * InPiece(time.layers_.knots, k, static_cast<double>(shape.tokens)));
    }
    row.push_back(shape.drawn_rows > 0 ? weight : 0);
    for (size_t k = 0; k < time.head_.knots.size(); ++k) {
      row.push_back(weight * InPiece(time.head_.knots, k, static_cast<double>(shape.drawn_rows)));
    }
    row.push_back(weight * shape.decode_context);
    row.push_back(weight * shape.prefill_context);
    row.push_back(weight * shape.prefill_pairs);
    equations.wanted.push_back(1.0);
  }
  const std::vector<double> solution = SolveNonNegative(equations);
  auto next = solution.begin();
  for (Curve* curve : {&time.layers_, &time.head_}) {
    curve->base = *next++;
    curve->slopes.assign(next, next + static_cast<std::ptrdiff_t>(curve->knots.size()));
    next += static_cast<std::ptrdiff_t>(curve->knots.size());
    curve->FindTail();
  }
  time.per_decode_context_ = *next++;
  time.per_prefill_context_ = *next++;
  time.per_prefill_pair_ = *next++;
  time.host_per_step_ = calibration.host_seconds_per_step;
  time.host_per_sequence_ = calibration.host_seconds_per_sequence;

  for (size_t i = 0; i < shapes.size(); ++i) {
    const double measured = calibration.points[i].seconds;
    const double error = std::abs(time.RunnerSeconds(shapes[i]) - measured) / measured;
    time.fit_error_mean_ += error / static_cast<double>(shapes.size());
    time.fit_error_max_ = std::max(time.fit_error_max_, error);
  }
  return time;
}

}  // namespace kvasir::plan
