// Norm, Activate, Rope, Add and Scale of every fast backend against the reference, and rows alone
// against rows in a batch.
#include <cmath>
#include <functional>
#include <numeric>

#include "parity/parity.h"

namespace kvasir::kernels {
namespace {

class ElementwiseParity : public ::testing::TestWithParam<std::string> {
 protected:
  ThreadPool pool_{2};
  std::unique_ptr<Backend> fast_ = Make(GetParam(), pool_);
  std::unique_ptr<Backend> ref_ = Make("ref", pool_);
  Rng rng_{3};

  static void ExpectNear(const std::vector<float>& fast, const std::vector<float>& exact,
                         double relative, double absolute) {
    ASSERT_EQ(fast.size(), exact.size());
    for (size_t i = 0; i < fast.size(); ++i) {
      const auto expected = static_cast<double>(exact[i]);
      ASSERT_NEAR(fast[i], expected, relative * std::fabs(expected) + absolute) << "value " << i;
    }
  }

  /// run(backend, x, rows) works in place on rows of `ld` floats. Compares with the reference and
  /// single rows with all of them.
  void Check(int64_t rows, int64_t ld, const std::vector<float>& x, double relative,
             double absolute,
             const std::function<void(Backend&, float*, int64_t first, int64_t rows)>& run) {
    std::vector<float> fast = x;
    std::vector<float> exact = x;
    run(*fast_, fast.data(), 0, rows);
    run(*ref_, exact.data(), 0, rows);
    ExpectNear(fast, exact, relative, absolute);
    for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
      std::vector<float> alone(x.begin() + row * ld, x.begin() + (row + 1) * ld);
      run(*fast_, alone.data(), row, 1);
      EXPECT_TRUE(SameBits(alone.data(), fast.data() + row * ld, ld)) << "row " << row;
    }
    ThreadPool single(1);
    const auto other = Make(GetParam(), single);
    std::vector<float> again = x;
    run(*other, again.data(), 0, rows);
    EXPECT_TRUE(SameBits(again, fast));
  }
};

TEST_P(ElementwiseParity, Norm) {
  for (const int64_t cols : {1, 7, 64, 100, 576}) {
    for (const int64_t groups : {int64_t{1}, int64_t{3}}) {
      for (const bool per_group : {false, true}) {
        for (const NormArgs::Kind kind : {NormArgs::Kind::kRms, NormArgs::Kind::kLayer}) {
          constexpr int64_t kRows = 37;
          const int64_t width = cols * groups;
          const int64_t ld = width + 5;
          const std::vector<float> weight = RandomFloats(rng_, width);
          const std::vector<float> bias = RandomFloats(rng_, width);
          std::vector<float> x = RandomFloats(rng_, kRows * ld, 3.0);
          for (float& value : x) value += 1.0f;
          Check(kRows, ld, x, 2e-6, 4e-6,
                [&](Backend& backend, float* rows, int64_t, int64_t count) {
                  NormArgs args;
                  args.kind = kind;
                  args.x = rows;
                  args.y = rows;
                  args.ldx = ld;
                  args.ldy = ld;
                  args.tokens_count = count;
                  args.cols = width;
                  args.groups_count = groups;
                  args.weight_per_group = per_group;
                  args.weight = weight.data();
                  args.bias = kind == NormArgs::Kind::kLayer ? bias.data() : nullptr;
                  // One column has no variance: what is left of it is eps alone.
                  args.eps = 1e-2f;
                  backend.Norm(args);
                });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(ElementwiseParity, NormWithoutWeights) {
  const std::vector<float> x = RandomFloats(rng_, 3 * 50);
  Check(3, 50, x, 1e-6, 1e-6, [](Backend& backend, float* rows, int64_t, int64_t count) {
    NormArgs args;
    args.x = rows;
    args.y = rows;
    args.ldx = 50;
    args.ldy = 50;
    args.tokens_count = count;
    args.cols = 50;
    backend.Norm(args);
  });
}

TEST_P(ElementwiseParity, Activate) {
  for (const Activation kind :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
    for (const bool gated : {false, true}) {
      constexpr int64_t kRows = 29;
      constexpr int64_t kCols = 531;
      const std::vector<float> up = RandomFloats(rng_, kRows * kCols, 2.0);
      const std::vector<float> x = RandomFloats(rng_, kRows * kCols, 12.0);
      Check(kRows, kCols, x, 2e-6, 1e-12,
            [&](Backend& backend, float* rows, int64_t first, int64_t count) {
              ActivationArgs args;
              args.kind = kind;
              args.gate = rows;
              args.up = gated ? up.data() + first * kCols : nullptr;
              args.y = rows;
              args.ld_gate = kCols;
              args.ld_up = kCols;
              args.ldy = kCols;
              args.tokens_count = count;
              args.cols = kCols;
              backend.Activate(args);
            });
      if (HasFatalFailure()) return;
    }
  }
}

// silu(x) = x / (1 + exp(-x)): where exp(-x) is large, its relative error is exp's.
TEST_P(ElementwiseParity, ExpIsWithinTwoUlpOfTheLibrarys) {
  std::vector<float> x;
  for (float value = -87.0f; value < -20.0f; value += 0.001f) x.push_back(value);
  std::vector<float> y(x.size());
  ActivationArgs args;
  args.gate = x.data();
  args.y = y.data();
  args.tokens_count = 1;
  args.cols = static_cast<int64_t>(x.size());
  fast_->Activate(args);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = static_cast<double>(x[i]) / (1.0 + std::exp(-static_cast<double>(x[i])));
    ASSERT_NEAR(y[i], exact, 4.5 * 0x1.0p-24 * std::fabs(exact)) << x[i];
  }
}

TEST_P(ElementwiseParity, ActivationsOfTheUnusual) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {infinity, -infinity, std::nanf(""), 0.0f, -200.0f, 200.0f, -88.5f};
  for (const Activation kind : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
    std::vector<float> y(x.size());
    ActivationArgs args;
    args.kind = kind;
    args.gate = x.data();
    args.y = y.data();
    args.tokens_count = 1;
    args.cols = static_cast<int64_t>(x.size());
    fast_->Activate(args);
    EXPECT_EQ(y[0], infinity);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_NEAR(y[4], 0.0f, 1e-30f);
    EXPECT_EQ(y[5], 200.0f);
    EXPECT_NEAR(y[6], 0.0f, 1e-30f);
  }
}

TEST_P(ElementwiseParity, Rope) {
  for (const RopeArgs::Kind kind : {RopeArgs::Kind::kHalf, RopeArgs::Kind::kInterleaved}) {
    for (const int64_t rotated : {2, 16, 20, 36, 64}) {
      constexpr int64_t kRows = 25;
      constexpr int64_t kHeads = 3;
      constexpr int64_t kDim = 64;
      constexpr int64_t kLd = kHeads * kDim + 2;
      constexpr int64_t kPositions = 50;
      std::vector<float> angles = RandomFloats(rng_, kPositions * rotated / 2, 3.0);
      std::vector<float> cos(angles.size());
      std::vector<float> sin(angles.size());
      for (size_t i = 0; i < angles.size(); ++i) {
        cos[i] = std::cos(angles[i]);
        sin[i] = std::sin(angles[i]);
      }
      std::vector<int64_t> positions(kRows);
      for (int64_t& position : positions) position = rng_.Between(0, kPositions - 1);
      const std::vector<float> x = RandomFloats(rng_, kRows * kLd);
      Check(kRows, kLd, x, 1e-6, 1e-6,
            [&](Backend& backend, float* rows, int64_t first, int64_t count) {
              RopeArgs args;
              args.kind = kind;
              args.x = rows;
              args.ldx = kLd;
              args.tokens_count = count;
              args.heads_count = kHeads;
              args.head_dim = kDim;
              args.rotated_dims = rotated;
              args.positions = positions.data() + first;
              args.cos = cos.data();
              args.sin = sin.data();
              backend.Rope(args);
            });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ElementwiseParity, AddAndScale) {
  for (const int64_t cols : {1, 15, 40, 577}) {
    constexpr int64_t kRows = 31;
    const std::vector<float> y = RandomFloats(rng_, kRows * cols);
    const std::vector<float> x = RandomFloats(rng_, kRows * cols, 40.0);
    Check(kRows, cols, x, 1e-6, 1e-6,
          [&](Backend& backend, float* rows, int64_t first, int64_t count) {
            backend.Add({rows, y.data() + first * cols, cols, cols, count, cols, 0.37f});
          });
    for (const float softcap : {0.0f, 30.0f}) {
      for (const float scale : {1.0f, 0.01f}) {
        Check(kRows, cols, x, 1e-6, 1e-30,
              [&](Backend& backend, float* rows, int64_t, int64_t count) {
                backend.Scale({rows, cols, count, cols, scale, softcap});
              });
      }
    }
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ElementwiseParity, ::testing::ValuesIn(FastBackends()),
                         [](const auto& info) { return info.param; });

TEST(Backends, TheReferenceIsAlwaysThereAndAutoIsTheFirst) {
  const std::vector<std::string_view> names = AvailableBackends();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.back(), "ref");
  ThreadPool pool(1);
  EXPECT_EQ(MakeBackend("auto", pool).value()->name(), names.front());
  for (const std::string_view name : names) {
    EXPECT_EQ(MakeBackend(name, pool).value()->name(), name);
  }
  const auto wrong = MakeBackend("fastest", pool);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("fastest"), std::string::npos);
  EXPECT_NE(wrong.error().message.find("ref"), std::string::npos);
}

}  // namespace
}  // namespace kvasir::kernels
