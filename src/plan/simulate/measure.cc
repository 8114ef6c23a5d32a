#include "plan/simulate/measure.h"

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "cache/capacity.h"

namespace kvasir::plan {
namespace {

constexpr int kRunsMin = 3;
constexpr int kRunsMax = 200;
// About what computing the prompt takes of a whole measurement.
constexpr double kFillShare = 0.2;

// 1, 2, 4 ... and `max` itself.
std::vector<int64_t> Doublings(int64_t first, int64_t max) {
  std::vector<int64_t> values;
  for (int64_t value = first; value < max; value *= 2) values.push_back(value);
  values.push_back(max);
  return values;
}

// What is measured, by the context of the decoding sequences: they are made anew for each.
std::map<int64_t, std::vector<CalibrationPoint>> ShapesToMeasure(const StepBench& bench,
                                                                 const MeasureOptions& options,
                                                                 int64_t prompt_positions) {
  std::map<int64_t, std::vector<CalibrationPoint>> shapes;
  const int64_t step = options.step_tokens_max;
  const int64_t depth = options.context_max;
  for (const int64_t tokens : Doublings(2, step)) {
    shapes[0].push_back({.prefill_tokens = tokens});
    if (tokens == step || tokens == 16 || tokens == 64) {
      shapes[0].push_back({.prefill_tokens = tokens, .prefill_start = depth / 4});
      shapes[0].push_back({.prefill_tokens = tokens, .prefill_start = depth - 1});
      shapes[0].push_back({.prefill_tokens = tokens, .prefill_draws = true});
    }
  }
  for (int64_t context = depth; context >= 16; context /= 4) {
    const int64_t fit =
        std::min({options.sequences_max, step, options.sequences_tokens_max / context,
                  bench.SequencesThatFit(context, prompt_positions)});
    if (fit < 1) continue;
    std::vector<CalibrationPoint>& here = shapes[context];
    for (const int64_t count : Doublings(1, fit)) {
      here.push_back({.decode_sequences = count, .decode_context = context});
    }
    // Both kinds in one step.
    const int64_t beside = std::min<int64_t>(fit, 8);
    if (step > beside) {
      here.push_back(
          {.prefill_tokens = step - beside, .decode_sequences = beside, .decode_context = context});
    }
  }
  return shapes;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

StepBench::StepBench(Runner& runner, const CacheSpec& cache, int64_t vocab_size)
    : runner_(runner), cache_(cache), vocab_size_(vocab_size), prompt_(cache.groups.size()) {
  sampling_.temperature = 0;
}

PlanItem StepBench::MakeItem(const std::vector<std::vector<BlockId>>& tables, int64_t start,
                             int64_t tokens, bool draws) const {
  const std::span<const TokenId> known = tokens_;
  PlanItem item;
  item.start = start;
  item.tokens = known.subspan(static_cast<size_t>(start), static_cast<size_t>(tokens));
  item.block_tables.assign(tables.begin(), tables.end());
  if (draws) {
    item.samples.push_back({.params = &sampling_,
                            .seed = 0,
                            .history = known.first(static_cast<size_t>(start + tokens)),
                            .prompt_tokens_count = start + tokens});
  }
  return item;
}

Status StepBench::FillPrompt(int64_t positions, int64_t chunk,
                             const std::function<void(double)>& progress) {
  const int64_t blocks = cache::BlocksFor(positions, cache_.block_tokens);
  const auto groups = static_cast<int64_t>(cache_.groups.size());
  if (blocks * groups > cache_.blocks_count) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "a prompt of {} tokens needs {} KV blocks, and the cache has {}", positions,
                     blocks * groups, cache_.blocks_count);
  }
  for (int64_t group = 0; group < groups; ++group) {
    std::vector<BlockId>& table = prompt_[static_cast<size_t>(group)];
    table.clear();
    for (int64_t block = 0; block < blocks; ++block) {
      table.push_back(static_cast<BlockId>(block * groups + group));
    }
  }
  // Any ids will do: a step's time does not depend on them.
  Rng rng(1);
  tokens_.clear();
  for (int64_t i = 0; i < positions; ++i) {
    tokens_.push_back(static_cast<TokenId>(rng.Below(static_cast<uint64_t>(vocab_size_))));
  }
  for (prompt_computed_ = 0; prompt_computed_ < positions;) {
    const int64_t count = std::min(chunk, positions - prompt_computed_);
    KVASIR_ASSIGN_OR_RETURN([[maybe_unused]] const double seconds,
                            Run({.prefill_tokens = count, .prefill_start = prompt_computed_}));
    prompt_computed_ += count;
    progress(static_cast<double>(prompt_computed_) / static_cast<double>(positions));
  }
  return Status::Ok();
}

int64_t StepBench::SequencesThatFit(int64_t context, int64_t prompt_positions) const {
  const auto groups = static_cast<int64_t>(cache_.groups.size());
  const int64_t left =
      cache_.blocks_count - groups * cache::BlocksFor(prompt_positions, cache_.block_tokens);
  return std::max<int64_t>(0, left / (groups * cache::BlocksFor(context, cache_.block_tokens)));
}

Status StepBench::FillSequences(int64_t count, int64_t context) {
  const auto prompt_positions = static_cast<int64_t>(prompt_.front().size()) * cache_.block_tokens;
  KVASIR_CHECK(context <= prompt_computed_ && count <= SequencesThatFit(context, prompt_positions));
  const int64_t blocks = cache::BlocksFor(context, cache_.block_tokens);
  auto next = static_cast<BlockId>(prompt_.size() * prompt_.front().size());
  StepPlan plan;
  tables_.assign(static_cast<size_t>(count),
                 std::vector<std::vector<BlockId>>(cache_.groups.size()));
  for (std::vector<std::vector<BlockId>>& tables : tables_) {
    for (int64_t block = 0; block < blocks; ++block) {
      for (size_t group = 0; group < tables.size(); ++group) {
        plan.copies.push_back({prompt_[group][static_cast<size_t>(block)], next});
        tables[group].push_back(next++);
      }
    }
  }
  context_ = context;
  runner_.Run(plan);
  return Status::Ok();
}

Result<double> StepBench::Run(const CalibrationPoint& shape) {
  StepPlan plan;
  if (shape.prefill_tokens > 0) {
    plan.items.push_back(
        MakeItem(prompt_, shape.prefill_start, shape.prefill_tokens, shape.prefill_draws));
  }
  KVASIR_CHECK(shape.decode_sequences <= static_cast<int64_t>(tables_.size()));
  for (int64_t i = 0; i < shape.decode_sequences; ++i) {
    KVASIR_CHECK(shape.decode_context == context_);
    plan.items.push_back(MakeItem(tables_[static_cast<size_t>(i)], context_ - 1, 1, true));
  }
  StepResult result;
  const TimeNs began = clock_.Now();
  try {
    result = runner_.Run(plan);
  } catch (const std::exception& exception) {
    return MakeError(ErrorCode::kInternal, "a step of {} tokens failed: {}", plan.TokensCount(),
                     exception.what());
  }
  const double seconds = ToSeconds(clock_.Now() - began);
  for (const ItemResult& item : result.items) {
    if (item.error) return *item.error;
  }
  return seconds;
}

Status StepBench::Measure(double seconds, std::span<CalibrationPoint> points,
                          const std::function<void(double)>& progress) {
  struct Runs {
    std::vector<double> seconds;
    double spent = 0;
  };
  std::vector<Runs> all(points.size());
  // The first run meets cold caches and untouched memory.
  for (const CalibrationPoint& point : points) {
    KVASIR_ASSIGN_OR_RETURN([[maybe_unused]] const double cold, Run(point));
  }
  // In turns, so that a busy moment of the machine falls on all alike.
  for (size_t open = points.size(); open > 0;) {
    open = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      Runs& runs = all[i];
      const auto count = static_cast<int>(runs.seconds.size());
      if (count >= kRunsMin && (runs.spent >= seconds || count >= kRunsMax)) continue;
      KVASIR_ASSIGN_OR_RETURN(const double run, Run(points[i]));
      runs.seconds.push_back(run);
      runs.spent += run;
      ++open;
    }
    progress(1 - static_cast<double>(open) / static_cast<double>(points.size()));
  }
  for (size_t i = 0; i < points.size(); ++i) {
    points[i].seconds_min = *std::ranges::min_element(all[i].seconds);
    points[i].seconds = Median(std::move(all[i].seconds));
  }
  return Status::Ok();
}

