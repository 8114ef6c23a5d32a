#include "sample/row.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "base/check.h"
#include "sample/lanes.h"

namespace kvasir::sample {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Calls body(first id, values, count) for each group of lanes; beyond the end values are -infinity.
template <typename Body>
void ForLanes(std::span<const float> row, int64_t begin, int64_t end, Body&& body) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(i, LoadLanes(row.data() + i), kLanes);
  if (i < end) {
    std::array<float, kLanes> tail;
    tail.fill(-kInfinity);
    std::copy(row.data() + i, row.data() + end, tail.begin());
    body(i, LoadLanes(tail.data()), end - i);
  }
}

int64_t BlocksCount(std::span<const float> row) {
  return (static_cast<int64_t>(row.size()) + kBlockIds - 1) / kBlockIds;
}

int64_t BlockEnd(std::span<const float> row, int64_t block) {
  return std::min(static_cast<int64_t>(row.size()), (block + 1) * kBlockIds);
}

double Sum(const DoubleLanes& lanes) { return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]); }

}  // namespace

void Scan(std::span<const float> row, RowScan& scan) {
  KVASIR_CHECK(!row.empty());
  const int64_t blocks_count = BlocksCount(row);
  scan.block_max.resize(static_cast<size_t>(blocks_count));
  IntLanes nan = {};
  scan.max = -kInfinity;
  int64_t best_block = 0;
  for (int64_t block = 0; block < blocks_count; ++block) {
    FloatLanes highest = Broadcast(-kInfinity);
    ForLanes(row, block * kBlockIds, BlockEnd(row, block),
             [&](int64_t, const FloatLanes& values, int64_t) {
               highest = values > highest ? values : highest;
               nan |= values != values;  // NOLINT(misc-redundant-expression): a NaN differs
             });
    const float block_max =
        std::max(std::max(highest[0], highest[1]), std::max(highest[2], highest[3]));
    scan.block_max[static_cast<size_t>(block)] = block_max;
    if (block_max > scan.max) {
      scan.max = block_max;
      best_block = block;
    }
  }
  scan.has_nan = (nan[0] | nan[1] | nan[2] | nan[3]) != 0;
  const auto first = row.begin() + best_block * kBlockIds;
  const auto last = row.begin() + BlockEnd(row, best_block);
  const auto found = std::find(first, last, scan.max);
  scan.argmax = found == last ? 0 : static_cast<TokenId>(found - row.begin());
}

float ReachedBy(const RowScan& scan, int64_t count) {
  if (count > static_cast<int64_t>(scan.block_max.size())) return -kInfinity;
  std::vector<float> maxima = scan.block_max;
  const auto nth = maxima.begin() + count - 1;
  std::nth_element(maxima.begin(), nth, maxima.end(), std::greater<>());
  return *nth;
}

void CollectAtLeast(std::span<const float> row, const RowScan& scan, float threshold,
                    std::vector<Candidate>& candidates) {
  candidates.clear();
  for (size_t block = 0; block < scan.block_max.size(); ++block) {
    if (scan.block_max[block] < threshold) continue;
    const int64_t end = BlockEnd(row, static_cast<int64_t>(block));
    for (int64_t i = static_cast<int64_t>(block) * kBlockIds; i < end; ++i) {
      const float logit = row[static_cast<size_t>(i)];
      if (logit >= threshold) candidates.push_back({static_cast<TokenId>(i), logit, 0.0f});
    }
  }
}

void KeepFirst(std::vector<Candidate>& candidates, int64_t count) {
  if (count >= static_cast<int64_t>(candidates.size())) return;
  std::nth_element(candidates.begin(), candidates.begin() + count, candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.RanksBefore(b); });
  candidates.resize(static_cast<size_t>(count));
}

Status CheckFinite(const RowScan& scan) {
  if (scan.has_nan) {
    return MakeError(ErrorCode::kInternal, "the model's logits hold NaN, expected numbers");
  }
  if (scan.max == kInfinity) {
    return MakeError(ErrorCode::kInternal, "the model's logits hold infinity, expected numbers");
  }
  if (scan.max == -kInfinity) {
    return MakeError(ErrorCode::kInternal, "all of the model's logits are -infinity");
  }
  return Status::Ok();
}

double ExpWeights(std::span<const float> row, float max, float inverse_temperature,
                  float min_weight, std::span<float> weights, std::vector<double>& block_sums) {
  KVASIR_CHECK(weights.size() == row.size());
  const int64_t blocks_count = BlocksCount(row);
  block_sums.resize(static_cast<size_t>(blocks_count));
  double total = 0.0;
  for (int64_t block = 0; block < blocks_count; ++block) {
    DoubleLanes sums = {};
    ForLanes(row, block * kBlockIds, BlockEnd(row, block),
             [&](int64_t i, const FloatLanes& values, int64_t count) {
               FloatLanes weight = ExpLanes((values - max) * inverse_temperature);
               weight = weight >= min_weight ? weight : FloatLanes{};
               std::memcpy(weights.data() + i, &weight, static_cast<size_t>(count) * sizeof(float));
               sums += __builtin_convertvector(weight, DoubleLanes);
             });
    block_sums[static_cast<size_t>(block)] = Sum(sums);
    total += Sum(sums);
  }
  return total;
}

double ExpSum(std::span<const float> row, float max) {
  DoubleLanes sums = {};
  ForLanes(row, 0, static_cast<int64_t>(row.size()),
           [&](int64_t, const FloatLanes& values, int64_t) {
             sums += __builtin_convertvector(ExpLanes(values - max), DoubleLanes);
           });
  return Sum(sums);
}

}  // namespace kvasir::sample
