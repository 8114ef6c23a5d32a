// The sampler against a slow reference that follows the documented order with full sorts in double,
// its distribution, and the edges.
#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "base/rng.h"

namespace kvasir::sample {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Draw {
  SamplingParams params;
  std::vector<TokenId> history = {1};
  int64_t prompt_tokens_count = 1;
  uint64_t seed = 0;

  [[nodiscard]] SampleSlot slot() const { return {&params, seed, history, prompt_tokens_count}; }
};

TokenId DrawToken(const std::vector<float>& logits, const Draw& draw) {
  Sampler sampler;
  const Result<TokenId> token = sampler.Draw(logits, draw.slot());
  EXPECT_TRUE(token.ok()) << (token.ok() ? "" : token.error().message);
  return token.ok() ? *token : -1;
}

// The documented order, step by step. Returns the tokens that a draw may give: more than one where
// the boundaries lie within rounding of each other.
class Reference {
 public:
  Reference(const std::vector<float>& logits, const Draw& draw) : z_(logits.size()), draw_(draw) {
    std::copy(logits.begin(), logits.end(), z_.begin());
  }

  std::vector<TokenId> Tokens() {
    Mask();
    Penalize();
    std::vector<TokenId> order(z_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return z(a) > z(b); });
    const SamplingParams& params = draw_.params;
    if (params.temperature == 0.0f) return {order.front()};
    const double highest = z(order.front());
    const auto weight = [&](TokenId id) {
      return std::exp((z(id) - highest) / static_cast<double>(params.temperature));
    };
    const auto drop = [&](auto&& dropped) {
      order.erase(std::find_if(order.begin(), order.end(), dropped), order.end());
    };
    drop([&](TokenId id) {
      Near(weight(id), static_cast<double>(params.min_p));
      return weight(id) < static_cast<double>(params.min_p) || weight(id) < 1e-37;
    });
    if (params.top_k > 0 && order.size() > static_cast<size_t>(params.top_k)) {
      order.resize(static_cast<size_t>(params.top_k));
    }
    double total = 0.0;
    for (const TokenId id : order) total += weight(id);
    if (params.top_p < 1.0f) {
      const double target = static_cast<double>(params.top_p) * total;
      double before = 0.0;
      drop([&](TokenId id) {
        const bool dropped = before >= target;
        Near(before / total, target / total);
        before += weight(id);
        return dropped;
      });
      total = 0.0;
      for (const TokenId id : order) total += weight(id);
    }
    std::sort(order.begin(), order.end());
    const double target = UniformAt(draw_.seed, draw_.history.size()) * total;
    double sum = 0.0;
    for (const TokenId id : order) {
      sum += weight(id);
      Near(sum / total, target / total);
      if (sum > target) return {id};
    }
    return {order.back()};
  }

  // True where two numbers that were compared are so close that float weights may decide otherwise.
  [[nodiscard]] bool ambiguous() const { return ambiguous_; }

 private:
  double z(TokenId id) const { return z_[static_cast<size_t>(id)]; }
  void Near(double a, double b) { ambiguous_ |= std::abs(a - b) < 1e-6 * std::abs(b); }

  void Mask() {
    const SamplingParams& params = draw_.params;
    const auto output_begin = draw_.history.begin() + draw_.prompt_tokens_count;
    const std::vector<TokenId> output(output_begin, draw_.history.end());
    if (!params.allowed_token_ids.empty()) {
      for (size_t id = 0; id < z_.size(); ++id) {
        if (std::count(params.allowed_token_ids.begin(), params.allowed_token_ids.end(),
                       static_cast<TokenId>(id)) == 0) {
          z_[id] = -kInfinity;
        }
      }
    }
    for (const auto& word : params.bad_words) {
      std::vector<TokenId> completed = output;
      completed.push_back(word.back());
      if (completed.size() >= word.size() &&
          std::equal(word.rbegin(), word.rend(), completed.rbegin())) {
        z_[static_cast<size_t>(word.back())] = -kInfinity;
      }
    }
    if (static_cast<int64_t>(output.size()) < params.min_tokens) {
      for (const TokenId id : params.stop_token_ids) z_[static_cast<size_t>(id)] = -kInfinity;
    }
    for (const auto& [id, bias] : params.logit_bias) {
      z_[static_cast<size_t>(id)] += static_cast<double>(bias);
    }
  }