Result<std::vector<CalibrationPoint>> MeasureSteps(Runner& runner, const CacheSpec& cache,
                                                   int64_t vocab_size,
                                                   const MeasureOptions& options) {
  StepBench bench(runner, cache, vocab_size);
  const int64_t positions = options.context_max + options.step_tokens_max;
  auto shapes = ShapesToMeasure(bench, options, positions);
  size_t total = 0;
  for (const auto& [context, points] : shapes) total += points.size();
  options.progress(0);
  KVASIR_RETURN_IF_ERROR(bench.FillPrompt(positions, options.step_tokens_max, [&](double share) {
    options.progress(kFillShare * share);
  }));
  std::vector<CalibrationPoint> measured;
  for (auto& [context, shape_points] : shapes) {
    std::vector<CalibrationPoint>& points = shape_points;
    if (context > 0) {
      int64_t count = 0;
      for (const CalibrationPoint& point : points) {
        count = std::max(count, point.decode_sequences);
      }
      KVASIR_RETURN_IF_ERROR(bench.FillSequences(count, context));
    }
    KVASIR_RETURN_IF_ERROR(bench.Measure(options.seconds_per_point, points, [&](double share) {
      const double done =
          static_cast<double>(measured.size()) + share * static_cast<double>(points.size());
      options.progress(kFillShare + (1 - kFillShare) * done / static_cast<double>(total));
    }));
    measured.insert(measured.end(), points.begin(), points.end());
  }
  options.progress(1);
  return measured;
}

}  // namespace kvasir::plan
