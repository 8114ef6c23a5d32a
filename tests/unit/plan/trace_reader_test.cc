// Traces of each public kind, in the form that they are published in, and what is wrong with rows.
#include "plan/simulate/trace_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "base/rng.h"

namespace kvasir::plan {
namespace {

Result<TraceReading> Read(const std::string& text, const TraceOptions& options = {}) {
  std::istringstream input(text);
  return ReadTrace(input, "t", options);
}

TraceReading ReadGood(const std::string& text, const TraceOptions& options = {}) {
  auto reading = Read(text, options);
  EXPECT_TRUE(reading.ok()) << (reading.ok() ? "" : reading.error().message);
  return reading.ok() ? std::move(reading).value() : TraceReading{};
}

std::string Problem(const std::string& text, const TraceOptions& options = {}) {
  const auto reading = Read(text, options);
  EXPECT_FALSE(reading.ok());
  return reading.ok() ? "" : reading.error().message;
}

// `bad` among enough good rows, so that it is left out.
std::string Complaint(const std::string& header, const std::string& good, const std::string& bad) {
  std::string text = header;
  for (int i = 0; i < 12; ++i) text += good + "\n";
  text += bad + "\n" + good + "\n";
  const TraceReading reading = ReadGood(text);
  EXPECT_EQ(reading.trace.requests.size(), 13u);
  EXPECT_EQ(reading.bad_rows_count, 1);
  EXPECT_EQ(reading.rows_count, 14);
  EXPECT_EQ(reading.complaints.size(), 1u);
  return reading.complaints.empty() ? "" : reading.complaints.front();
}

const std::string kMooncakeRow =
    R"({"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]})";

TEST(TraceReader, Mooncake) {
  // Out of order, as a server that writes at each request's end leaves them.
  const TraceReading reading = ReadGood(
      "{\"timestamp\": 27482, \"input_length\": 1025, \"output_length\": 52, "
      "\"hash_ids\": [46, 47, 48], \"extra\": 1}\r\n"
      "\n"
      "{\"timestamp\": 26482.5, \"input_length\": 40, \"output_length\": 7, \"block_size\": 16, "
      "\"hash_ids\": [9007199254740991, 3]}\n"
      "{\"timestamp\": 30000, \"input_length\": 10, \"output_length\": 1}");
  ASSERT_EQ(reading.trace.requests.size(), 3u);
  const std::vector<TraceRequest>& requests = reading.trace.requests;
  EXPECT_EQ(requests[0].arrival_s, 0);
  EXPECT_EQ(requests[0].prompt_tokens, 40);
  EXPECT_EQ(requests[0].output_tokens, 7);
  EXPECT_EQ(requests[0].hash_block_tokens, 16);
  EXPECT_EQ(requests[0].block_hashes, (std::vector<uint64_t>{9007199254740991u, 3}));
  EXPECT_NEAR(requests[1].arrival_s, 0.9995, 1e-9);
  EXPECT_EQ(requests[1].hash_block_tokens, 512);
  EXPECT_EQ(requests[1].block_hashes, (std::vector<uint64_t>{46, 47, 48}));
  EXPECT_EQ(requests[1].session, -1);
  EXPECT_TRUE(requests[2].block_hashes.empty());
  EXPECT_EQ(requests[2].hash_block_tokens, 0);
  EXPECT_EQ(reading.trace.source, "t");
  EXPECT_EQ(reading.bad_rows_count, 0);
}

