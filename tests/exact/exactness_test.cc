// The promise that no neighbour, no chunk, no cache hit, no preemption and no thread changes a bit
// of an answer, on whole engines with real kernels.
#include <gtest/gtest.h>

#include <bit>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/loaded_engine.h"
#include "base/log.h"
#include "base/rng.h"
#include "cache/capacity.h"
#include "kernels/backend.h"
#include "support/data.h"

namespace kvasir {
namespace {

// What a request answered, as words that can be compared bit for bit.
struct Answer {
  std::vector<std::vector<int64_t>> choices;
  std::vector<int64_t> prompt;
  bool failed = false;

  bool operator==(const Answer&) const = default;
};

void Append(const TokenLogprobs& logprobs, std::vector<int64_t>& words) {
  words.push_back(logprobs.token);
  words.push_back(std::bit_cast<int32_t>(logprobs.logprob));
  words.push_back(logprobs.rank);
  for (const auto& [token, logprob] : logprobs.top) {
    words.push_back(token);
    words.push_back(std::bit_cast<int32_t>(logprob));
  }
}

class Collector final : public RequestListener {
 public:
  explicit Collector(int32_t choices_count) : open_(choices_count) {
    answer_.choices.resize(static_cast<size_t>(choices_count));
  }

  void OnEvent(TokenEvent event) override {
    const std::lock_guard lock(mutex_);
    std::vector<int64_t>& words = answer_.choices[static_cast<size_t>(event.index)];
    for (const TokenLogprobs& logprobs : event.prompt_logprobs) Append(logprobs, answer_.prompt);
    if (event.token) words.push_back(*event.token);
    if (event.logprobs) Append(*event.logprobs, words);
    if (event.finish == FinishReason::kNone) return;
    words.push_back(static_cast<int64_t>(event.finish));
    if (event.finish == FinishReason::kError) answer_.failed = true;
    if (--open_ == 0) ended_.notify_all();
  }

  Answer Wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return open_ == 0; });
    return answer_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  int32_t open_;
  Answer answer_;
};

// Holds the engine's thread in its first event until told to go on, so that what comes together
// does not depend on how fast it comes.
class Gate final : public RequestListener {
 public:
  void OnEvent(TokenEvent) override { open_.wait(); }
  void Open() { open_.count_down(); }

 private:
  std::latch open_{1};
};

