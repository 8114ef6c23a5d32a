// What --record-trace writes: it says nothing of content, and reads back as what was asked.
#include "plan/simulate/trace_recorder.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/engine_core.h"
#include "plan/simulate/trace_reader.h"
#include "support/fake_runner.h"
#include "support/temp_folder.h"

namespace kvasir::plan {
namespace {

constexpr SipKey kKey{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

std::vector<TokenId> Tokens(uint64_t seed, int64_t count) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(rng.Below(1000)));
  return tokens;
}

EndedRequest Ended(std::vector<TokenId> prompt, const std::vector<TokenId>& answer) {
  EndedRequest request;
  request.prompt_tokens = static_cast<int64_t>(prompt.size());
  request.tokens = std::move(prompt);
  request.tokens.insert(request.tokens.end(), answer.begin(), answer.end());
  request.outputs = {static_cast<int64_t>(answer.size()) + 1};
  return request;
}

std::vector<TraceRequest> ReadBack(const std::string& lines) {
  std::istringstream input(lines);
  auto reading = ReadTrace(input, "t", {});
  EXPECT_TRUE(reading.ok()) << (reading.ok() ? "" : reading.error().message);
  if (!reading.ok()) return {};
  EXPECT_EQ(reading->bad_rows_count, 0);
  return std::move(reading->trace.requests);
}

TEST(SipHash, IsThatOfThePaper) {
  std::array<std::byte, 15> input{};
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::byte>(i);
  EXPECT_EQ(SipHash(kKey, input), 0xa129ca6149be45e5u);
}

TEST(TraceLines, EqualBeginningsHaveEqualNames) {
  TraceLines lines(kKey, 16);
  const std::vector<TokenId> common = Tokens(1, 40);
  std::vector<TokenId> a = common;
  std::vector<TokenId> b = common;
  for (const TokenId token : Tokens(2, 30)) a.push_back(token);
  for (const TokenId token : Tokens(3, 60)) b.push_back(token);
  EndedRequest salted = Ended(a, {});
  salted.cache_salt = "tenant";
  const auto requests = ReadBack(lines.Write(Ended(a, {}), 1000) +
                                 lines.Write(Ended(b, {}), 1500.25) + lines.Write(salted, 2000));
  ASSERT_EQ(requests.size(), 3u);
  ASSERT_EQ(requests[0].block_hashes.size(), 4u);
  ASSERT_EQ(requests[1].block_hashes.size(), 6u);
  EXPECT_EQ(requests[0].hash_block_tokens, 16);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(requests[0].block_hashes[i] == requests[1].block_hashes[i], i < 2) << i;
    // Requests of another salt share nothing.
    EXPECT_NE(requests[0].block_hashes[i], requests[2].block_hashes[i]);
    EXPECT_LT(requests[0].block_hashes[i], uint64_t{1} << 53);
  }
  EXPECT_NEAR(requests[1].arrival_s, 0.50025, 1e-9);
  EXPECT_NE(requests[0].session, requests[1].session);

  // Another key, other names: two traces cannot be laid side by side.
  TraceLines others(SipKey{1, 2}, 16);
  EXPECT_NE(ReadBack(others.Write(Ended(a, {}), 0))[0].block_hashes, requests[0].block_hashes);
}

TEST(TraceLines, KnowsTheTurnsOfAConversation) {
  TraceLines lines(kKey, 16);
  const std::vector<TokenId> first = Tokens(1, 50);
  const std::vector<TokenId> answer = Tokens(2, 40);
  std::vector<TokenId> second = first;
  second.insert(second.end(), answer.begin(), answer.end());
  for (const TokenId token : Tokens(3, 33)) second.push_back(token);
  std::string text = lines.Write(Ended(first, answer), 0);
  // The same question once more begins as the first did, but is no turn of it.
  text += lines.Write(Ended(first, {}), 10);
  text += lines.Write(Ended(second, Tokens(4, 40)), 20);
  const auto requests = ReadBack(text);
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].session, requests[2].session);
  EXPECT_NE(requests[0].session, requests[1].session);
  EXPECT_EQ(requests[2].prompt_tokens, 123);
  // What lies behind the first turn's blocks follows from the session.
  EXPECT_EQ(requests[2].block_hashes, requests[0].block_hashes);
}

TEST(TraceRecorder, RecordsWhatAnEngineServed) {
  engine::EngineConfig config;
  config.cache = {.block_tokens = 8, .block_bytes = 1, .blocks_count = 64, .groups = {{}}};
  config.vocab_size = 1000;
  config.max_model_len = 128;
  const test::TempFolder folder;
  const std::filesystem::path path = folder.path() / "trace.jsonl";
  struct Nobody final : RequestListener {
    void OnEvent(TokenEvent) override {}
  };
  const SteadyClock clock;
  {
    auto recorder = TraceRecorder::Open(path.string(), 8);
    ASSERT_TRUE(recorder.ok()) << recorder.error().message;
    engine::EngineCore core(config, std::make_unique<test::FakeRunner>(config.vocab_size), &clock,
                            {});
    core.set_observer(recorder->get());
    const auto submit = [&](RequestId id, int64_t prompt, int64_t output, int32_t n) {
      Request request;
      request.prompt = Tokens(7, prompt);
      request.max_tokens = output;
      request.n = n;
      ASSERT_TRUE(core.EnterQueue(prompt).ok());
      core.Enqueue(id, std::move(request), std::make_shared<Nobody>(), clock.Now());
    };
    submit(1, 20, 5, 1);
    submit(2, 36, 9, 2);
    submit(3, 30, 1, 1);
    core.Cancel(3);  // before it began: nobody knows how long its answer would have been
    submit(4, 12, 0, 1);
    while (core.has_work()) core.Step();
  }
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const auto reading = ReadTraceFile(path, {});
  ASSERT_TRUE(reading.ok()) << reading.error().message;
  std::vector<std::pair<int64_t, int64_t>> lengths;
  for (const TraceRequest& request : reading->trace.requests) {
    lengths.emplace_back(request.prompt_tokens, request.output_tokens);
  }
  std::ranges::sort(lengths);
  EXPECT_EQ(lengths,
            (std::vector<std::pair<int64_t, int64_t>>{{12, 1}, {20, 5}, {36, 9}, {36, 9}}));
}

TEST(TraceRecorder, SaysWhyAFileCannotBeWritten) {
  const auto recorder = TraceRecorder::Open("/no/such/folder/trace", 16);
  ASSERT_FALSE(recorder.ok());
  EXPECT_EQ(recorder.error().message,
            "/no/such/folder/trace: cannot be written: No such file or directory");
}

}  // namespace
}  // namespace kvasir::plan