  void Penalize() {
    const SamplingParams& params = draw_.params;
    std::map<TokenId, int> counts;
    std::map<TokenId, int> output_counts;
    for (size_t i = 0; i < draw_.history.size(); ++i) {
      ++counts[draw_.history[i]];
      if (static_cast<int64_t>(i) >= draw_.prompt_tokens_count) ++output_counts[draw_.history[i]];
    }
    for (const auto& [id, count] : counts) {
      double& z = z_[static_cast<size_t>(id)];
      const auto penalty = static_cast<double>(params.repetition_penalty);
      z = z > 0.0 ? z / penalty : z * penalty;
    }
    for (const auto& [id, count] : output_counts) {
      z_[static_cast<size_t>(id)] -= static_cast<double>(params.frequency_penalty) * count +
                                     static_cast<double>(params.presence_penalty);
    }
  }

  std::vector<double> z_;
  const Draw& draw_;
  bool ambiguous_ = false;
};

Draw RandomDraw(Rng& rng, int64_t vocab_size) {
  Draw draw;
  SamplingParams& params = draw.params;
  const auto token = [&] {
    return static_cast<TokenId>(rng.Below(static_cast<uint64_t>(vocab_size)));
  };
  const auto number = [&](double low, double high) {
    return static_cast<float>(low + (high - low) * rng.Uniform());
  };
  params.temperature = rng.Chance(0.2) ? 0.0f : number(0.2, 2.0);
  if (rng.Chance(0.4)) params.top_p = number(0.01, 1.0);
  if (rng.Chance(0.4)) params.top_k = static_cast<int32_t>(rng.Between(1, vocab_size + 3));
  if (rng.Chance(0.3)) params.min_p = number(0.0, 0.5);
  if (rng.Chance(0.3)) params.repetition_penalty = number(0.5, 2.0);
  if (rng.Chance(0.3)) params.presence_penalty = number(-2.0, 2.0);
  if (rng.Chance(0.3)) params.frequency_penalty = number(-2.0, 2.0);
  draw.prompt_tokens_count = rng.Between(1, 20);
  const int64_t output_count = rng.Between(0, 20);
  draw.history.clear();
  for (int64_t i = 0; i < draw.prompt_tokens_count + output_count; ++i) {
    draw.history.push_back(token());
  }
  if (rng.Chance(0.3)) {
    for (int i = 0; i < 3; ++i) params.logit_bias.emplace_back(token(), number(-5.0, 5.0));
  }
  if (rng.Chance(0.3)) {
    for (int i = 0; i < 3; ++i) {
      std::vector<TokenId> word;  // half of them continue what is there
      const int64_t length = rng.Between(1, 3);
      for (int64_t at = length - 1; at > 0; --at) {
        const auto back = static_cast<size_t>(at);
        word.push_back(rng.Chance(0.7) && back <= draw.history.size()
                           ? draw.history[draw.history.size() - back]
                           : token());
      }
      word.push_back(token());
      params.bad_words.push_back(word);
    }
  }
  if (rng.Chance(0.3)) {
    params.min_tokens = rng.Between(0, 20);
    params.stop_token_ids = {token(), token()};
  }
  if (rng.Chance(0.2)) {
    for (int i = 0; i < 8; ++i) params.allowed_token_ids.push_back(token());
  }
  draw.seed = rng.Next();
  return draw;
}

TEST(SamplerTest, DrawsWhatTheSlowReferenceDraws) {
  Rng rng(11);
  Sampler sampler;  // one for all: its scratch must not carry anything over
  int compared = 0;
  int ambiguous = 0;
  for (int round = 0; round < 3000; ++round) {
    const int64_t vocab_size = rng.Chance(0.1) ? rng.Between(4000, 9000) : rng.Between(30, 300);
    const Draw draw = RandomDraw(rng, vocab_size);
    std::vector<float> logits(static_cast<size_t>(vocab_size));
    const bool coarse = rng.Chance(0.3);  // many equal logits
    for (float& logit : logits) {
      const double value = (rng.Uniform() + rng.Uniform() - 1.0) * 12.0;
      logit = static_cast<float>(coarse ? std::round(value) : value);
    }
    Reference reference(logits, draw);
    const std::vector<TokenId> expected = reference.Tokens();
    if (reference.ambiguous()) {
      ++ambiguous;
      continue;
    }
    const Result<TokenId> token = sampler.Draw(logits, draw.slot());
    ASSERT_TRUE(token.ok()) << token.error().message;
    ASSERT_EQ(*token, expected.front()) << "round " << round;
    ++compared;
  }
  EXPECT_GT(compared, 2500) << ambiguous << " were too close to call";
}

