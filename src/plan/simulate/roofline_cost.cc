#include <vector>

#include "plan/roofline.h"
#include "plan/simulate/cost_models.h"

namespace kvasir::plan {

namespace {

class RooflineCost final : public StepCostModel {
 public:
  RooflineCost(const Hardware& hardware, const ModelShape& shape, const RooflineOptions& options)
      : roofline_(hardware, shape, options) {}

  [[nodiscard]] double Seconds(const StepPlan& plan) const override {
    sequences_.clear();
    int64_t logits_count = 0;
    for (const PlanItem& item : plan.items) {
      sequences_.push_back({static_cast<int64_t>(item.tokens.size()), item.start});
      logits_count += item.samples.empty() ? 0 : 1;
    }
    return roofline_.Step(sequences_, logits_count).seconds;
  }

 private:
  Roofline roofline_;
  mutable std::vector<StepSequence> sequences_;  ///< scratch
};

}  // namespace

std::unique_ptr<StepCostModel> MakeRooflineCost(const Hardware& hardware, const ModelShape& shape,
                                                const RooflineOptions& options) {
  return std::make_unique<RooflineCost>(hardware, shape, options);
}

int64_t TokensWithin(const StepCostModel& cost, double seconds, int64_t most, size_t groups_count) {
  constexpr int64_t kStep = 32;
  const std::vector<TokenId> tokens(static_cast<size_t>(most));
  StepPlan plan;
  plan.items.emplace_back();
  plan.items[0].block_tables.resize(groups_count);
  plan.items[0].samples.emplace_back();
  int64_t low = 1;  // in units of kStep
  int64_t high = most / kStep;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    plan.items[0].tokens = std::span(tokens).first(static_cast<size_t>(middle * kStep));
    if (cost.Seconds(plan) <= seconds) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * kStep;
}

}  // namespace kvasir::plan