TEST(TraceReader, MooncakeBadRows) {
  const auto complaint = [](const std::string& row) { return Complaint("", kMooncakeRow, row); };
  EXPECT_EQ(complaint(R"({"timestamp": "x", "input_length": 1, "output_length": 1})"),
            "t, line 13: timestamp: expected milliseconds, got '\"x\"'");
  EXPECT_EQ(complaint(R"({"timestamp": 1e300, "input_length": 1, "output_length": 1})"),
            "t, line 13: timestamp: expected milliseconds, got '1e+300'");
  EXPECT_EQ(complaint(R"({"timestamp": 1, "output_length": 1})"),
            "t, line 13: expected the field 'input_length', found none");
  EXPECT_EQ(complaint(R"({"timestamp": 1, "input_length": 0, "output_length": 1})"),
            "t, line 13: input_length: expected tokens, 1 to 100000000, got '0'");
  EXPECT_EQ(complaint(R"({"timestamp": 1, "input_length": 5, "output_length": 1e3})"),
            "t, line 13: output_length: expected tokens, 1 to 100000000, got '1000.0'");
  EXPECT_EQ(
      complaint(R"({"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]})"),
      "t, line 13: hash_ids: expected a list of at most 1 ids of 512 tokens each, got '[1,2]'");
  EXPECT_EQ(complaint(R"({"timestamp": 1, "input_length": 5)"),
            "t, line 13: expected a JSON object, got '{\"timestamp\": 1, \"input_length\": 5'");
  EXPECT_EQ(complaint("[1]"), "t, line 13: expected an object, got array");
}

TEST(TraceReader, Azure) {
  const TraceReading reading = ReadGood(
      "\xEF\xBB\xBFTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 18:15:46.6805900,374,44\r\n"
      "2023-11-16 23:59:59.5000000,4808,10\r\n"
      "2023-11-17 01:00:00.5+01:00,7,9.0\r\n"
      "2024-02-29T00:00:00Z,1,1\r\n");
  ASSERT_EQ(reading.trace.requests.size(), 4u);
  const std::vector<TraceRequest>& requests = reading.trace.requests;
  EXPECT_EQ(requests[0].prompt_tokens, 374);
  EXPECT_EQ(requests[0].output_tokens, 44);
  EXPECT_NEAR(requests[1].arrival_s, 5 * 3600 + 44 * 60 + 12.81941, 1e-4);
  EXPECT_NEAR(requests[2].arrival_s - requests[1].arrival_s, 1.0, 1e-6);
  EXPECT_EQ(requests[2].output_tokens, 9);
  // 104 days after the 17th of November 2023 (a leap year's day).
  EXPECT_NEAR(requests[3].arrival_s - requests[2].arrival_s, 104 * 86400 - 0.5, 1e-4);

  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const std::string good = "2023-11-16 18:15:46.68,374,44";
  EXPECT_EQ(Complaint(header, good, "yesterday,1,1"),
            "t, line 14: TIMESTAMP: expected a time such as 2023-11-16 18:17:03.979, got "
            "'yesterday'");
  EXPECT_EQ(Complaint(header, good, "2023-02-30 18:15:46,1,1"),
            "t, line 14: TIMESTAMP: expected a time such as 2023-11-16 18:17:03.979, got "
            "'2023-02-30 18:15:46'");
  EXPECT_EQ(Complaint(header, good, "2023-11-16 18:15:46,-5,1"),
            "t, line 14: ContextTokens: expected tokens, 1 to 100000000, got '-5'");
  EXPECT_EQ(Complaint(header, good, "2023-11-16 18:15:46,5,0"),
            "t, line 14: GeneratedTokens: expected tokens, 1 to 100000000, got '0'");
  EXPECT_EQ(Complaint(header, good, "2023-11-16 18:15:46,5"),
            "t, line 14: expected 3 fields, got 2: '2023-11-16 18:15:46,5'");
}

TEST(TraceReader, BurstGpt) {
  const TraceReading reading = ReadGood(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,472,18,490,Conversation log\n"
      "45.5,\"GPT-4, new\",1087,230,1317,Conversation log\n"
      "118,GPT-4,417,0,417,API log\n");
  ASSERT_EQ(reading.trace.requests.size(), 2u);
  EXPECT_EQ(reading.failed_count, 1);
  EXPECT_EQ(reading.rows_count, 3);
  EXPECT_EQ(reading.trace.requests[1].arrival_s, 40.5);
  EXPECT_EQ(reading.trace.requests[1].prompt_tokens, 1087);
  EXPECT_EQ(reading.trace.requests[1].output_tokens, 230);
  EXPECT_EQ(Problem("Timestamp,Model,Request tokens\n1,a,2\n"),
            "t, line 1: expected a column 'Response tokens', got 'Timestamp,Model,Request tokens'");
}