TEST(SamplerTest, FrequenciesFollowTheSoftmax) {
  const std::vector<float> logits = {1.0f, -0.5f, 0.25f, 2.0f, -kInfinity, 0.0f};
  Draw draw;
  draw.params.temperature = 0.8f;
  constexpr int kDraws = 200'000;
  std::vector<int> counts(logits.size());
  Sampler sampler;
  for (int i = 0; i < kDraws; ++i) {
    draw.seed = static_cast<uint64_t>(i);
    ++counts[static_cast<size_t>(*sampler.Draw(logits, draw.slot()))];
  }
  double total = 0.0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) / 0.8);
  double chi_square = 0.0;
  for (size_t id = 0; id < logits.size(); ++id) {
    const double expected = kDraws * std::exp(static_cast<double>(logits[id]) / 0.8) / total;
    if (expected == 0.0) {
      EXPECT_EQ(counts[id], 0);
      continue;
    }
    chi_square += (counts[id] - expected) * (counts[id] - expected) / expected;
  }
  EXPECT_LT(chi_square, 18.5);  // 4 degrees of freedom: exceeded once in 1000
  EXPECT_GT(chi_square, 0.0);
}

TEST(SamplerTest, StreamsAndPositionsAreIndependent) {
  const std::vector<float> logits(64, 0.0f);
  std::map<TokenId, int> by_seed;
  std::map<TokenId, int> by_position;
  Draw draw;
  for (int i = 0; i < 640; ++i) {
    draw.seed = CombineSeeds(42, static_cast<uint64_t>(i));
    ++by_seed[DrawToken(logits, draw)];
  }
  draw.seed = 42;
  for (int i = 0; i < 640; ++i) {
    ++by_position[DrawToken(logits, draw)];
    draw.history.push_back(3);
  }
  for (const auto& counts : {by_seed, by_position}) {
    EXPECT_EQ(counts.size(), 64u);
    for (const auto& [token, count] : counts) EXPECT_LT(count, 30) << token;
  }
}

TEST(SamplerTest, GreedyTakesTheLowestOfEquals) {
  std::vector<float> logits(200, -3.0f);
  logits[77] = logits[131] = logits[199] = 5.0f;
  Draw draw;
  draw.params.temperature = 0.0f;
  EXPECT_EQ(DrawToken(logits, draw), 77);
  draw.params.temperature = 1.0f;
  draw.params.top_k = 1;
  EXPECT_EQ(DrawToken(logits, draw), 77);
  draw.params.top_k = 0;
  draw.params.top_p = 1e-6f;
  EXPECT_EQ(DrawToken(logits, draw), 77);
}

TEST(SamplerTest, ATinyTemperatureIsStableAndNearlyGreedy) {
  std::vector<float> logits = {3e38f, 1.0f, 2.9e38f};
  Draw draw;
  draw.params.temperature = 1e-4f;
  EXPECT_EQ(DrawToken(logits, draw), 0);
  logits = {-3e38f, -2.9e38f};
  EXPECT_EQ(DrawToken(logits, draw), 1);
}

TEST(SamplerTest, AllMaskedButOne) {
  const std::vector<float> logits = {5.0f, 4.0f, -1000.0f};
  Draw draw;
  draw.params.allowed_token_ids = {2};
  draw.params.top_p = 0.5f;
  draw.params.min_p = 0.5f;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    draw.seed = seed;
    EXPECT_EQ(DrawToken(logits, draw), 2);
  }
}

