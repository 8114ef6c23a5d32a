// A row's result depends on its own tokens alone: the same bits whole or in chunks, alone or beside
// others, in whichever blocks, on any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/backend.h"
#include "support/paged_kv.h"
#include "support/tiny_models.h"

namespace kvasir {
namespace {

using Logits = std::vector<float>;  ///< [rows, V]

std::vector<int32_t> RandomTokens(Rng& rng, int64_t count, int64_t vocab_size) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(vocab_size)));
  }
  return tokens;
}

/// Runs one step of several sequences and appends each row's logits to its sequence's.
void RunStep(model::Model& model, const test::PagedKv& kv,
             const std::vector<model::ForwardSequence>& batch,
             const std::vector<Logits*>& collected) {
  model.Forward(batch, kv.views());
  int64_t row = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    for (size_t t = 0; t < batch[i].tokens.size(); ++t, ++row) {
      Logits& out = *collected[i];
      out.resize(out.size() + static_cast<size_t>(model.spec().vocab_size));
      model.Logits({&row, 1}, out.data() + out.size() - model.spec().vocab_size);
    }
  }
}

Logits RunWhole(model::Model& model, const std::vector<int32_t>& tokens) {
  test::PagedKv kv(model.spec(), 16, 1, 16, DType::kF16);
  test::TestSequence sequence(kv);
  Logits logits;
  RunStep(model, kv, {sequence.Next(tokens)}, {&logits});
  return logits;
}

/// All sequences side by side, each step taking a random number of tokens of a random subset.
std::vector<Logits> RunMixed(model::Model& model, const std::vector<std::vector<int32_t>>& tokens,
                             Rng& rng) {
  test::PagedKv kv(model.spec(), 32, rng.Next(), 16, DType::kF16);
  std::vector<test::TestSequence> sequences(tokens.size(), test::TestSequence(kv));
  std::vector<size_t> done(tokens.size());
  std::vector<Logits> logits(tokens.size());
  const auto remaining = [&](size_t i) { return tokens[i].size() - done[i]; };
  while (true) {
    std::vector<model::ForwardSequence> batch;
    std::vector<Logits*> collected;
    bool any_left = false;
    for (size_t i = 0; i < tokens.size(); ++i) {
      any_left = any_left || remaining(i) > 0;
      if (remaining(i) == 0 || rng.Chance(0.25)) continue;
      const size_t chunk = rng.Chance(0.3) ? 1 : std::min<size_t>(remaining(i), 1 + rng.Below(24));
      batch.push_back(sequences[i].Next(std::span(tokens[i]).subspan(done[i], chunk)));
      collected.push_back(&logits[i]);
      done[i] += chunk;
    }
    if (!any_left) return logits;
    if (!batch.empty()) RunStep(model, kv, batch, collected);
  }
}

bool SameBits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class ExactnessTest : public testing::TestWithParam<std::string> {};

TEST_P(ExactnessTest, ChunkedAndBatchedEqualWhole) {
  for (const std::string_view backend : kernels::AvailableBackends()) {
    SCOPED_TRACE(backend);
    const test::LoadedModel alone = test::LoadTiny(GetParam(), backend, 1);
    const test::LoadedModel mixed = test::LoadTiny(GetParam(), backend, 2);
    ASSERT_TRUE(alone.model != nullptr && mixed.model != nullptr);
    Rng rng(20);
    std::vector<std::vector<int32_t>> tokens;
    std::vector<Logits> whole;
    for (const int64_t count : {70, 1, 45}) {
      tokens.push_back(RandomTokens(rng, count, alone.model->spec().vocab_size));
      whole.push_back(RunWhole(*alone.model, tokens.back()));
      for (const float logit : whole.back()) ASSERT_TRUE(std::isfinite(logit));
    }
    for (int round = 0; round < 2; ++round) {
      const std::vector<Logits> logits = RunMixed(*mixed.model, tokens, rng);
      for (size_t i = 0; i < tokens.size(); ++i) {
        EXPECT_TRUE(SameBits(logits[i], whole[i])) << "sequence " << i << ", round " << round;
      }
    }
  }
}

std::vector<std::string> AllModels() {
  std::vector<std::string> names = test::TinyModels();
  names.insert(names.end(), test::TinyGgufs().begin(), test::TinyGgufs().end());
  return names;
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Tiny, ExactnessTest, testing::ValuesIn(AllModels()), TestName);

}  // namespace
}  // namespace kvasir