const std::string kShareGpt = R"([
  {"id": "a", "conversations": [
    {"from": "system", "value": "be kind."},
    {"from": "human", "value": "eight ch"},
    {"from": "gpt", "value": "four"},
    {"from": "human", "value": "\u00e9\u00e9\u00e9\u00e9"},
    {"from": "gpt", "value": "twelve chars"}]},
  {"id": "b", "items": {"conversations": [[1, {"from": "gpt"}]]}, "conversations": []},
  {"conversations": [{"value": "abcd", "from": "user"}, {"from": "assistant", "value": "x"}],
   "id": [{"value": "not a message"}]}
])";

TEST(TraceReader, ShareGptTurnsHoldAllThatWasSaid) {
  TraceOptions options;
  options.think_s = 2.5;
  options.conversations_per_s = 4;
  const TraceReading reading = ReadGood(kShareGpt, options);
  ASSERT_EQ(reading.trace.requests.size(), 3u);
  const std::vector<TraceRequest>& requests = reading.trace.requests;
  EXPECT_EQ(requests[0].prompt_tokens, 2 + 2);
  EXPECT_EQ(requests[0].output_tokens, 1);
  EXPECT_EQ(requests[0].session, 0);
  EXPECT_EQ(requests[0].think_s, -1);
  EXPECT_EQ(requests[1].prompt_tokens, 2 + 2 + 1 + 1);
  EXPECT_EQ(requests[1].output_tokens, 3);
  EXPECT_EQ(requests[1].session, 0);
  EXPECT_EQ(requests[1].think_s, 2.5);
  EXPECT_EQ(requests[2].prompt_tokens, 1);
  EXPECT_EQ(requests[2].output_tokens, 1);
  EXPECT_EQ(requests[2].session, 1);
  EXPECT_GT(requests[2].arrival_s, 0);
  // The conversation without an answer.
  EXPECT_EQ(reading.failed_count, 1);
  EXPECT_EQ(reading.rows_count, 3);

  options.count_tokens = [](std::string_view text) {
    return static_cast<int64_t>(text.size()) * 10;
  };
  EXPECT_EQ(ReadGood(kShareGpt, options).trace.requests[1].prompt_tokens, 280);
}

TEST(TraceReader, ShareGptArrivalsArePoisson) {
  std::string text = "[";
  constexpr int kCount = 4000;
  for (int i = 0; i < kCount; ++i) {
    text += R"({"conversations": [{"from": "human", "value": "abcd"}, )"
            R"({"from": "gpt", "value": "abcd"}]},)";
  }
  text.back() = ']';
  TraceOptions options;
  options.conversations_per_s = 5;
  const auto requests = ReadGood(text, options).trace.requests;
  // The mean of 4000 gaps is within four standard errors.
  EXPECT_NEAR(requests.back().arrival_s / (kCount - 1), 0.2, 4 * 0.2 / std::sqrt(kCount));
  EXPECT_EQ(ReadGood(text, options).trace.requests.back().arrival_s, requests.back().arrival_s);
}

