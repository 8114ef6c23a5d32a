// The page of a simulation: whole, self-contained, and safe whatever names it is given.
#include "plan/simulate/html_page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "plan/simulate/html_data.h"
#include "plan/simulate/summary.h"

namespace kvasir::plan {
namespace {

RequestRecord MakeRequest(double arrival, double scheduled, double first, double end) {
  RequestRecord request;
  request.end = RequestEnd::kFinished;
  request.arrival_s = arrival;
  request.scheduled_s = scheduled;
  request.first_token_s = first;
  request.end_s = end;
  request.prompt_tokens = 8;
  request.output_tokens = 3;
  return request;
}

// Two requests on a server of one place: the second waits for the first.
SimulationResult Result() {
  SimulationResult result;
  result.block_tokens = 4;
  result.block_bytes = 1024;
  result.blocks_count = 6;
  result.requests = {MakeRequest(0, 0, 1, 3), MakeRequest(0.5, 3, 4, 6)};
  result.end_s = 6;
  result.busy_s = 6;
  result.steps_count = 6;
  result.seats_count = 6;
  result.output_tokens = 6;
  result.prompt_tokens = 16;
  result.slots_filled_seconds = 30;
  result.slots_wasted_seconds = 10;
  result.itl_s.Add(1.0, 4);
  for (int64_t i = 0; i < 6; ++i) {
    StepDetail detail;
    detail.sample.begin_s = static_cast<double>(i);
    detail.sample.seconds = 1;
    detail.sample.slots_filled = 8 + i % 3;
    detail.sample.blocks_cached = i / 3;
    const bool prompt = i % 3 == 0;
    detail.seats = {{i / 3, prompt ? 0 : 7 + i % 3, prompt ? 8 : 1, true}};
    if (i < 3) detail.waiting = {1};
    result.steps.push_back(detail.sample);
    result.details.push_back(detail);
  }
  CacheSnapshot snapshot;
  using State = BlockView::State;
  snapshot.blocks = {{State::kUsed, 2, 0, 4},  {State::kUsed, 1, 0, 2},  {State::kCached, 0, -1, 0},
                     {State::kFree, 0, -1, 0}, {State::kFree, 0, -1, 0}, {State::kUsed, 1, 1, 4}};
  result.snapshots = {snapshot, snapshot};
  return result;
}

SimulationReport ReportOf(std::vector<SimulationResult> results) {
  SimulationReport report;
  report.model = "m";
  report.machine = "h";
  for (SimulationResult& result : results) {
    VariantReport& variant = report.variants.emplace_back();
    variant.summary = Summarize(result);
    variant.result = std::move(result);
  }
  return report;
}

TEST(HtmlPage, EscapesWhatCameFromOutside) {
  SimulationResult result = Result();
  const std::string evil = "</script><img src=x onerror=alert(1)>'\"&<!--";
  result.variant = evil;
  SimulationReport report = ReportOf({result});
  report.model = report.machine = report.workload = report.compared = report.load_unit = evil;
  report.variants[0].settings = {{evil, evil}};
  report.variants[0].notes = {evil};
  report.variants[0].loads = {{1, report.variants[0].summary}};
  const std::string page = WriteHtml(report, evil);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  // The two scripts of the page, and no more.
  size_t ends = 0;
  for (size_t at = page.find("</script"); at != std::string::npos;
       at = page.find("</script", at + 1)) {
    ++ends;
  }
  EXPECT_EQ(ends, 2u);
  // The numbers are there for the script, unharmed.
  const std::string begin = "id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  const auto data = nlohmann::json::parse(page.substr(from, page.find("</script", from) - from));
  EXPECT_EQ(data.at("variants").at(0).at("name"), evil);
}

TEST(HtmlPage, NeedsNothingFromElsewhere) {
  const std::string page = WriteHtml(ReportOf({Result()}), "kvasir simulate");
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=|@import|url\\(|fetch\\(|import ")));
  // The one address is the name of SVG, which nobody fetches.
  const std::string svg = "http://www.w3.org/2000/svg";
  for (size_t at = page.find("http"); at != std::string::npos; at = page.find("http", at + 1)) {
    if (page.compare(at, 10, "http-equiv") == 0) continue;
    EXPECT_EQ(page.substr(at, svg.size()), svg);
  }
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("<td>Of that held in vain</td><td>25.0 %</td>"), std::string::npos);
  EXPECT_NE(page.find("<td>First token, half of the requests</td><td>1.00 s</td>"),
            std::string::npos);
}

TEST(HtmlPage, MarksTheBetterOfTwo) {
  SimulationResult fast = Result();
  SimulationResult slow = Result();
  fast.variant = "fast";
  slow.variant = "slow";
  slow.end_s = 12;
  slow.preemptions = 3;
  const std::string page = WriteHtml(ReportOf({slow, fast}), "kvasir simulate");
  EXPECT_NE(page.find("<th>slow</th><th>fast</th>"), std::string::npos);
  EXPECT_NE(page.find("<td>Time until the last had ended</td><td>12.0 s</td>"
                      "<td class=\"best\">6.00 s</td>"),
            std::string::npos);
  EXPECT_NE(page.find("<td>Preemptions</td><td>3</td><td class=\"best\">0</td>"),
            std::string::npos);
  // Equal ones are marked nowhere.
  EXPECT_NE(page.find("<td>Of that held in vain</td><td>25.0 %</td><td>25.0 %</td>"),
            std::string::npos);
}

TEST(HtmlPage, TellsWhoWaitedForWhom) {
  const auto variant = HtmlData(ReportOf({Result()}))["variants"][0];
  const auto& timeline = variant["timeline"];
  EXPECT_EQ(timeline["end"], 6);
  EXPECT_EQ(timeline["rows"][0]["spans"].dump(), R"([["p",0.0,1.0],["d",1.0,3.0]])");
  EXPECT_EQ(timeline["rows"][1]["spans"].dump(), R"([["w",0.0,3.0],["p",3.0,4.0],["d",4.0,6.0]])");
  EXPECT_EQ(timeline["waits"].dump(), R"([{"r":1,"from":0.5,"to":3.0,"left":true,"for":[0]}])");

  const auto snapshot = variant["snapshots"][0];
  EXPECT_EQ(snapshot["runs"].dump(), "[0,2,-2,1,-1,2,1,1]");
  EXPECT_EQ(snapshot["partial"].dump(), "[1,2]");
  EXPECT_EQ(snapshot["shared"].dump(), "[0]");
}

TEST(HtmlPage, StaysSmallHoweverLongTheRun) {
  SimulationResult result = Result();
  const SimulationResult small = result;
  for (int i = 0; i < 20'000; ++i) {
    result.steps.push_back(small.steps[static_cast<size_t>(i) % 6]);
    result.snapshots.push_back(small.snapshots[0]);
  }
  EXPECT_LT(WriteHtml(ReportOf({result}), "").size(), 200'000u);
}

}  // namespace
}  // namespace kvasir::plan