TEST(SamplerTest, EverythingMaskedIsTheRequestsError) {
  const std::vector<float> logits = {5.0f, 4.0f, 3.0f};
  for (const float temperature : {0.0f, 1.0f}) {
    Draw draw;
    draw.params.temperature = temperature;
    draw.params.allowed_token_ids = {1};
    draw.params.bad_words = {{1}};
    const Result<TokenId> token = Sampler().Draw(logits, draw.slot());
    ASSERT_FALSE(token.ok());
    EXPECT_EQ(token.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(token.error().message,
              "no token is left to draw: allowed_token_ids, bad_words, logit_bias and min_tokens "
              "together exclude all of them");
    EXPECT_EQ(token.error().param, "allowed_token_ids");
  }
  // Without it, the field that is there.
  struct Case {
    std::function<void(SamplingParams&)> ask;
    std::string param;
  };
  for (const auto& [ask, param] : {
           Case{[](SamplingParams& params) {
                  params.bad_words = {{0}, {1}, {2}};
                },
                "bad_words"},
           Case{[](SamplingParams& params) {
                  params.min_tokens = 1;
                  params.stop_token_ids = {0, 1, 2};
                },
                "min_tokens"},
       }) {
    Draw draw;
    ask(draw.params);
    const Result<TokenId> token = Sampler().Draw(logits, draw.slot());
    ASSERT_FALSE(token.ok()) << param;
    EXPECT_EQ(token.error().param, param);
  }
}

TEST(SamplerTest, APenaltyThatOverflowsIsTheRequestsError) {
  const std::vector<float> logits = {5.0f, 4.0f, 3.0f};
  Draw draw;
  draw.params.repetition_penalty = 1e-38f;
  draw.params.logit_bias = {{1, 3e38f}};
  const Result<TokenId> token = Sampler().Draw(logits, draw.slot());
  ASSERT_FALSE(token.ok());
  EXPECT_EQ(token.error().code, ErrorCode::kInvalidArgument);
}

TEST(SamplerTest, NanAndInfinityAreTheModelsErrors) {
  const std::vector<std::vector<float>> broken = {{kNan, kNan, kNan},
                                                  {1.0f, 2.0f, kNan},
                                                  {1.0f, kInfinity, 0.0f},
                                                  {-kInfinity, -kInfinity, -kInfinity}};
  for (const std::vector<float>& logits : broken) {
    for (const float temperature : {0.0f, 1.0f}) {
      for (const bool adjusted : {false, true}) {
        Draw draw;
        draw.params.temperature = temperature;
        if (adjusted) draw.params.logit_bias = {{0, 1.0f}};
        const Result<TokenId> token = Sampler().Draw(logits, draw.slot());
        ASSERT_FALSE(token.ok());
        EXPECT_EQ(token.error().code, ErrorCode::kInternal);
      }
    }
  }
}

TEST(SamplerTest, BadWordsLookAtTheOutputAlone) {
  const std::vector<float> logits = {1.0f, 2.0f, 3.0f, 9.0f};
  Draw draw;
  draw.params.temperature = 0.0f;
  draw.params.bad_words = {{1, 2, 3}};
  draw.history = {1, 2};
  draw.prompt_tokens_count = 2;
  EXPECT_EQ(DrawToken(logits, draw), 3);
  draw.prompt_tokens_count = 0;
  EXPECT_EQ(DrawToken(logits, draw), 2);
  draw.history = {2};
  EXPECT_EQ(DrawToken(logits, draw), 3);
}

TEST(SamplerTest, MinTokensCountTheOutput) {
  const std::vector<float> logits = {1.0f, 2.0f, 9.0f};
  Draw draw;
  draw.params.temperature = 0.0f;
  draw.params.stop_token_ids = {2};
  draw.params.min_tokens = 2;
  draw.history = {0, 0, 0, 1};
  draw.prompt_tokens_count = 3;
  EXPECT_EQ(DrawToken(logits, draw), 1);
  draw.history.push_back(1);
  EXPECT_EQ(DrawToken(logits, draw), 2);
}

TEST(SamplerTest, IdsOutsideOfTheRowMeanNothing) {
  const std::vector<float> logits = {1.0f, 2.0f, 3.0f};
  Draw draw;
  draw.params.temperature = 0.0f;
  draw.params.logit_bias = {{-1, 50.0f}, {3, 50.0f}, {0, 5.0f}};
  draw.params.bad_words = {{7}, {-2}, {}};
  draw.params.stop_token_ids = {1000};
  draw.params.min_tokens = 5;
  draw.params.repetition_penalty = 1.5f;
  draw.history = {99, -5, 2};
  EXPECT_EQ(DrawToken(logits, draw), 0);
}

TEST(SamplerTest, OneTokenVocabulary) {
  Draw draw;
  draw.params.top_p = 0.3f;
  EXPECT_EQ(DrawToken({-7.0f}, draw), 0);
  draw.params.top_k = 1;
  EXPECT_EQ(DrawToken({-7.0f}, draw), 0);
}

}  // namespace
}  // namespace kvasir::sample