// Prompts of mixed lengths, some beginning alike; greedy and sampled, with all that sampling
// offers.
std::vector<Request> MixedRequests(int count, int64_t vocab, int64_t prompt_max, int64_t output_max,
                                   uint64_t seed) {
  Rng rng(seed);
  std::vector<std::vector<TokenId>> shared(3);
  for (auto& prefix : shared) {
    for (int64_t i = 0; i < prompt_max / 2; ++i) {
      prefix.push_back(static_cast<TokenId>(rng.Between(5, vocab - 1)));
    }
  }
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    if (rng.Chance(0.5)) request.prompt = shared[rng.Below(shared.size())];
    const int64_t own = rng.Between(1, prompt_max / 2);
    for (int64_t t = 0; t < own; ++t) {
      request.prompt.push_back(static_cast<TokenId>(rng.Between(5, vocab - 1)));
    }
    request.max_tokens = rng.Between(1, output_max);
    request.n = rng.Chance(0.2) ? 3 : 1;
    if (rng.Chance(0.15)) request.prompt_logprobs = 2;
    SamplingParams& sampling = request.sampling;
    sampling.temperature = request.n > 1 || rng.Chance(0.6) ? 0.9f : 0.0f;
    sampling.seed = rng.Next();
    if (rng.Chance(0.3)) sampling.top_p = 0.9f;
    if (rng.Chance(0.3)) sampling.top_k = 20;
    if (rng.Chance(0.2)) sampling.min_p = 0.02f;
    if (rng.Chance(0.3)) sampling.repetition_penalty = 1.2f;
    if (rng.Chance(0.2)) sampling.presence_penalty = 0.5f;
    if (rng.Chance(0.5)) sampling.logprobs = 3;
    if (rng.Chance(0.3)) sampling.stop_token_ids = {2, 4};
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Outcome {
  std::vector<Answer> answers;
  int64_t blocks_per_request = 0;
  int64_t preemptions = 0;
  int64_t prefix_hits = 0;
};

// Loads the model and runs all requests, `together` or one after the other; `rounds` times in the
// same engine, of which the last is returned.
Outcome RunAll(const app::EngineFlags& flags, const std::vector<Request>& requests, bool together,
               int rounds = 1) {
  Outcome outcome;
  auto loaded = app::LoadEngine(flags);
  if (!loaded.ok()) {
    ADD_FAILURE() << loaded.error().message;
    return outcome;
  }
  const engine::EngineConfig& config = loaded->engine->config();
  outcome.blocks_per_request = cache::PeakBlocks(config.cache, config.max_model_len, 1);
  for (int round = 0; round < rounds; ++round) {
    outcome.answers.clear();
    std::vector<std::shared_ptr<Collector>> collectors;
    const auto gate = std::make_shared<Gate>();
    if (together) {
      Request first;
      first.prompt = {5};
      first.max_tokens = 1;
      EXPECT_TRUE(loaded->engine->Submit(first, gate).ok());
    }
    for (const Request& request : requests) {
      collectors.push_back(std::make_shared<Collector>(request.n));
      const auto id = loaded->engine->Submit(request, collectors.back());
      EXPECT_TRUE(id.ok()) << id.error().message;
      if (!id.ok()) {
        gate->Open();
        return outcome;
      }
      if (!together) outcome.answers.push_back(collectors.back()->Wait());
    }
    gate->Open();
    if (together) {
      for (const auto& collector : collectors) outcome.answers.push_back(collector->Wait());
    }
  }
  outcome.preemptions = loaded->engine->metrics().preemptions.value();
  outcome.prefix_hits = loaded->engine->metrics().prefix_cache_hits.value();
  return outcome;
}

void ExpectEqual(const Outcome& got, const Outcome& alone, const std::string& what) {
  ASSERT_EQ(got.answers.size(), alone.answers.size()) << what;
  int different = 0;
  for (size_t i = 0; i < got.answers.size(); ++i) {
    EXPECT_FALSE(alone.answers[i].failed) << what << ", request " << i;
    if (got.answers[i] != alone.answers[i]) ++different;
  }
  EXPECT_EQ(different, 0) << what << ": requests that answered otherwise than alone, of "
                          << got.answers.size();
}

struct Workload {
  int requests_count;
  int64_t vocab;
  int64_t prompt_max;
  int64_t output_max;
  int64_t preemptions_min;  // that the small cache must bring about
};

void CheckModel(const std::filesystem::path& path, const std::string& kernels,
                const Workload& workload, bool all_switches) {
  SetLogLevel(LogLevel::kWarning);
  const std::vector<Request> requests = MixedRequests(
      workload.requests_count, workload.vocab, workload.prompt_max, workload.output_max, 20261129);
  app::EngineFlags base;
  base.model = path.string();
  base.kernels = kernels;
  base.kv_cache_memory = "512MiB";
  base.max_model_len = workload.prompt_max + workload.output_max;
  base.threads = 1;
  base.max_num_batched_tokens = 2048;
  base.enable_prefix_caching = false;
  const Outcome alone = RunAll(base, requests, false);

  app::EngineFlags loaded = base;
  loaded.threads = 2;
  loaded.enable_prefix_caching = true;
  loaded.max_num_batched_tokens = 48;
  const Outcome twice = RunAll(loaded, requests, true, 2);
  ExpectEqual(twice, alone, "together on two threads, prefixes cached, chunks of 48");
  EXPECT_GT(twice.prefix_hits, 0);

  app::EngineFlags small = loaded;
  small.kv_cache_memory.clear();
  small.num_kv_blocks = 2 * alone.blocks_per_request;
  const Outcome preempted = RunAll(small, requests, true);
  ExpectEqual(preempted, alone, "with a cache so small that requests are preempted");
  EXPECT_GE(preempted.preemptions, workload.preemptions_min);

  if (!all_switches) return;
  for (const int64_t budget : {1, 7, 513}) {
    app::EngineFlags flags = loaded;
    flags.max_num_batched_tokens = budget;
    ExpectEqual(RunAll(flags, requests, true), alone, "budget " + std::to_string(budget));
  }
  for (const int64_t block_size : {8, 32}) {
    app::EngineFlags flags = loaded;
    flags.block_size = block_size;
    flags.threads = 3;
    const Outcome got = RunAll(flags, requests, true);
    ExpectEqual(got, alone, "block size " + std::to_string(block_size));
  }
  {
    app::EngineFlags flags = loaded;
    flags.kv_allocation = "reserved";
    ExpectEqual(RunAll(flags, requests, true), alone, "reserved allocation");
  }
  {
    app::EngineFlags flags = loaded;
    flags.batching = "static";
    ExpectEqual(RunAll(flags, requests, true), alone, "static batching");
  }
  {
    app::EngineFlags flags = loaded;
    flags.enable_chunked_prefill = false;
    flags.max_num_batched_tokens = 0;
    ExpectEqual(RunAll(flags, requests, true), alone, "prompts whole");
  }
}

constexpr Workload kTinyWorkload = {64, 380, 60, 120, 24};

class TinyModels : public testing::TestWithParam<const char*> {};

TEST_P(TinyModels, EveryRequestAnswersAsAlone) {
  for (const std::string_view kernels : kernels::AvailableBackends()) {
    SCOPED_TRACE(kernels);
    CheckModel(test::DataPath("models") / GetParam(), std::string(kernels), kTinyWorkload, true);
  }
}

// Full attention; alternating windows and soft caps; windows with two ropes; quantized weights;
// partial rope with parallel blocks and biases.
INSTANTIATE_TEST_SUITE_P(Exact, TinyModels,
                         testing::Values("llama", "gemma2", "gemma3", "mistral-swa", "gpt-neox",
                                         "gguf/llama-q4_0/model.gguf", "gguf/qwen3-q8_0/model.gguf",
                                         "gguf/llama-wide-q4_k_m/model.gguf"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

TEST(RealModel, SixtyFourMixedRequestsAnswerAsAlone) {
  const char* cache = std::getenv("KVASIR_MODEL_CACHE");
  const std::filesystem::path path =
      (cache != nullptr ? std::filesystem::path(cache)
                        : std::filesystem::path(KVASIR_SOURCE_DIR) / ".cache/models") /
      "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) {
    if (std::getenv("CI") != nullptr) FAIL() << path << " is missing";
    GTEST_SKIP() << path << " is missing; ./test fetches it";
  }
  CheckModel(path, "auto", {64, 49000, 48, 24, 8}, false);
}

}  // namespace
}  // namespace kvasir
