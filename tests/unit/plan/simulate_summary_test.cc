#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/simulate/summary.h"

namespace kvasir::plan {
namespace {

/// Ten requests, one a second; the i-th (from 1) has its first token after i seconds, then 10 more,
/// 0.1 s apart.
SimulationResult TenRequests() {
  SimulationResult result;
  result.block_tokens = 16;
  result.block_bytes = 1600;
  result.blocks_count = 10;
  result.end_s = 20;
  result.busy_s = 10;
  result.steps_count = 50;
  result.output_tokens = 110;
  result.prompt_tokens = 1000;
  result.cached_tokens = 250;
  result.computed_tokens = 850;
  result.seats_count = 200;
  result.running_seconds = 40;
  result.blocks_used_seconds = 50;
  result.slots_filled_seconds = 600;
  result.slots_wasted_seconds = 200;
  result.blocks_used_max = 8;
  for (int i = 1; i <= 10; ++i) {
    RequestRecord& request = result.requests.emplace_back();
    request.end = RequestEnd::kFinished;
    request.arrival_s = i;
    request.queued_s = i + 0.125;
    request.scheduled_s = i + 0.5;
    request.first_token_s = 2.0 * i;
    request.end_s = 2.0 * i + 1;
    request.output_tokens = 11;
    result.itl_s.Add(0.1, 10);
  }
  return result;
}

TEST(Summary, FiguresAreWhatTheirNamesSay) {
  const Summary summary = Summarize(TenRequests());
  EXPECT_EQ(summary.requests_count, 10);
  EXPECT_EQ(summary.finished_count, 10);
  EXPECT_EQ(summary.requests_per_s, 0.5);
  EXPECT_EQ(summary.output_tokens_per_s, 5.5);
  EXPECT_EQ(summary.ttft.p50_s, 5);
  EXPECT_EQ(summary.ttft.p90_s, 9);
  EXPECT_EQ(summary.ttft.p99_s, 10);
  EXPECT_EQ(summary.ttft.mean_s, 5.5);
  EXPECT_NEAR(summary.itl.p50_s, 0.1, 0.0006);
  EXPECT_EQ(summary.queue.max_s, 0.375);
  EXPECT_EQ(summary.sequences_per_step, 4);
  EXPECT_EQ(summary.tokens_per_step, 17);
  EXPECT_EQ(summary.running_mean, 4);
  EXPECT_EQ(summary.busy_share, 0.5);
  EXPECT_EQ(summary.kv_bytes, 16'000);
  EXPECT_EQ(summary.kv_tokens, 160);
  EXPECT_EQ(summary.kv_used_mean, 0.5);
  EXPECT_EQ(summary.kv_used_max, 0.8);
  EXPECT_EQ(summary.kv_filled_mean, 60.0 / 160);
  EXPECT_EQ(summary.kv_wasted_mean, 20.0 / 160);
  EXPECT_EQ(summary.fragmentation, 0.25);
  EXPECT_EQ(summary.hit_rate, 0.25);
  EXPECT_FALSE(summary.has_slo);
}

TEST(Summary, GoodputCountsThosePromisesThatWereKept) {
  SimulationResult result = TenRequests();
  result.slo.ttft_s = 6;
  result.requests[0].end = RequestEnd::kQueueFull;
  result.requests[9].end = RequestEnd::kUnfinished;
  Summary summary = Summarize(result);
  EXPECT_EQ(summary.finished_count, 8);
  EXPECT_EQ(summary.queue_full_count, 1);
  EXPECT_EQ(summary.unfinished_count, 1);
  // Of nine that ended, those with 2 to 6 seconds.
  EXPECT_NEAR(summary.slo_share, 5.0 / 9, 1e-12);
  EXPECT_EQ(summary.goodput_per_s, 5.0 / 20);
  // Without the first three, whose last came at 3 s.
  summary = Summarize(result, 3);
  EXPECT_NEAR(summary.slo_share, 3.0 / 6, 1e-12);
  EXPECT_EQ(summary.goodput_per_s, 3.0 / 17);
  EXPECT_EQ(summary.finished_count, 8);
}

TEST(Summary, AnEmptyResultDividesByNothing) {
  SimulationResult result;
  result.block_tokens = result.blocks_count = 1;
  const nlohmann::json json = ToJson(Summarize(result));
  for (const auto& [name, value] : json.items()) {
    if (!value.is_number()) continue;
    EXPECT_EQ(value.get<double>(), name == "kv_tokens" ? 1 : 0) << name;
  }
}

TEST(Summary, TheTableHasAColumnAVariantAndUnits) {
  SimulationResult result = TenRequests();
  std::vector<Summary> summaries = {Summarize(result)};
  EXPECT_THAT(FormatTable(summaries),
              testing::AllOf(testing::HasSubstr("time to first token, median  "),
                             testing::HasSubstr("5.00 s\n"), testing::HasSubstr("5.5 tokens/s\n"),
                             testing::Not(testing::HasSubstr("promise"))));
  result.slo.ttft_s = 6;
  result.variant = "paged";
  summaries.push_back(Summarize(result));
  const std::string table = FormatTable(summaries);
  EXPECT_THAT(table.substr(0, table.find('\n')), testing::EndsWith("  paged"));
  EXPECT_THAT(table, testing::HasSubstr("promise kept"));
}

TEST(Summary, SecondsHaveThreeDigits) {
  EXPECT_EQ(FormatSeconds(0), "0 s");
  EXPECT_EQ(FormatSeconds(0.0000123), "12.3 us");
  EXPECT_EQ(FormatSeconds(0.00456), "4.56 ms");
  EXPECT_EQ(FormatSeconds(0.2), "200 ms");
  EXPECT_EQ(FormatSeconds(12.34), "12.3 s");
  EXPECT_EQ(FormatSeconds(1234), "1234 s");
}

}  // namespace
}  // namespace kvasir::plan
