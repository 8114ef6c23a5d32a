// Every tiny model reproduces what Hugging Face transformers computes, on every backend.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "support/paged_kv.h"
#include "support/tiny_models.h"

namespace kvasir {
namespace {

/// How far from the oracle a backend may be at each position. Float weights and the reference:
/// 2e-4 (a reordered sum moves 1e-5), tokens compared while their lead is above 0.01. Backends that
/// round activations to 8 bits for quantized weights move about as far as bfloat16 does (both keep
/// 8 bits of each value), so they get the oracle's rule for bfloat16: three times the difference it
/// measured, plus 0.05.
struct Tolerance {
  bool rounded_activations = false;
  const test::ExpectedCase& expected;

  [[nodiscard]] double At(size_t position) const {
    if (!rounded_activations) return 2e-4;
    return 3.0 * expected.bf16_diff[position] + 0.05;
  }
  [[nodiscard]] double MarginAt(size_t position) const {
    return rounded_activations ? 2.0 * At(position) : 0.01;
  }
};

class CaseRun {
 public:
  CaseRun(model::Model& model, const test::ExpectedCase& expected, bool rounded_activations)
      : model_(model),
        expected_(expected),
        tolerance_{rounded_activations, expected},
        kv_(model.spec(), 16, 7),
        sequence_(kv_) {}

  void ComparePrompt() {
    const size_t count = expected_.prompt_ids.size();
    const std::vector<float> logits = Step(expected_.prompt_ids);
    for (size_t i = 0; i < count; ++i) {
      if (i + 1 < count) {
        ASSERT_NEAR(test::LogProb(Row(logits, i), expected_.prompt_ids[i + 1]),
                    expected_.prompt_logprobs[i], tolerance_.At(i))
            << "position " << i;
      }
      if (expected_.margins[i] > tolerance_.MarginAt(i)) {
        ASSERT_EQ(test::ArgMax(Row(logits, i)), expected_.argmax[i]) << "position " << i;
      }
    }
    const auto last = Row(logits, count - 1);
    for (size_t v = 0; v < expected_.last_logits.size(); ++v) {
      ASSERT_NEAR(last[v], expected_.last_logits[v], tolerance_.At(count - 1)) << "logit " << v;
    }
    for (const auto& [token, logit] : expected_.last_top) {
      ASSERT_NEAR(last[static_cast<size_t>(token)], logit, tolerance_.At(count - 1));
    }
    EXPECT_GT(expected_.last_logits.size() + expected_.last_top.size(), 0u);
    next_logits_.assign(last.begin(), last.end());
  }

  /// Follows the oracle's continuation while its lead is clear; the number of steps compared.
  size_t CompareGreedy() {
    const size_t prompt = expected_.prompt_ids.size();
    for (size_t i = 0; i < expected_.greedy_ids.size(); ++i) {
      const size_t position = prompt - 1 + i;
      const int32_t token = expected_.greedy_ids[i];
      if (expected_.greedy_margins[i] <= tolerance_.MarginAt(position)) return i;
      EXPECT_EQ(test::ArgMax(next_logits_), token) << "greedy step " << i;
      EXPECT_NEAR(test::LogProb(next_logits_, token), expected_.greedy_logprobs[i],
                  tolerance_.At(position))
          << "greedy step " << i;
      if (testing::Test::HasFailure()) return i;
      next_logits_ = Step({&token, 1});
    }
    return expected_.greedy_ids.size();
  }

 private:
  /// Logits of all rows of one more step.
  std::vector<float> Step(std::span<const int32_t> tokens) {
    const model::ForwardSequence sequence = sequence_.Next(tokens);
    model_.Forward({&sequence, 1}, kv_.views());
    std::vector<int64_t> rows(tokens.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    std::vector<float> logits(rows.size() * static_cast<size_t>(model_.spec().vocab_size));
    model_.Logits(rows, logits.data());
    return logits;
  }

  [[nodiscard]] std::span<const float> Row(const std::vector<float>& logits, size_t row) const {
    const auto vocab = static_cast<size_t>(model_.spec().vocab_size);
    return std::span(logits).subspan(row * vocab, vocab);
  }

  model::Model& model_;
  const test::ExpectedCase& expected_;
  Tolerance tolerance_;
  test::PagedKv kv_;
  test::TestSequence sequence_;
  std::vector<float> next_logits_;
};

/// Which cases of a model hold, and how long its sequences may be. Rope kinds that depend on the
/// whole sequence's length agree with the oracle at some lengths only (docs/models.md).
struct Setting {
  std::string model;
  int64_t max_model_len = 0;
  size_t prompt_min = 1;
  size_t total_max = 512;  ///< of prompt and continuation
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) { return out << setting.model; }

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (const auto* names : {&test::TinyModels(), &test::TinyGgufs()}) {
    for (const std::string& name : *names) {
      if (name == "llama-rope-dynamic") {
        settings.push_back({name, 64, 1, 64});  // never beyond the original length
        settings.push_back({name, 0, 1, 1});    // position 0 alone does not depend on the base
      } else if (name == "phi3-longrope") {
        settings.push_back({name, 96, 1, 96});   // short factors
        settings.push_back({name, 0, 97, 512});  // long factors
      } else {
        settings.push_back({name});
      }
    }
  }
  return settings;
}

class OracleTest : public testing::TestWithParam<Setting> {};

TEST_P(OracleTest, LogitsAndGreedyTokens) {
  const Setting& setting = GetParam();
  const std::vector<test::ExpectedCase> cases =
      test::ReadExpected(test::DataPath("models/" + setting.model));
  for (const std::string_view backend : kernels::AvailableBackends()) {
    const test::LoadedModel loaded =
        test::LoadTiny(setting.model, backend, 1, setting.max_model_len);
    ASSERT_NE(loaded.model, nullptr);
    const bool quantized = setting.model.find("-q") != std::string::npos;
    size_t cases_run = 0;
    size_t steps_compared = 0;
    for (const test::ExpectedCase& expected : cases) {
      const size_t prompt = expected.prompt_ids.size();
      if (prompt < setting.prompt_min || prompt > setting.total_max) continue;
      SCOPED_TRACE(std::string(backend) + " " + expected.name);
      ++cases_run;
      CaseRun run(*loaded.model, expected, quantized && backend != "ref");
      run.ComparePrompt();
      if (testing::Test::HasFatalFailure()) return;
      if (prompt + expected.greedy_ids.size() <= setting.total_max) {
        steps_compared += run.CompareGreedy();
      }
    }
    EXPECT_GT(cases_run, 0u);
    EXPECT_TRUE(setting.total_max == 1 || steps_compared > 0) << backend;
  }
}

std::string TestName(const testing::TestParamInfo<Setting>& info) {
  std::string name = info.param.model;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  if (info.param.max_model_len > 0) name += "_max" + std::to_string(info.param.max_model_len);
  return name;
}

INSTANTIATE_TEST_SUITE_P(Tiny, OracleTest, testing::ValuesIn(Settings()), TestName);

}  // namespace
}  // namespace kvasir
