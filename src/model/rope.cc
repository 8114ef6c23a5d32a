#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvasir::model {
namespace {

std::vector<double> BaseFrequencies(double theta, int64_t rotated_dims) {
  std::vector<double> frequencies(static_cast<size_t>(rotated_dims / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotated_dims));
  }
  return frequencies;
}

/// Llama 3.1: long waves are stretched by the factor, short ones kept, those between blended.
void ScaleLlama3(const RopeScaling& scaling, std::vector<double>& frequencies) {
  const auto original = static_cast<double>(scaling.original_max_positions);
  for (double& f : frequencies) {
    const double wavelength = 2.0 * std::numbers::pi / f;
    if (wavelength < original / scaling.high_freq_factor) continue;
    if (wavelength > original / scaling.low_freq_factor) {
      f /= scaling.factor;
      continue;
    }
    const double keep = (original / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
    f = (1.0 - keep) * f / scaling.factor + keep * f;
  }
}

double YarnMscale(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

/// YaRN (Peng et al. 2023): pairs that turn often in the original length are kept, those that turn
/// less than once are stretched, with a ramp between.
void ScaleYarn(double theta, int64_t rotated_dims, const RopeScaling& scaling,
               RopeTableSpec& table) {
  const auto original = static_cast<double>(scaling.original_max_positions);
  const auto dims = static_cast<double>(rotated_dims);
  const auto pair_that_turns = [&](double turns) {
    return dims * std::log(original / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(theta));
  };
  double low = pair_that_turns(scaling.beta_fast);
  double high = pair_that_turns(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1.0);
  if (low == high) high += 0.001;  // as published: a step rather than a division by zero
  for (size_t i = 0; i < table.frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& f = table.frequencies[i];
    f = f / scaling.factor * stretched + f * (1.0 - stretched);
  }
  if (scaling.mscale != 0.0 && scaling.mscale_all_dim != 0.0) {
    table.attention_factor = YarnMscale(scaling.factor, scaling.mscale) /
                             YarnMscale(scaling.factor, scaling.mscale_all_dim);
  } else {
    table.attention_factor = YarnMscale(scaling.factor, 1.0);
  }
}

Status DivideFrequencies(const std::vector<double>& divisors, RopeTableSpec& table) {
  if (divisors.size() != table.frequencies.size()) {
    return MakeError(ErrorCode::kDataLoss,
                     "rope: expected {} factors (half the rotated dims), got {}",
                     table.frequencies.size(), divisors.size());
  }
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (!(divisors[i] > 0.0) || !std::isfinite(divisors[i])) {
      return MakeError(ErrorCode::kDataLoss, "rope: factor {} is {}, expected a positive number", i,
                       divisors[i]);
    }
    table.frequencies[i] /= divisors[i];
  }
  return Status::Ok();
}

Status CheckNumbers(double theta, int64_t rotated_dims, const RopeScaling& scaling) {
  if (!(theta > 1.0) || !std::isfinite(theta)) {
    return MakeError(ErrorCode::kDataLoss, "rope: base (rope_theta) is {}, expected more than 1",
                     theta);
  }
  if (rotated_dims < 2 || rotated_dims % 2 != 0) {
    return MakeError(ErrorCode::kDataLoss,
                     "rope: {} rotated dims (head_dim), expected an even number >= 2",
                     rotated_dims);
  }
  using Kind = RopeScaling::Kind;
  if (scaling.kind == Kind::kNone || scaling.kind == Kind::kDivisors) return Status::Ok();
  if (!(scaling.factor > 0.0) || !std::isfinite(scaling.factor)) {
    return MakeError(ErrorCode::kDataLoss, "rope: scaling factor is {}, expected a positive number",
                     scaling.factor);
  }
  if (scaling.kind != Kind::kLinear && scaling.original_max_positions < 1) {
    return MakeError(ErrorCode::kDataLoss,
                     "rope: original_max_position_embeddings is {}, expected at least 1",
                     scaling.original_max_positions);
  }
  return Status::Ok();
}

/// Numbers that are each in range may still make a rotation that is none.
Status CheckTable(const RopeTableSpec& table) {
  constexpr double kFactorMax = 1e6;
  if (!(std::abs(table.attention_factor) <= kFactorMax)) {
    return MakeError(ErrorCode::kDataLoss, "rope: attention factor is {}, expected at most {}",
                     table.attention_factor, kFactorMax);
  }
  for (const double frequency : table.frequencies) {
    if (!std::isfinite(frequency)) {
      return MakeError(ErrorCode::kDataLoss,
                       "rope: its scaling gives a frequency of {}, expected a finite number",
                       frequency);
    }
  }
  return Status::Ok();
}

}  // namespace

Result<RopeTableSpec> MakeRopeTable(double theta, int64_t rotated_dims, const RopeScaling& scaling,
                                    int64_t max_model_len) {
  KVASIR_RETURN_IF_ERROR(CheckNumbers(theta, rotated_dims, scaling));
  const bool beyond_original = max_model_len > scaling.original_max_positions;
  if (scaling.kind == RopeScaling::Kind::kDynamic && beyond_original) {
    // The base that "dynamic" reaches at factor times the original length, kept for every length.
    const double stretch = scaling.factor * scaling.factor - (scaling.factor - 1.0);
    const auto dims = static_cast<double>(rotated_dims);
    if (rotated_dims > 2) theta *= std::pow(stretch, dims / (dims - 2.0));
  }
  RopeTableSpec table{BaseFrequencies(theta, rotated_dims), 1.0};
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
    case RopeScaling::Kind::kDynamic:
      break;
    case RopeScaling::Kind::kLinear:
      for (double& f : table.frequencies) f /= scaling.factor;
      break;
    case RopeScaling::Kind::kLlama3:
      ScaleLlama3(scaling, table.frequencies);
      break;
    case RopeScaling::Kind::kYarn:
      ScaleYarn(theta, rotated_dims, scaling, table);
      break;
    case RopeScaling::Kind::kLongrope: {
      KVASIR_RETURN_IF_ERROR(
          DivideFrequencies(beyond_original ? scaling.long_factors : scaling.short_factors, table));
      const auto original = static_cast<double>(scaling.original_max_positions);
      const double ratio = static_cast<double>(scaling.max_positions) / original;
      if (ratio > 1.0) {
        table.attention_factor = std::sqrt(1.0 + std::log(ratio) / std::log(original));
      }
      break;
    }
    case RopeScaling::Kind::kDivisors:
      KVASIR_RETURN_IF_ERROR(DivideFrequencies(scaling.short_factors, table));
      break;
  }
  if (scaling.attention_factor != 0.0) table.attention_factor = scaling.attention_factor;
  KVASIR_RETURN_IF_ERROR(CheckTable(table));
  return table;
}

void RopeTable::Grow(int64_t positions_count) {
  if (positions_count <= positions_count_) return;
  const int64_t first = positions_count_;
  positions_count_ = std::max(positions_count, 2 * positions_count_);
  const size_t pairs = spec_.frequencies.size();
  cos_.resize(static_cast<size_t>(positions_count_) * pairs);
  sin_.resize(cos_.size());
  for (int64_t position = first; position < positions_count_; ++position) {
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) * spec_.frequencies[i];
      const size_t at = static_cast<size_t>(position) * pairs + i;
      cos_[at] = static_cast<float>(std::cos(angle) * spec_.attention_factor);
      sin_[at] = static_cast<float>(std::sin(angle) * spec_.attention_factor);
    }
  }
}

}  // namespace kvasir::model
