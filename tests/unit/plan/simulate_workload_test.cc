#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "plan/simulate/workload.h"

namespace kvasir::plan {
namespace {

using Kind = ArrivalSpec::Kind;

/// Takes all requests of `workload`, each ended `answer_s` after it came.
std::vector<SimulatedRequest> TakeAll(Workload& workload, double answer_s) {
  std::vector<SimulatedRequest> taken;
  while (workload.NextArrival() != kNoArrival) {
    EXPECT_EQ(workload.NextArrival(), workload.NextArrival());
    taken.push_back(workload.Take());
    workload.Ended(taken.back(), taken.back().arrival_s + answer_s, /*refused=*/false);
  }
  EXPECT_EQ(static_cast<int64_t>(taken.size()), workload.requests_count());
  return taken;
}

std::vector<SimulatedRequest> TakeAll(const WorkloadSpec& spec, double answer_s = 1) {
  return TakeAll(*MakeWorkload(spec), answer_s);
}

std::vector<TokenId> TokensOf(const SimulatedRequest& request) {
  std::vector<TokenId> tokens;
  for (const PromptPart& part : request.parts) AppendPart(part, 50'000, tokens);
  EXPECT_EQ(static_cast<int64_t>(tokens.size()), request.prompt_tokens);
  return tokens;
}

int64_t CommonBeginning(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const auto [end, _] = std::ranges::mismatch(a, b);
  return end - a.begin();
}

struct GapStatistics {
  double mean = 0;
  double variation = 0;
};

GapStatistics GapsOf(const std::vector<SimulatedRequest>& requests) {
  double sum = 0;
  double squares = 0;
  double last = 0;
  for (const SimulatedRequest& request : requests) {
    const double gap = request.arrival_s - last;
    EXPECT_GE(gap, 0);
    last = request.arrival_s;
    sum += gap;
    squares += gap * gap;
  }
  const auto count = static_cast<double>(requests.size());
  const double mean = sum / count;
  return {mean, std::sqrt(squares / count - mean * mean) / mean};
}

TEST(Workload, ArrivalsHaveTheirRateAndVariation) {
  WorkloadSpec spec;
  spec.traffic.requests_count = 40'000;
  spec.arrivals.rate = 8;
  GapStatistics gaps = GapsOf(TakeAll(spec));
  EXPECT_NEAR(gaps.mean, 0.125, 0.003);
  EXPECT_NEAR(gaps.variation, 1, 0.03);
  spec.arrivals.kind = Kind::kGamma;
  for (const double variation : {0.5, 2.0}) {
    spec.arrivals.variation = variation;
    gaps = GapsOf(TakeAll(spec));
    EXPECT_NEAR(gaps.mean, 0.125, 0.005) << variation;
    EXPECT_NEAR(gaps.variation, variation, 0.1) << variation;
  }
  spec.arrivals.kind = Kind::kConstant;
  spec.traffic.requests_count = 100;
  gaps = GapsOf(TakeAll(spec));
  EXPECT_NEAR(gaps.mean, 0.125 * 99 / 100, 1e-9);
}

TEST(Workload, BurstsComeTogether) {
  WorkloadSpec spec;
  spec.arrivals = {.kind = Kind::kBurst, .burst_size = 3, .burst_every_s = 10};
  spec.traffic.requests_count = 7;
  std::vector<double> times;
  for (const SimulatedRequest& request : TakeAll(spec)) times.push_back(request.arrival_s);
  EXPECT_THAT(times, testing::ElementsAre(0, 0, 0, 10, 10, 10, 20));
}

TEST(Workload, ClosedLoopUsersWaitForTheirAnswers) {
  WorkloadSpec spec;
  spec.arrivals = {.kind = Kind::kClosed, .users = 2};
  spec.traffic.requests_count = 5;
  spec.traffic.think_s = 0.5;
  std::vector<double> times;
  for (const SimulatedRequest& request : TakeAll(spec, /*answer_s=*/1)) {
    times.push_back(request.arrival_s);
  }
  EXPECT_THAT(times, testing::ElementsAre(0, 0, 1.5, 1.5, 3));
}

TEST(Workload, RequestsDoNotDependOnHowTheyAreServed) {
  WorkloadSpec spec;
  spec.arrivals = {.kind = Kind::kClosed, .users = 4};
  spec.traffic.requests_count = 50;
  spec.traffic.prompt = *ParseLength("10..500");
  spec.traffic.output = *ParseLength("lognormal:80,1");
  spec.traffic.turns = *ParseLength("1..4");
  auto key = [](const SimulatedRequest& request) {
    return std::tuple(request.unit, request.turn, request.prompt_tokens, request.output_tokens,
                      TokensOf(request));
  };
  std::vector<decltype(key(SimulatedRequest{}))> fast;
  std::vector<decltype(key(SimulatedRequest{}))> slow;
  for (const SimulatedRequest& request : TakeAll(spec, 0.1)) fast.push_back(key(request));
  // Each answer takes a time of its own, so that users overtake each other.
  const auto workload = MakeWorkload(spec);
  double answer_s = 1;
  while (workload->NextArrival() != kNoArrival) {
    const SimulatedRequest request = workload->Take();
    slow.push_back(key(request));
    answer_s = answer_s > 5 ? 0.3 : answer_s * 1.7;
    workload->Ended(request, request.arrival_s + answer_s, false);
  }
  EXPECT_THAT(slow, testing::UnorderedElementsAreArray(fast));
  EXPECT_NE(slow, fast);
  spec.seed = 1;
  EXPECT_NE(key(TakeAll(spec)[0]), fast[0]);
}

TEST(Workload, LengthsHaveTheirMeansAndBounds) {
  const auto mean = [](const char* text) {
    const LengthSpec length = *ParseLength(text);
    Rng rng(3);
    double sum = 0;
    for (int i = 0; i < 50'000; ++i) {
      const int64_t drawn = length.Draw(rng);
      EXPECT_GE(drawn, length.low);
      EXPECT_LE(drawn, length.high);
      sum += static_cast<double>(drawn);
    }
    return sum / 50'000;
  };
  EXPECT_EQ(mean("512"), 512);
  EXPECT_NEAR(mean("100..300"), 200, 2);
  EXPECT_NEAR(mean("lognormal:200,1"), 200, 5);
  EXPECT_LE(mean("lognormal:200,1,150"), 150);
}

TEST(Workload, LengthsSayWhatTheyExpect) {
  for (const char* text : {"", "0", "-1", "x", "5..", "..5", "9..3", "1.5",
                           "lognormal:", "lognormal:10", "lognormal:0,1", "lognormal:10,-1",
                           "lognormal:10,1,0", "lognormal:10,nan", "99999999999", "12 "}) {
    const auto length = ParseLength(text);
    ASSERT_FALSE(length.ok()) << text;
    EXPECT_THAT(length.error().message, testing::HasSubstr(fmt::format("got '{}'", text)));
  }
  for (const char* text : {"512", "1..9", "lognormal:200.5,0.8", "lognormal:200,1,4096"}) {
    EXPECT_EQ(ToString(*ParseLength(text)), text);
  }
}

TEST(Workload, PrefixesAreSharedByTheirShare) {
  WorkloadSpec spec;
  spec.traffic.requests_count = 2000;
  spec.traffic.prefix_tokens = 100;
  spec.traffic.prefixes_count = 4;
  spec.traffic.prefix_share = 0.75;
  spec.traffic.prompt = *ParseLength("50");
  std::vector<std::vector<TokenId>> prefixes;
  int64_t with_prefix = 0;
  for (const SimulatedRequest& request : TakeAll(spec)) {
    if (request.prompt_tokens == 50) continue;
    ASSERT_EQ(request.prompt_tokens, 150);
    ++with_prefix;
    std::vector<TokenId> prefix = TokensOf(request);
    prefix.resize(100);
    if (std::ranges::find(prefixes, prefix) == prefixes.end()) prefixes.push_back(prefix);
  }
  EXPECT_EQ(prefixes.size(), 4u);
  EXPECT_NEAR(static_cast<double>(with_prefix), 1500, 60);
}

TEST(Workload, ATurnBeginsWithAllThatWasSaid) {
  WorkloadSpec spec;
  spec.arrivals = {.kind = Kind::kClosed, .users = 1};
  spec.traffic.requests_count = 2;
  spec.traffic.prefix_tokens = 40;
  spec.traffic.prompt = *ParseLength("30");
  spec.traffic.output = *ParseLength("20");
  spec.traffic.turns = *ParseLength("3");
  spec.traffic.turn = *ParseLength("10");
  const std::vector<SimulatedRequest> requests = TakeAll(spec);
  ASSERT_EQ(requests.size(), 6u);
  for (const size_t first : {0u, 3u}) {
    for (size_t turn = 0; turn < 3; ++turn) {
      const SimulatedRequest& request = requests[first + turn];
      EXPECT_EQ(request.turn, static_cast<int32_t>(turn));
      EXPECT_EQ(request.prompt_tokens, 70 + 30 * static_cast<int64_t>(turn));
      if (turn == 0) continue;
      const std::vector<TokenId> said = TokensOf(requests[first + turn - 1]);
      const std::vector<TokenId> now = TokensOf(request);
      EXPECT_EQ(CommonBeginning(said, now), static_cast<int64_t>(said.size()));
      // The answer, as the modelled runner draws it.
      for (size_t p = said.size(); p < said.size() + 20; ++p) {
        EXPECT_EQ(now[p], TokenAt(request.stream, static_cast<int64_t>(p), 50'000));
      }
    }
  }
  EXPECT_EQ(CommonBeginning(TokensOf(requests[0]), TokensOf(requests[3])), 40);
}

TEST(Workload, DocumentsAreTheSameForAll) {
  WorkloadSpec spec;
  spec.traffic.requests_count = 300;
  spec.traffic.prompt = *ParseLength("10");
  spec.traffic.documents_count = 3;
  spec.traffic.documents_per_request = 1;
  spec.traffic.document = *ParseLength("100..200");
  std::vector<std::vector<TokenId>> documents;
  std::vector<int> wanted;
  for (const SimulatedRequest& request : TakeAll(spec)) {
    std::vector<TokenId> document = TokensOf(request);
    document.resize(document.size() - 10);
    const auto at = std::ranges::find(documents, document) - documents.begin();
    if (at == std::ssize(documents)) {
      documents.push_back(document);
      wanted.push_back(0);
    }
    ++wanted[static_cast<size_t>(at)];
  }
  ASSERT_EQ(documents.size(), 3u);
  std::ranges::sort(wanted);
  EXPECT_NEAR(wanted[2], 300.0 * 6 / 11, 35);  // 1 : 1/2 : 1/3
}

TEST(Workload, SaysWhichFlagIsWrong) {
  const auto message = [](auto change) {
    WorkloadSpec spec;
    change(spec);
    const Status status = ValidateWorkload(spec);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(message([](WorkloadSpec&) {}), "");
  EXPECT_EQ(message([](WorkloadSpec& spec) { spec.arrivals.rate = 0; }),
            "--rate: expected 1e-06 to 1e+09, got 0");
  EXPECT_EQ(message([](WorkloadSpec& spec) { spec.traffic.requests_count = -3; }),
            "--requests: expected more than 0, got -3");
  EXPECT_EQ(
      message([](WorkloadSpec& spec) { spec.arrivals = {.kind = Kind::kClosed, .users = 0}; }),
      "--users: expected more than 0, got 0");
  EXPECT_EQ(message([](WorkloadSpec& spec) { spec.traffic.prefix_share = 1.5; }),
            "--prefix-share: expected 0 to 1, got 1.5");
}

TEST(TraceWorkload, BlocksWithOneNameAreEqual) {
  Trace trace{"test", {}};
  trace.requests.push_back({.arrival_s = 0,
                            .prompt_tokens = 25,
                            .output_tokens = 3,
                            .block_hashes = {7, 8, 9},
                            .hash_block_tokens = 10});
  trace.requests.push_back({.arrival_s = 2,
                            .prompt_tokens = 40,
                            .output_tokens = 4,
                            .block_hashes = {7, 8, 11},
                            .hash_block_tokens = 10});
  trace.requests.push_back({.arrival_s = 3, .prompt_tokens = 40, .output_tokens = 4});
  auto workload = MakeTraceWorkload(trace, /*speed=*/2, 0);
  ASSERT_TRUE(workload.ok());
  const std::vector<SimulatedRequest> requests = TakeAll(**workload, 1);
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].arrival_s, 1);
  EXPECT_EQ(requests[1].output_tokens, 4);
  EXPECT_EQ(CommonBeginning(TokensOf(requests[0]), TokensOf(requests[1])), 20);
  EXPECT_EQ(CommonBeginning(TokensOf(requests[0]), TokensOf(requests[2])), 0);
}

TEST(TraceWorkload, TurnsWaitForTheAnswerBefore) {
  Trace trace{"test", {}};
  trace.requests = {
      {.arrival_s = 0, .prompt_tokens = 10, .output_tokens = 5, .session = 1},
      {.arrival_s = 0.5, .prompt_tokens = 20, .output_tokens = 5, .session = 1},
      {.arrival_s = 0.7, .prompt_tokens = 9, .output_tokens = 1},
      {.arrival_s = 9, .prompt_tokens = 40, .output_tokens = 5, .session = 1},
      {.arrival_s = 9, .prompt_tokens = 50, .output_tokens = 5, .session = 1, .think_s = 3}};
  auto workload = MakeTraceWorkload(trace, 1, 0);
  ASSERT_TRUE(workload.ok());
  const std::vector<SimulatedRequest> requests = TakeAll(**workload, 1);
  std::vector<double> times;
  for (const SimulatedRequest& request : requests) times.push_back(request.arrival_s);
  EXPECT_THAT(times, testing::ElementsAre(0, 0.7, 1, 9, 13));
  EXPECT_EQ(CommonBeginning(TokensOf(requests[0]), TokensOf(requests[2])), 10);
  EXPECT_EQ(requests[4].turn, 3);
}

TEST(TraceWorkload, NamesTheRequestThatIsWrong) {
  const auto message = [](TraceRequest wrong) {
    Trace trace{"my.jsonl", {{.arrival_s = 1}, wrong}};
    const auto workload = MakeTraceWorkload(trace, 1, 0);
    return workload.ok() ? "" : workload.error().message;
  };
  EXPECT_EQ(message({.arrival_s = 1}), "");
  EXPECT_EQ(message({.arrival_s = 0.5}),
            "my.jsonl: request 1: expected an arrival at or after the one before, got 0.5");
  EXPECT_EQ(message({.arrival_s = 1, .prompt_tokens = 0}),
            "my.jsonl: request 1: expected 1 to 2^30 prompt tokens, got 0");
  EXPECT_EQ(message({.arrival_s = 1, .output_tokens = -1}),
            "my.jsonl: request 1: expected 1 to 2^30 output tokens, got -1");
  EXPECT_EQ(message({.arrival_s = 1, .block_hashes = {1}}),
            "my.jsonl: request 1: expected at least 1 token a hash, got 0");
  EXPECT_EQ(MakeTraceWorkload(Trace{"my.jsonl", {}}, 1, 0).error().message,
            "my.jsonl: the trace has no requests");
}

TEST(Workload, WhatCannotBeIsRefusedBeforeAnythingIsMade) {
  using Kind = ArrivalSpec::Kind;
  const std::pair<std::function<void(WorkloadSpec&)>, const char*> cases[] = {
      {[](WorkloadSpec& spec) { spec.traffic.turns = {.low = 1'000'000, .high = 1'000'000}; },
       "--requests times --turns: expected at most 100000000 requests in all, got 1e+09"},
      {[](WorkloadSpec& spec) {
         spec.traffic.requests_count = 1;
         spec.traffic.turns = {.low = 10'000'000, .high = 10'000'000};
       },
       "--turns times --turn-tokens and --output-tokens: expected conversations of at most"},
      {[](WorkloadSpec& spec) {
         spec.traffic.documents_count = 5;
         spec.traffic.documents_per_request = 6;
       },
       "--documents-per-request: expected at most the 5 of --documents, got 6"},
      {[](WorkloadSpec& spec) {
         spec.arrivals.kind = Kind::kGamma;
         spec.arrivals.variation = 1e300;
       },
       "--variation: expected 0.01 to 100, got 1e+300"},
      {[](WorkloadSpec& spec) { spec.arrivals.rate = 1e300; }, "--rate: expected 1e-06 to 1e+09"},
      {[](WorkloadSpec& spec) { spec.arrivals.rate = 0; }, "--rate"},
      {[](WorkloadSpec& spec) {
         spec.traffic.requests_count = 10'000'000;
         spec.arrivals.rate = 1e-6;
       },
       "--requests over --rate: expected requests that come within 1e+09 s, got 1e+13 s"},
      {[](WorkloadSpec& spec) { spec.traffic.prefix_tokens = int64_t{1} << 62; },
       "--prefix-tokens"},
  };
  for (const auto& [change, said] : cases) {
    WorkloadSpec spec;
    ASSERT_TRUE(ValidateWorkload(spec).ok());
    change(spec);
    const Status status = ValidateWorkload(spec);
    ASSERT_FALSE(status.ok()) << said;
    EXPECT_NE(status.error().message.find(said), std::string::npos) << status.error().message;
  }
}

}  // namespace
}  // namespace kvasir::plan
