// The figures that must come out, and what must hold of any.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "plan/answer.h"
#include "plan/search.h"
#include "plan/units.h"
#include "support/temp_folder.h"

namespace kvasir::plan {
namespace {

ModelShape Shape(std::string_view name) { return FindModelShape(name).value(); }
Hardware Machine(std::string_view name) { return FindHardware(name).value(); }
NumberFormat Weights(std::string_view name) { return ParseWeightFormat(name).value(); }

// The numbers of the first line of `text` that starts with `start`, in their order, commas left
// out.
std::vector<double> NumbersOf(const std::string& text, const std::string& start) {
  std::vector<double> numbers;
  const size_t at = text.find("\n" + start);
  if (at == std::string::npos) return numbers;
  const size_t from = at + 1 + start.size();
  std::string line = text.substr(from, text.find('\n', from) - from);
  std::erase(line, ',');
  for (size_t i = 0; i < line.size();) {
    if (line[i] < '0' || line[i] > '9') {
      ++i;
      continue;
    }
    size_t used = 0;
    numbers.push_back(std::stod(line.substr(i), &used));
    i += used;
  }
  return numbers;
}

Answer Ask(std::string_view model, std::string_view hardware, const Choices& choices = {}) {
  auto answer = MakeAnswer(Shape(model), Machine(hardware), choices);
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  return *std::move(answer);
}

TEST(PlanAnswerTest, GptOss120bOnOneH100) {
  const Answer shipped = Ask("gpt-oss-120b", "h100-80gb");
  EXPECT_EQ(shipped.kv_bytes_per_token, 73'728);
  EXPECT_EQ(shipped.kv_bytes_per_token_growing, 36'864);
  // 65.2 GB of weights in MXFP4: one card, with 15 to 20 GB left.
  EXPECT_NEAR(static_cast<double>(shipped.memory.weights_bytes), 65.2e9, 0.2e9);
  EXPECT_EQ(shipped.devices_needed, 1);
  EXPECT_GT(shipped.memory.left_bytes_per_device, 15'000'000'000);
  EXPECT_LT(shipped.memory.left_bytes_per_device, 20'000'000'000);
  EXPECT_EQ(shipped.choices.context_tokens, 8192);
  EXPECT_GE(shipped.users_paged, 50);
  EXPECT_LE(shipped.users_paged, 60);
  EXPECT_EQ(shipped.choices.reserved_tokens, 131'072);
  EXPECT_EQ(shipped.users_reserved, 3);
  // Half the layers keep 128 tokens; keeping all of them halves what fits.
  EXPECT_EQ(shipped.users_reserved_whole, 1);
  EXPECT_EQ(shipped.serving.value_or(Parallel{9, 9, 9}), Parallel{});

  Choices bf16;
  bf16.weights = Weights("bf16");
  const Answer wide = Ask("gpt-oss-120b", "h100-80gb", bf16);
  EXPECT_NEAR(static_cast<double>(wide.memory.weights_bytes), 234e9, 1e9);
  EXPECT_EQ(wide.devices_needed, 3);
  EXPECT_EQ(wide.users_paged, 0);
  ASSERT_TRUE(wide.serving.has_value());
  EXPECT_GE(wide.serving->DevicesCount(), 3);
  bf16.users = 50;
  EXPECT_EQ(Ask("gpt-oss-120b", "h100-80gb", bf16).serving.value(), (Parallel{4, 1, 1}));
}

TEST(PlanAnswerTest, SpeedAndPriceAreOfTheUsersThatFit) {
  Choices choices;
  choices.users = 100;
  const Answer many = Ask("gpt-oss-120b", "h100-80gb", choices);
  ASSERT_EQ(many.users_paged, 51);
  EXPECT_EQ(many.users_served, 51);
  EXPECT_EQ(many.decode_many.users, 51);
  EXPECT_LE(many.peak_bytes_per_device, many.memory.usable_bytes_per_device);
  choices.users = 51;
  const Answer all = Ask("gpt-oss-120b", "h100-80gb", choices);
  EXPECT_EQ(many.output_price, all.output_price);
  EXPECT_EQ(many.decode_many.tokens_per_second, all.decode_many.tokens_per_second);
  EXPECT_NE(ToTable(many).find("decode, 51 users (all that fit) "), std::string::npos);
  EXPECT_EQ(ToTable(many).find("decode, 100 users"), std::string::npos);
  EXPECT_EQ(ToTable(all).find("all that fit"), std::string::npos);
  const auto json = ToJson(many);
  EXPECT_EQ(json["users_served"], 51);
  EXPECT_EQ(json["decode_many"]["users"], 51);
  EXPECT_EQ(json["choices"]["users"], 100);
  EXPECT_EQ(json["users_to_serve"], 100);
  // One alone, of two.
  choices.context_tokens = 131'072;
  choices.shared_prefix = 0;
  Hardware machine = Machine("h100-80gb");
  machine.memory_bytes -= 10'000'000'000;
  const Answer one = MakeAnswer(Shape("gpt-oss-120b"), machine, choices).value();
  ASSERT_EQ(one.users_paged, 1);
  EXPECT_NE(ToTable(one).find("decode, 1 user (all that fit) "), std::string::npos);
  choices.weights = Weights("bf16");
  EXPECT_EQ(ToJson(Ask("gpt-oss-120b", "h100-80gb", choices))["users_served"], 0);
}

TEST(PlanAnswerTest, TheExplainedUsersAreTheQuotient) {
  for (const double share : {0.0, 0.25, 0.5, 0.9}) {
    for (const char* model : {"gpt-oss-120b", "qwen3-8b"}) {
      Choices choices;
      choices.shared_prefix = share;
      const Answer answer = Ask(model, "h100-80gb", choices);
      const std::vector<double> n = NumbersOf(Explain(answer), "  paged: ");
      double users = 0;
      if (share > 0) {
        ASSERT_EQ(n.size(), 5U);
        users = (n[0] - n[1]) / (n[2] - n[3]);
      } else {
        ASSERT_EQ(n.size(), 3U);
        users = n[0] / n[1];
      }
      EXPECT_EQ(std::floor(users), n.back()) << model << " " << share;
      EXPECT_EQ(n.back(), static_cast<double>(answer.users_paged));
    }
  }
  // What all of a context in common leaves of a user is a block.
  Choices choices;
  choices.shared_prefix = 1;
  const Answer whole = Ask("qwen3-8b", "h100-80gb", choices);
  const std::vector<double> n = NumbersOf(Explain(whole), "  paged: ");
  ASSERT_GE(n.size(), 4U);
  EXPECT_EQ(n.back(), static_cast<double>(whole.users_paged));
}

TEST(PlanAnswerTest, EachExplainedFormulaGivesWhatItSays) {
  for (const char* machine : {"h100-80gb", "epyc-genoa-1s"}) {
    const Answer answer = Ask("gpt-oss-120b", machine);
    const std::string text = Explain(answer);
    std::vector<double> n = NumbersOf(text, "  activations: ");
    ASSERT_EQ(n.size(), 9U) << text;
    EXPECT_EQ(n[0] * (n[1] * n[2] + n[3] + n[4] + n[5]) * n[6] / n[7], n[8]);
    EXPECT_EQ(n[8], static_cast<double>(answer.memory.activations_bytes_per_device));
    n = NumbersOf(text, "  workspace: ");
    const bool cpu = answer.hardware.kind == Hardware::Kind::kCpu;
    ASSERT_EQ(n.size(), cpu ? 8U : 7U) << text;
    EXPECT_EQ(n[0] * (n[1] * n[2] + n[3] * n[4]) / n[5] + (cpu ? n[6] : 0), n.back());
    n = NumbersOf(text, "  devices: ");
    ASSERT_EQ(n.size(), 5U) << text;
    EXPECT_EQ(std::ceil(n[0] / (n[1] - n[2] - n[3])), n[4]);
    n = NumbersOf(text, "    on them: ");
    ASSERT_EQ(n.size(), 3U) << text;
    EXPECT_EQ(std::floor(n[0] / n[1]), n[2]);
    EXPECT_NE(text.find("prefill, the last step"), std::string::npos);
  }
  const std::string text = Explain(Ask("gpt-oss-120b", "h100-80gb"));
  std::vector<double> n = NumbersOf(text, "  a million tokens of prompt: $");
  ASSERT_EQ(n.size(), 7U) << text;
  EXPECT_NEAR(n[0] * n[1] / n[2] / (n[3] * n[4]) * n[5], n[6], 0.01 * n[6]);
  // As they are summed by arithmetic, so they take their time.
  for (const char* model : {"gpt-oss-120b", "deepseek-v3"}) {
    Choices choices;
    choices.parallel = {1, 1, 8};
    const Answer answer = Ask(model, "h200", choices);
    for (const StepTime& step : {answer.decode_one.step, answer.prefill.last_step}) {
      double seconds = 0;
      double flops = 0;
      for (size_t i = 0; i < kMathCount; ++i) {
        flops += step.math_flops[i];
        if (step.math_flops[i] > 0) {
          seconds += step.idle_factor * step.math_flops[i] / answer.rates.flops[i];
        }
      }
      EXPECT_NEAR(flops, step.flops, 1e-9 * flops);
      EXPECT_NEAR(seconds, step.compute_s, 1e-9 * seconds);
    }
  }
}

TEST(PlanAnswerTest, APriceOfNothingIsAPrice) {
  Hardware machine = Machine("h100-80gb");
  machine.price_per_hour = 0;
  const Answer free = MakeAnswer(Shape("gpt-oss-20b"), machine, {}).value();
  EXPECT_EQ(ToJson(free)["usd_per_million_output_tokens"], 0.0);
  EXPECT_EQ(ToJson(free)["usd_per_million_prompt_tokens"], 0.0);
  EXPECT_NE(ToTable(free).find("$0 written by"), std::string::npos);
  machine.price_per_hour.reset();
  const Answer unknown = MakeAnswer(Shape("gpt-oss-20b"), machine, {}).value();
  EXPECT_TRUE(ToJson(unknown)["usd_per_million_output_tokens"].is_null());
  EXPECT_NE(ToTable(unknown).find("unknown: set it with --price"), std::string::npos);
}

TEST(PlanAnswerTest, KvBytesByContext) {
  const Answer oss = Ask("gpt-oss-120b", "h100-80gb");
  const auto growing = [&](int64_t context) {
    for (const ContextRow& row : oss.rows) {
      if (row.context_tokens == context) return static_cast<double>(row.growing_bytes);
    }
    ADD_FAILURE() << "no row of " << context;
    return 0.0;
  };
  EXPECT_NEAR(growing(2048), 75e6, 1e6);
  EXPECT_NEAR(growing(8192), 300e6, 3e6);
  EXPECT_NEAR(growing(32'768), 1.2e9, 0.01e9);
  EXPECT_NEAR(growing(131'072), 4.8e9, 0.04e9);
  const Answer llama = Ask("llama-3.3-70b", "h100-80gb");
  EXPECT_EQ(llama.kv_bytes_per_token, 327'680);
  EXPECT_NEAR(static_cast<double>(llama.kv_bytes_per_token_growing) /
                  static_cast<double>(oss.kv_bytes_per_token_growing),
              9.0, 0.2);
  EXPECT_EQ(Ask("deepseek-v3", "h200").kv_bytes_per_token, 70'272);
}

// Llama 2 7B with 8k contexts would leave 512 KiB a token: 4 GiB a request.
TEST(PlanAnswerTest, AServerThatReservesFourGigabytesARequest) {
  ModelShape model = Shape("llama-2-7b");
  model.max_positions = 8192;
  Hardware machine = Machine("b200");
  constexpr int64_t kGiB = int64_t{1} << 30;
  for (const int64_t requests : {10, 20}) {
    Choices choices;
    choices.utilization = 1.0;
    // As much memory as weights and a step take, and 4 GiB a request.
    machine.memory_bytes = 0;
    const int64_t beside =
        -MakeAnswer(model, machine, choices).value().memory.left_bytes_per_device;
    machine.memory_bytes = beside + requests * 4 * kGiB;
    const Answer answer = MakeAnswer(model, machine, choices).value();
    EXPECT_EQ(SequenceBytes(answer.memory, 8192), 4 * kGiB);
    EXPECT_EQ(answer.memory.kv_budget_bytes, requests * 4 * kGiB);
    EXPECT_EQ(answer.users_reserved, requests);
    machine.memory_bytes -= 1;
    EXPECT_EQ(MakeAnswer(model, machine, choices).value().users_reserved, requests - 1);
  }
  // As people read it: 128 KiB a token.
  Choices choices;
  choices.reserved_tokens = 30'512;
  const std::string table = ToTable(Ask("llama-3.1-8b", "h100-80gb", choices));
  EXPECT_NE(table.find("each reserves 30,512 tokens, 4.00 GB: 10 of them 40.0 GB, 20 of them "
                       "80.0 GB\n"),
            std::string::npos)
      << table;
}

TEST(PlanAnswerTest, PartsSumToTheWholeAndMoreOfAnythingIsNeverLess) {
  Rng rng(20261130);
  const std::vector<ModelListing>& models = ModelCatalogue();
  const std::vector<Hardware>& machines = HardwareCatalogue();
  const std::vector<std::string> formats = {"bf16",  "fp8",   "int8", "int4",
                                            "mxfp4", "nvfp4", "Q4_K", "Q8_0"};
  for (int round = 0; round < 300; ++round) {
    const ModelShape model = Shape(models[rng.Below(models.size())].name);
    Hardware machine = machines[rng.Below(machines.size())];
    machine.memory_bytes *= 1 + static_cast<int64_t>(rng.Below(40));
    Choices choices;
    if (rng.Below(3) > 0) choices.weights = Weights(formats[rng.Below(formats.size())]);
    choices.block_tokens = int64_t{1} << rng.Below(8);
    choices.context_tokens =
        1 + static_cast<int64_t>(rng.Below(static_cast<uint64_t>(model.max_positions)));
    choices.shared_prefix = static_cast<double>(rng.Below(101)) / 100.0;
    choices.users = 1 + static_cast<int64_t>(rng.Below(64));
    const std::string what =
        fmt::format("{} on {}, {} tokens, blocks of {}", model.name, machine.name,
                    choices.context_tokens, choices.block_tokens);
    const Answer answer = MakeAnswer(model, machine, choices).value();
    const MemoryPlan& memory = answer.memory;

    int64_t weights = 0;
    for (const int64_t bytes : memory.part_bytes) weights += bytes;
    EXPECT_EQ(weights, memory.weights_bytes) << what;
    EXPECT_EQ(memory.usable_bytes_per_device,
              memory.weights_bytes_per_device + memory.activations_bytes_per_device +
                  memory.workspace_bytes_per_device + memory.left_bytes_per_device)
        << what;
    int64_t kv = 0;
    for (const KvKind& kind : answer.kv_kinds) kv += kind.bytes_per_token;
    EXPECT_EQ(kv, answer.kv_bytes_per_token) << what;
    EXPECT_LE(answer.kv_bytes_per_token_growing, kv) << what;

    // A reservation is for at least the context, so it takes at least as much.
    const int64_t context = answer.choices.context_tokens;
    EXPECT_GE(SequenceBytes(memory, answer.choices.reserved_tokens), SequenceBytes(memory, context))
        << what;
    EXPECT_LE(answer.users_reserved, answer.users_paged) << what;
    EXPECT_LE(answer.users_reserved_whole, answer.users_reserved) << what;
    // Paged takes less than a block a group more than the tokens.
    EXPECT_LE(SequenceBytes(memory, context + 1) - SequenceBytes(memory, context),
              static_cast<int64_t>(memory.cache.groups.size()) * memory.cache.block_bytes)
        << what;
    EXPECT_GE(SequenceBytes(memory, context + 1), SequenceBytes(memory, context)) << what;
    EXPECT_LE(answer.users_paged * (SequenceBytes(memory, context)) *
                  static_cast<int64_t>(choices.shared_prefix == 0),
              memory.kv_budget_bytes)
        << what;
    EXPECT_LE(UsersPaged(memory, 1, context + 1, 0), UsersPaged(memory, 1, context, 0)) << what;
    EXPECT_GE(UsersPaged(memory, 1, context, context / 2), UsersPaged(memory, 1, context, 0))
        << what;

    // Time grows with users and with context, and never falls below a part of it.
    const auto decode = [&](int64_t users, int64_t tokens) {
      const Roofline roofline(
          machine, model,
          {.weights = answer.options.weights, .kv = answer.options.kv, .parallel = {}});
      return DecodeOf(roofline, {}, users, tokens).step;
    };
    const StepTime step = decode(choices.users, context);
    EXPECT_GE(step.seconds, step.memory_s) << what;
    EXPECT_GE(step.seconds, step.compute_s) << what;
    EXPECT_LE(step.seconds, decode(choices.users + 1, context).seconds) << what;
    EXPECT_LE(step.seconds, decode(choices.users, context + 1).seconds) << what;
    Hardware faster = machine;
    faster.bandwidth *= 2;
    EXPECT_LE(MakeAnswer(model, faster, choices).value().decode_one.step.seconds,
              answer.decode_one.step.seconds)
        << what;
    // Memory that is more leaves more.
    Hardware larger = machine;
    larger.memory_bytes += machine.memory_bytes / 3;
    const Answer more = MakeAnswer(model, larger, choices).value();
    EXPECT_GE(more.users_paged, answer.users_paged) << what;
    // 0: no number of devices would do.
    if (answer.devices_needed > 0) {
      EXPECT_LE(more.devices_needed, answer.devices_needed) << what;
    }
    EXPECT_FALSE(ToTable(answer).empty());
    EXPECT_FALSE(Explain(answer).empty());
    EXPECT_EQ(ToJson(answer)["users_paged"], answer.users_paged);
  }
}

TEST(PlanAnswerTest, SmallerFormatsTakeTheirShare) {
  const ModelShape model = Shape("llama-3.1-8b");
  const auto bytes = [&](std::string_view format) {
    Choices choices;
    choices.weights = Weights(format);
    return Ask("llama-3.1-8b", "h200", choices).memory.weights_bytes;
  };
  const int64_t all = model.ParametersCount();
  EXPECT_EQ(bytes("bf16"), 2 * all);
  EXPECT_EQ(bytes("f32"), 4 * all);
  const int64_t table =
      model.ParametersCount(Part::kEmbedding) + model.ParametersCount(Part::kHead);
  const int64_t norms = model.ParametersCount(Part::kNorms);
  const int64_t matrices = all - table - norms;
  EXPECT_EQ(bytes("int4-g128"), 2 * (table + norms) + matrices / 128 * 66);
  EXPECT_EQ(bytes("mxfp4"), 2 * (table + norms) + matrices / 32 * 17);
  EXPECT_EQ(bytes("fp8"), 2 * (table + norms) + matrices + matrices / (128 * 128) * 4);
  EXPECT_EQ(bytes("Q8_0"), 4 * norms + (table + matrices) / 32 * 34);
  EXPECT_EQ(bytes("q4_k"), 4 * norms + (table + matrices) / 256 * 144);
}

TEST(PlanAnswerTest, BoundsByHand) {
  // Llama 3.1 8B in BF16 on an H200: each token reads all weights but the table.
  Choices choices;
  choices.context_tokens = 1;
  choices.users = 1;
  const Answer answer = Ask("llama-3.1-8b", "h200", choices);
  const double read = 2.0 * static_cast<double>(answer.model.ActiveParametersCount());
  const StepTime& step = answer.decode_one.step;
  EXPECT_EQ(step.bound, Bound::kMemory);
  EXPECT_NEAR(step.memory_s, read / 4.8e12, 1e-3 * read / 4.8e12);
  EXPECT_NEAR(step.compute_s, read / 989e12, 1e-2 * read / 989e12);
  // 8,192 new tokens: two operations a weight and token, and half the square of pairs.
  const Roofline roofline(
      answer.hardware, answer.model,
      {.weights = answer.model.shipped, .kv = answer.options.kv, .parallel = {}});
  const StepSequence prompt{8192, 0};
  const StepTime prefill = roofline.Step({&prompt, 1}, 1);
  const double dense =
      2.0 * 8192 * (static_cast<double>(answer.model.ActiveParametersCount()) - 128256.0 * 4096);
  const double pairs = 8192.0 * 8193 / 2 * 32 * 32 * 2 * 256;
  EXPECT_NEAR(prefill.flops, dense + pairs + 2.0 * 128256 * 4096, 1e-4 * dense);
  EXPECT_EQ(prefill.bound, Bound::kCompute);

  // A prompt in chunks does the same arithmetic as in one.
  double flops = 0;
  for (int64_t done = 0; done < 8192; done += 512) {
    const StepSequence chunk{512, done};
    flops += roofline.Step({&chunk, 1}, done + 512 == 8192 ? 1 : 0).flops;
  }
  EXPECT_NEAR(flops, prefill.flops, 1e-9 * flops);
}

TEST(PlanAnswerTest, DevicesShareTheWork) {
  Choices choices;
  choices.weights = Weights("bf16");
  choices.parallel = {4, 1, 1};
  const Answer four = Ask("llama-3.3-70b", "h100-80gb", choices);
  choices.parallel = {8, 1, 1};
  const Answer eight = Ask("llama-3.3-70b", "h100-80gb", choices);
  EXPECT_EQ(four.memory.kv_copies, 1);
  EXPECT_NEAR(static_cast<double>(four.memory.weights_bytes_per_device),
              static_cast<double>(four.memory.weights_bytes) / 4, 1e3);
  EXPECT_GT(eight.users_paged, 2 * four.users_paged);
  EXPECT_LT(eight.decode_one.step.memory_s, 0.51 * four.decode_one.step.memory_s);
  EXPECT_GT(eight.decode_one.step.link_s, 0);
  // A latent cannot be cut: eight devices keep eight copies.
  choices = {};
  choices.parallel = {8, 1, 1};
  const Answer latent = Ask("deepseek-v3", "h200", choices);
  EXPECT_EQ(latent.memory.kv_copies, 8);
  EXPECT_EQ(latent.memory.kv_budget_bytes, latent.memory.left_bytes_per_device);
  // Replicas that share the experts keep a cache each.
  choices.parallel = {1, 1, 8};
  const Answer replicas = Ask("deepseek-v3", "h200", choices);
  EXPECT_EQ(replicas.memory.kv_copies, 1);
  EXPECT_EQ(replicas.memory.kv_budget_bytes, 8 * replicas.memory.left_bytes_per_device);
  EXPECT_GT(replicas.users_paged, 4 * latent.users_paged);
}

TEST(PlanAnswerTest, TheOtherWayRound) {
  Choices choices;
  choices.users = 50;
  choices.context_tokens = 8192;
  choices.bandwidth_share = 0.8;
  choices.compute_share = 0.5;
  const Goal goal{2.0, 0.050};
  const SearchResult result =
      Search(Shape("gpt-oss-120b"), HardwareCatalogue(), choices, goal).value();
  ASSERT_FALSE(result.satisfying.empty());
  double last = 0;
  for (const Candidate& candidate : result.satisfying) {
    EXPECT_GE(candidate.users_paged, 50);
    EXPECT_LE(candidate.ttft_s, 2.0);
    EXPECT_LE(candidate.itl_s, 0.050);
    EXPECT_LE(candidate.decode_itl_s, candidate.itl_s);
    const double price = candidate.price_per_hour.value_or(last);
    EXPECT_GE(price, last) << candidate.hardware;
    last = price;
  }
  // Every machine stands in one of the two lists, and a failure says what fails.
  std::set<std::string> named;
  for (const Candidate& candidate : result.satisfying) named.insert(candidate.hardware);
  for (const Candidate& candidate : result.failing) {
    EXPECT_FALSE(candidate.failure.empty());
    EXPECT_TRUE(named.insert(candidate.hardware).second) << candidate.hardware;
  }
  EXPECT_EQ(named.size(), HardwareCatalogue().size());
  EXPECT_TRUE(named.contains("l4"));
  // A tighter goal is satisfied by fewer.
  const SearchResult tight =
      Search(Shape("gpt-oss-120b"), HardwareCatalogue(), choices, {0.5, 0.010}).value();
  EXPECT_LE(tight.satisfying.size(), result.satisfying.size());
  EXPECT_NE(ToTable(result, Shape("gpt-oss-120b"), choices, goal).find("What fails"),
            std::string::npos);
  choices.users = 1;
  EXPECT_TRUE(ToTable(result, Shape("gpt-oss-120b"), choices, goal)
                  .starts_with("gpt-oss-120b for 1 user of 8k tokens, TTFT at most 2 s"));
}

TEST(PlanAnswerTest, WhatIsChosenHoldsForAGoalToo) {
  Choices choices;
  choices.users = 50;
  choices.context_tokens = 8192;
  choices.parallel.tensor = 2;
  choices.step_tokens = 512;
  const ModelShape model = Shape("gpt-oss-120b");
  const Goal goal{.ttft_s = {}, .itl_s = 0.1, .tensor_fixed = true};
  const SearchResult result = Search(model, HardwareCatalogue(), choices, goal).value();
  ASSERT_FALSE(result.satisfying.empty());
  for (const auto* list : {&result.satisfying, &result.failing}) {
    for (const Candidate& candidate : *list) {
      EXPECT_EQ(candidate.parallel.tensor, 2) << candidate.hardware;
      EXPECT_TRUE(candidate.step_tokens == 512 || !candidate.failure.empty());
    }
  }
  // What cannot be joined so is said for each machine.
  choices.parallel.pipeline = 37;
  const SearchResult none = Search(model, HardwareCatalogue(), choices, goal).value();
  EXPECT_TRUE(none.satisfying.empty());
  ASSERT_EQ(none.failing.size(), HardwareCatalogue().size());
  EXPECT_NE(none.failing.back().failure.find("36 layers, got 37 stages"), std::string::npos)
      << none.failing.back().failure;
  choices.parallel.pipeline = 1;
  choices.step_tokens = 50;
  const auto refused = Search(model, HardwareCatalogue(), choices, goal);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().param, "max-num-batched-tokens");
}

TEST(PlanAnswerTest, AWindowThatNothingIsBehindIsFullAttention) {
  const auto layers = [](const char* architecture, int64_t window) {
    const nlohmann::json config = {{"architectures", {architecture}},
                                   {"hidden_size", 64},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"intermediate_size", 128},
                                   {"num_local_experts", 4},
                                   {"num_experts_per_tok", 2},
                                   {"sliding_window", window},
                                   {"layer_types", {"sliding_attention", "sliding_attention"}},
                                   {"vocab_size", 256},
                                   {"max_position_embeddings", 512}};
    const test::TempFolder folder;
    const std::string path = folder.Write("config.json", config.dump()).string();
    return FindModelShape(path).value().layers;
  };
  for (const char* architecture : {"MistralForCausalLM", "GptOssForCausalLM"}) {
    SCOPED_TRACE(architecture);
    EXPECT_EQ(layers(architecture, 511)[0].kind, LayerKind::kWindow);
    EXPECT_EQ(layers(architecture, 511)[0].window_tokens, 511);
    for (const int64_t window : {512, 4096}) {
      EXPECT_EQ(layers(architecture, window)[0].kind, LayerKind::kFull);
      EXPECT_EQ(layers(architecture, window)[0].window_tokens, 0);
    }
  }
}

}  // namespace
}  // namespace kvasir::plan
