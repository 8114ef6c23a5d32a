// The runner gives every request the same bits whatever runs beside it: alone or in any batch,
// whole or in chunks, in whichever blocks, moved about or not, on one thread or two.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/plan_driver.h"

namespace kvasir {
namespace {

using test::DrivenSequence;
using test::PlanDriver;

// Requests of all kinds, for a vocabulary of at least 300 ids.
std::vector<DrivenSequence> MakeRequests(int64_t vocab_size) {
  Rng rng(2024);
  std::vector<DrivenSequence> requests;
  for (const int64_t prompt_count : {1, 5, 16, 33, 70, 110}) {
    DrivenSequence request;
    for (int64_t i = 0; i < prompt_count; ++i) {
      request.tokens.push_back(static_cast<TokenId>(rng.Below(static_cast<uint64_t>(vocab_size))));
    }
    request.prompt_count = prompt_count;
    request.output_count = rng.Between(4, 10);
    request.seed = rng.Next();
    const size_t kind = requests.size();
    SamplingParams& params = request.params;
    params.temperature = kind % 3 == 0 ? 0.0f : 0.9f;
    if (kind % 2 == 1) params.top_p = 0.9f;
    if (kind % 3 == 1) params.top_k = 40;
    if (kind % 3 == 2) params.repetition_penalty = 1.2f;
    params.logprobs = static_cast<int32_t>(kind % 4) - 1;
    if (kind == 3) params.logprob_token_ids = {7, 2};
    request.prompt_logprobs = kind % 2 == 0 ? 3 : -1;
    requests.push_back(request);
  }
  return requests;
}

// Each request on its own: the prompt in one step, then a token a step.
void RunAlone(PlanDriver& driver, DrivenSequence& request) {
  while (!request.done()) {
    driver.Plan(request, request.known() - request.computed);
    driver.Run();
    if (testing::Test::HasFatalFailure()) return;
  }
  driver.Release(request);
}

// All together in random steps: a random few in a random order, random chunks, blocks moved.
void RunMixed(PlanDriver& driver, std::vector<DrivenSequence>& requests, uint64_t seed) {
  Rng rng(seed);
  for (;;) {
    std::vector<DrivenSequence*> running;
    for (DrivenSequence& request : requests) {
      if (!request.done()) running.push_back(&request);
    }
    if (running.empty()) return;
    for (size_t i = running.size(); i > 1; --i) std::swap(running[i - 1], running[rng.Below(i)]);
    running.resize(static_cast<size_t>(rng.Between(1, static_cast<int64_t>(running.size()))));
    for (DrivenSequence* request : running) {
      if (request->computed > 0 && rng.Chance(0.2)) {
        const size_t group = rng.Below(request->tables.size());
        driver.PlanMove(*request, group, rng.Below(request->tables[group].size()));
      }
      if (request->computed > 0 && rng.Chance(0.05)) {  // preempted: all is computed anew
        driver.Release(*request);
        request->prompt_scores.clear();
      }
      const int64_t missing = request->known() - request->computed;
      driver.Plan(*request,
                  rng.Chance(0.3) ? missing : rng.Between(1, std::min<int64_t>(missing, 40)));
    }
    driver.Run();
    if (testing::Test::HasFatalFailure()) return;
  }
}

class RunnerExactTest : public testing::TestWithParam<std::string> {};

TEST_P(RunnerExactTest, AnyBatchGivesTheSameBits) {
  for (const std::string_view backend : kernels::AvailableBackends()) {
    SCOPED_TRACE(backend);
    test::LoadedModel one_thread = test::LoadTiny(GetParam(), backend, 1);
    test::LoadedModel two_threads = test::LoadTiny(GetParam(), backend, 2);
    ASSERT_NE(one_thread.model, nullptr);
    ASSERT_NE(two_threads.model, nullptr);
    const int64_t vocab_size = one_thread.model->spec().vocab_size;
    constexpr int64_t kBlockTokens = 16;
    constexpr int64_t kBlocks = 600;
    for (const DType kv_dtype : {DType::kF16, DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(Info(kv_dtype).name);
      std::vector<DrivenSequence> alone = MakeRequests(vocab_size);
      PlanDriver straight(one_thread, kv_dtype, kBlockTokens, kBlocks, 0);
      for (DrivenSequence& request : alone) {
        RunAlone(straight, request);
        if (HasFatalFailure()) return;
      }
      std::vector<DrivenSequence> mixed = MakeRequests(vocab_size);
      PlanDriver shuffled(two_threads, kv_dtype, kBlockTokens, kBlocks, 99);
      RunMixed(shuffled, mixed, static_cast<uint64_t>(kv_dtype) + 5);
      if (HasFatalFailure()) return;
      for (size_t i = 0; i < alone.size(); ++i) {
        SCOPED_TRACE(testing::Message() << "request " << i);
        ASSERT_FALSE(alone[i].error.has_value()) << alone[i].error->message;
        test::ExpectSameAnswer(alone[i], mixed[i]);
        if (HasFatalFailure()) return;
        ASSERT_EQ(alone[i].prompt_scores.size(),
                  alone[i].prompt_logprobs < 0 ? 0u : alone[i].prompt_count - 1u);
        ASSERT_EQ(alone[i].drawn_scores.size(),
                  alone[i].params.logprobs < 0 ? 0u : static_cast<size_t>(alone[i].output_count));
      }
    }
  }
}

TEST_P(RunnerExactTest, AnyBlockSizeGivesTheSameBits) {
  for (const std::string_view backend : kernels::AvailableBackends()) {
    SCOPED_TRACE(backend);
    test::LoadedModel loaded = test::LoadTiny(GetParam(), backend, 2);
    ASSERT_NE(loaded.model, nullptr);
    std::vector<std::vector<DrivenSequence>> answers;
    for (const int64_t block_tokens : {16, 32}) {
      std::vector<DrivenSequence> requests = MakeRequests(loaded.model->spec().vocab_size);
      PlanDriver driver(loaded, DType::kF16, block_tokens, 600, 3);
      RunMixed(driver, requests, static_cast<uint64_t>(block_tokens));
      if (HasFatalFailure()) return;
      answers.push_back(requests);
    }
    for (size_t i = 0; i < answers[0].size(); ++i)
      test::ExpectSameAnswer(answers[0][i], answers[1][i]);
  }
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Tiny, RunnerExactTest,
                         testing::Values("llama", "llama-f32", "gemma3", "mistral-swa", "gpt2",
                                         "cohere2", "gguf/llama-q8_0", "gguf/gemma3-q4_0",
                                         "gguf/llama-wide-q4_k_m"),
                         TestName);

TEST(RunnerTest, ChoicesOfOnePromptShareItAndDrawAsIfAlone) {
  for (const std::string_view backend : kernels::AvailableBackends()) {
    SCOPED_TRACE(backend);
    test::LoadedModel loaded = test::LoadTiny("llama", backend, 2);
    ASSERT_NE(loaded.model, nullptr);
    constexpr int64_t kBlockTokens = 16;
    constexpr int64_t kOutput = 6;
    std::vector<DrivenSequence> alone;
    for (uint64_t choice = 0; choice < 4; ++choice) {
      DrivenSequence request = MakeRequests(loaded.model->spec().vocab_size)[3];  // 33 tokens
      request.params.temperature = 1.5f;
      request.params.logprobs = 2;
      request.output_count = kOutput;
      request.seed = CombineSeeds(77, choice);
      alone.push_back(request);
    }
    std::vector<DrivenSequence> shared = alone;
    PlanDriver driver(loaded, DType::kF16, kBlockTokens, 64, 5);
    for (DrivenSequence& request : alone) RunAlone(driver, request);
    ASSERT_FALSE(HasFatalFailure());

    // The prompt once, with a slot a choice; then each goes on with a copy of the last block.
    PlanDriver forking(loaded, DType::kF16, kBlockTokens, 64, 6);
    std::vector<BlockId> prompt_blocks = {9, 4, 30};
    StepPlan prompt;
    prompt.items.resize(1);
    prompt.items[0].tokens = shared[0].tokens;
    prompt.items[0].block_tables = {prompt_blocks};
    for (DrivenSequence& request : shared) {
      prompt.items[0].samples.push_back(
          {&request.params, request.seed, request.tokens, request.prompt_count});
    }
    StepResult first = forking.runner().Run(prompt);
    ASSERT_FALSE(first.items[0].error.has_value());
    StepPlan next;
    for (size_t i = 0; i < shared.size(); ++i) {
      DrivenSequence& request = shared[i];
      request.tokens.push_back(first.items[0].samples[i].token);
      request.drawn_scores.push_back(first.items[0].samples[i].logprobs.value());
      request.computed = request.prompt_count;
      request.tables = {{9, 4, static_cast<BlockId>(50 + i)}};
      next.copies.push_back({30, static_cast<BlockId>(50 + i)});
    }
    for (int64_t step = 1; step < kOutput; ++step) {
      for (DrivenSequence& request : shared) {
        PlanItem item;
        item.start = request.computed;
        item.tokens = std::span<const TokenId>(request.tokens).last(1);
        item.block_tables = {request.tables[0]};
        item.samples = {{&request.params, request.seed, request.tokens, request.prompt_count}};
        next.items.push_back(item);
      }
      StepResult result = forking.runner().Run(next);
      for (size_t i = 0; i < shared.size(); ++i) {
        ++shared[i].computed;
        shared[i].tokens.push_back(result.items[i].samples[0].token);
        shared[i].drawn_scores.push_back(result.items[i].samples[0].logprobs.value());
      }
      next = {};
    }
    for (size_t i = 0; i < shared.size(); ++i) test::ExpectSameAnswer(shared[i], alone[i]);
    EXPECT_NE(shared[0].tokens, shared[1].tokens);
    EXPECT_EQ(shared[0].drawn_scores[0].top, shared[1].drawn_scores[0].top);
  }
}

// Passes everything on to the reference but writes NaN over one row of the logits.
class PoisoningBackend final : public kernels::Backend {
 public:
  explicit PoisoningBackend(std::unique_ptr<kernels::Backend> inner) : inner_(std::move(inner)) {}

  int64_t vocab_size = 0;
  int64_t poisoned_row = -1;

  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] bool Supports(DType dtype) const override { return inner_->Supports(dtype); }
  [[nodiscard]] std::unique_ptr<kernels::PackedMatrix> Pack(
      std::span<const TensorView> parts, const kernels::BytesDone& done) override {
    return inner_->Pack(parts, done);
  }
  void Matmul(const kernels::MatmulArgs& args) override {
    inner_->Matmul(args);
    const kernels::MatmulOutput& output = args.outputs.front();
    if (output.weight->rows != vocab_size || poisoned_row < 0) return;
    output.y[poisoned_row * output.ldy + 5] = std::numeric_limits<float>::quiet_NaN();
  }
  void Gather(const kernels::GatherArgs& args) override { inner_->Gather(args); }
  void Norm(const kernels::NormArgs& args) override { inner_->Norm(args); }
  void Activate(const kernels::ActivationArgs& args) override { inner_->Activate(args); }
  void Rope(const kernels::RopeArgs& args) override { inner_->Rope(args); }
  void Add(const kernels::AddArgs& args) override { inner_->Add(args); }
  void Scale(const kernels::ScaleArgs& args) override { inner_->Scale(args); }
  void StoreKv(const kernels::StoreKvArgs& args) override { inner_->StoreKv(args); }
  void Attention(const kernels::AttentionArgs& args) override { inner_->Attention(args); }

 private:
  std::unique_ptr<kernels::Backend> inner_;
};

TEST(RunnerTest, NanInOneRowFailsItsItemAlone) {
  test::LoadedModel loaded = test::LoadTiny("llama", "ref", 2);
  ASSERT_NE(loaded.model, nullptr);
  auto owned = std::make_unique<PoisoningBackend>(std::move(loaded.backend));
  PoisoningBackend& poison = *owned;
  loaded.backend = std::move(owned);
  loaded.model = std::move(model::Model::Load(*loaded.files, *loaded.backend)).value();
  poison.vocab_size = loaded.model->spec().vocab_size;

  const auto run = [&](int64_t poisoned_row) {
    std::vector<DrivenSequence> requests = MakeRequests(poison.vocab_size);
    requests.resize(3);
    PlanDriver driver(loaded, DType::kF16, 16, 100, 1);
    poison.poisoned_row = poisoned_row;
    for (DrivenSequence& request : requests) driver.Plan(request, request.known());
    driver.Run();
    poison.poisoned_row = -1;
    return requests;
  };
  const std::vector<DrivenSequence> healthy = run(-1);
  const std::vector<DrivenSequence> broken = run(1);  // the second row that logits are made for
  ASSERT_EQ(healthy.size(), broken.size());
  test::ExpectSameAnswer(broken[0], healthy[0]);
  ASSERT_TRUE(broken[1].error.has_value());
  EXPECT_EQ(broken[1].error->message, "the model's logits hold NaN, expected numbers");
  EXPECT_FALSE(healthy[1].error.has_value());
  test::ExpectSameAnswer(broken[2], healthy[2]);
}

TEST(RunnerTest, AStepOfCopiesAloneAndAnEmptyStep) {
  test::LoadedModel loaded = test::LoadTiny("llama", "ref", 1);
  ASSERT_NE(loaded.model, nullptr);
  PlanDriver driver(loaded, DType::kF16, 16, 8, 0);
  StepPlan plan;
  EXPECT_TRUE(driver.runner().Run(plan).items.empty());
  plan.copies = {{0, 1}};
  EXPECT_TRUE(driver.runner().Run(plan).items.empty());
}

}  // namespace
}  // namespace kvasir