TEST(TraceReader, WhatIsNoTrace) {
  EXPECT_EQ(Problem(""), "t: expected a trace, got an empty file");
  EXPECT_EQ(Problem("hello\n"),
            "t, line 1: expected a trace of the kind mooncake, azure, burstgpt or sharegpt, got "
            "'hello'");
  EXPECT_EQ(Problem("TIMESTAMP,ContextTokens,GeneratedTokens\n"),
            "t: expected at least one request, got none");
  EXPECT_EQ(Problem("{}\n"), "t, line 1: expected the field 'timestamp', found none");
  // One good row of three is a file of another kind.
  EXPECT_EQ(Problem(kMooncakeRow + "\n{}\n{}\n"),
            "t, line 2: expected the field 'timestamp', found none (and 2 of 3 rows are bad in "
            "all)");
  EXPECT_EQ(Problem("[{\"conversations\": 3}]"),
            "t, conversation 1: expected the field 'conversations' with a list, found none");
  EXPECT_EQ(Problem("[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]"),
            "t: expected at most 16 levels of JSON, got more");
  EXPECT_NE(Problem("[{\"a\"").find("t, byte "), std::string::npos);
  TraceOptions azure;
  azure.format = "azure";
  EXPECT_NE(Problem(kMooncakeRow, azure).find("expected a column 'TIMESTAMP'"), std::string::npos);
  EXPECT_NE(ReadTraceFile("/no/such/file", {}).error().message.find("cannot be read"),
            std::string::npos);
  EXPECT_NE(ReadTraceFile("/", {}).error().message.find("got a folder"), std::string::npos);
}

TEST(TraceReader, Limits) {
  TraceOptions options;
  options.requests_max = 2;
  const TraceReading reading =
      ReadGood(kMooncakeRow + "\n" + kMooncakeRow + "\n" + kMooncakeRow + "\n", options);
  EXPECT_EQ(reading.trace.requests.size(), 2u);
  EXPECT_TRUE(reading.cut_off);
  EXPECT_TRUE(ReadGood(kShareGpt, options).cut_off);
  EXPECT_FALSE(ReadGood(kMooncakeRow + "\n").cut_off);

  // A line without an end is neither kept in memory nor read to its end.
  std::string text;
  for (int i = 0; i < 12; ++i) text += kMooncakeRow + "\n";
  text += std::string(20 << 20, 'x') + "\n" + kMooncakeRow;
  EXPECT_EQ(Problem(text), "t, line 13: expected at most 16777216 bytes in a line, got more");
  EXPECT_EQ(Problem(std::string(20 << 20, 'x')),
            "t, line 1: expected at most 16777216 bytes in a line, got more");
  EXPECT_TRUE(ReadGood(kShareGpt).times_drawn);
  EXPECT_FALSE(ReadGood(kMooncakeRow).times_drawn);
  EXPECT_EQ(ReadTraceFile("/dev/zero", {}).error().message,
            "/dev/zero: expected a file or a pipe, got a special file");
}

TEST(TraceReader, WhateverTheBytesTheAnswerIsATraceOrOneLine) {
  const std::vector<std::string> seeds = {
      kMooncakeRow + "\n" + kMooncakeRow + "\n",
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n",
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,a,4,1,5,b\n",
      kShareGpt,
  };
  const std::string_view spice = "{}[]\",:\n\r\\\xff\x00-9e.";
  Rng rng(1);
  for (int i = 0; i < 4000; ++i) {
    std::string text = seeds[rng.Below(seeds.size())];
    for (uint64_t changes = rng.Below(6); changes > 0 && !text.empty(); --changes) {
      const size_t at = rng.Below(text.size());
      if (rng.Chance(0.3)) {
        text.erase(at, rng.Below(20));
      } else if (rng.Chance(0.5)) {
        text.insert(at, 1, spice[rng.Below(spice.size())]);
      } else {
        text[at] = spice[rng.Below(spice.size())];
      }
    }
    const auto reading = Read(text);
    if (!reading.ok()) {
      EXPECT_EQ(reading.error().message.find('\n'), std::string::npos) << text;
      continue;
    }
    double last_s = 0;
    for (const TraceRequest& request : reading->trace.requests) {
      EXPECT_GE(request.arrival_s, last_s) << text;
      EXPECT_GE(request.prompt_tokens, 1) << text;
      EXPECT_GE(request.output_tokens, 1) << text;
      last_s = request.arrival_s;
    }
    for (const std::string& complaint : reading->complaints) {
      EXPECT_EQ(complaint.find('\n'), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace kvasir::plan
