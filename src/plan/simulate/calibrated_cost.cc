#include <utility>
#include <vector>

#include "plan/simulate/cost_models.h"
#include "plan/simulate/step_time.h"

namespace kvasir::plan {

namespace {

class CalibratedCost final : public StepCostModel {
 public:
  CalibratedCost(FittedStepTime time, std::span<const CacheGroupSpec> groups)
      : time_(std::move(time)), groups_(groups.begin(), groups.end()) {}

  [[nodiscard]] double Seconds(const StepPlan& plan) const override {
    return time_.Seconds(ShapeOf(plan, groups_));
  }

 private:
  FittedStepTime time_;
  std::vector<CacheGroupSpec> groups_;
};

}  // namespace

Result<std::unique_ptr<StepCostModel>> MakeCalibratedCost(const Calibration& calibration,
                                                          std::span<const CacheGroupSpec> groups) {
  KVASIR_ASSIGN_OR_RETURN(FittedStepTime time, FittedStepTime::Fit(calibration));
  return std::unique_ptr<StepCostModel>(std::make_unique<CalibratedCost>(std::move(time), groups));
}

}  // namespace kvasir::plan
