// Matmul of every format on every fast backend: within the bound that 8-bit activations allow of
// the exact product, and bit for bit the same however rows are batched and threads are many.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/panels.h"
#include "parity/parity.h"

namespace kvasir::kernels {
namespace {

// y of `weight`, [tokens, rows].
std::vector<float> Multiply(Backend& backend, const PackedMatrix& weight, const float* x,
                            int64_t ldx, int64_t tokens, const float* bias = nullptr) {
  std::vector<float> y(static_cast<size_t>(tokens * weight.rows), -1.0f);
  const MatmulOutput output{&weight, bias, y.data(), weight.rows};
  backend.Matmul({x, ldx, tokens, {&output, 1}});
  return y;
}

// Against sums in double. What may differ: activations are rounded to 127 steps of each block's
// maximum (half a step each), and floats are added in an order of their own.
void ExpectNearExact(const TensorView& weight, const float* x, int64_t ldx, int64_t tokens,
                     const std::vector<float>& y) {
  const int64_t rows = weight.rows();
  const int64_t cols = weight.cols();
  const bool is_dense = Info(weight.dtype).block_values == 1;
  std::vector<double> half_steps(static_cast<size_t>(tokens * cols), 0.0);
  for (int64_t t = 0; t < tokens && !is_dense; ++t) {
    for (int64_t b = 0; b < cols; b += 32) {
      float most = 0.0f;
      for (int64_t k = b; k < b + 32; ++k) most = std::max(most, std::fabs(x[t * ldx + k]));
      for (int64_t k = b; k < b + 32; ++k) {
        half_steps[static_cast<size_t>(t * cols + k)] = static_cast<double>(most) / 254.0 * 1.0001;
      }
    }
  }
  std::vector<float> w(static_cast<size_t>(cols));
  for (int64_t n = 0; n < rows; ++n) {
    DequantizeRow(weight, n, w);
    for (int64_t t = 0; t < tokens; ++t) {
      double sum = 0.0;
      double bound = 0.0;
      double magnitude = 0.0;
      for (int64_t k = 0; k < cols; ++k) {
        const auto wk = static_cast<double>(w[static_cast<size_t>(k)]);
        const auto xk = static_cast<double>(x[t * ldx + k]);
        sum += wk * xk;
        bound += std::fabs(wk) * half_steps[static_cast<size_t>(t * cols + k)];
        magnitude += std::fabs(wk * xk);
      }
      // Codes and minimums are summed apart: their products may be far larger than their
      // difference.
      const double apart = is_dense ? 1.0 : 64.0;
      bound += apart * std::sqrt(static_cast<double>(cols)) * 0x1.0p-24 * (magnitude + 1e-3);
      ASSERT_NEAR(y[static_cast<size_t>(t * rows + n)], sum, bound)
          << Info(weight.dtype).name << " [" << rows << ", " << cols << "] token " << t << " row "
          << n;
    }
  }
}

int64_t ColsFor(DType dtype, int64_t wanted) {
  const int64_t unit = Info(dtype).block_values;
  return std::max<int64_t>(1, wanted / unit) * unit;
}

class MatmulParity : public ::testing::TestWithParam<std::string> {
 protected:
  ThreadPool pool_{2};
  std::unique_ptr<Backend> backend_ = Make(GetParam(), pool_);
  Rng rng_{11};

  std::unique_ptr<PackedMatrix> Pack(const TensorView& view) { return backend_->Pack({&view, 1}); }
};

TEST_P(MatmulParity, IsWithinTheBoundOfTheExactProduct) {
  for (const DType dtype : WeightTypes()) {
    ASSERT_TRUE(backend_->Supports(dtype));
    for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 33, 70}) {
      const int64_t rows = rng_.Between(1, 40);
      const int64_t cols = ColsFor(dtype, rng_.Between(1, 600));
      const Stored weight = MakeStored(dtype, rows, cols, rng_);
      const int64_t ldx = cols + 3;
      const std::vector<float> x = RandomFloats(rng_, tokens * ldx);
      const auto packed = Pack(weight.view);
      EXPECT_EQ(packed->rows, rows);
      EXPECT_EQ(packed->cols, cols);
      ExpectNearExact(weight.view, x.data(), ldx, tokens,
                      Multiply(*backend_, *packed, x.data(), ldx, tokens));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(MatmulParity, SumsOfExtremeCodesDoNotSaturate) {
  for (const DType dtype : WeightTypes()) {
    for (const Fill fill : {Fill::kAllOnes, Fill::kAllZeros}) {
      const int64_t cols = ColsFor(dtype, 512);
      const Stored weight = MakeStored(dtype, 17, cols, rng_, fill);
      const auto packed = Pack(weight.view);
      // Every activation at the end of its range: all alike, alternating, and one sign a half.
      constexpr int64_t kTokens = 6;
      std::vector<float> x(static_cast<size_t>(kTokens * cols));
      for (int64_t k = 0; k < cols; ++k) {
        const auto at = static_cast<size_t>(k);
        const auto step = static_cast<size_t>(cols);
        x[at] = 3.0f;
        x[at + step] = -3.0f;
        x[at + 2 * step] = k % 2 == 0 ? 3.0f : -3.0f;
        x[at + 3 * step] = k % 32 < 16 ? 3.0f : -3.0f;
        x[at + 4 * step] = k % 4 < 2 ? 3.0f : -3.0f;
        x[at + 5 * step] = 0.0f;
      }
      ExpectNearExact(weight.view, x.data(), cols, kTokens,
                      Multiply(*backend_, *packed, x.data(), cols, kTokens));
      if (HasFatalFailure()) return;
    }
  }
  // Q8_0 may hold -128, which has no counterpart above.
  Stored weight = MakeStored(DType::kQ8_0, 9, 64, rng_);
  for (size_t at = 0; at < weight.bytes.size(); at += sizeof(BlockQ8_0)) {
    std::memset(weight.bytes.data() + at + 2, 0x80, 32);
  }
  for (const float value : {1.0f, -1.0f}) {
    const std::vector<float> x(64, value);
    const auto packed = Pack(weight.view);
    ExpectNearExact(weight.view, x.data(), 64, 1, Multiply(*backend_, *packed, x.data(), 64, 1));
  }
}

TEST_P(MatmulParity, RowsAreTheSameAloneAndInAnyBatch) {
  for (const DType dtype : WeightTypes()) {
    constexpr int64_t kTokens = 70;
    const int64_t cols = ColsFor(dtype, 512 + 32);
    const int64_t rows = 67;
    const Stored weight = MakeStored(dtype, rows, cols, rng_);
    const std::vector<float> bias = RandomFloats(rng_, rows);
    const std::vector<float> x = RandomFloats(rng_, kTokens * cols);
    const auto packed = Pack(weight.view);
    const std::vector<float> all =
        Multiply(*backend_, *packed, x.data(), cols, kTokens, bias.data());
    for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 17, 25, 31, 48, 69}) {
      const int64_t first = rng_.Between(0, kTokens - tokens);
      const std::vector<float> some =
          Multiply(*backend_, *packed, x.data() + first * cols, cols, tokens, bias.data());
      EXPECT_TRUE(SameBits(all.data() + first * rows, some.data(), tokens * rows))
          << Info(dtype).name << " " << tokens << " tokens";
    }
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      const auto other = Make(GetParam(), pool);
      const auto again = other->Pack({&weight.view, 1});
      EXPECT_TRUE(SameBits(all, Multiply(*other, *again, x.data(), cols, kTokens, bias.data())))
          << Info(dtype).name << " " << threads << " threads";
    }
  }
}

TEST_P(MatmulParity, OutputsOfOneCallAreThoseOfCallsOfTheirOwn) {
  constexpr int64_t kCols = 512;
  for (const int64_t tokens : {1, 5, 40}) {
    const std::vector<float> x = RandomFloats(rng_, tokens * kCols);
    std::vector<std::unique_ptr<PackedMatrix>> packed;
    std::vector<Stored> weights;
    std::vector<std::vector<float>> together;
    std::vector<MatmulOutput> outputs;
    for (const DType dtype : WeightTypes()) {
      weights.push_back(MakeStored(dtype, rng_.Between(1, 90), kCols, rng_));
    }
    for (const Stored& weight : weights) {
      packed.push_back(Pack(weight.view));
      together.emplace_back(static_cast<size_t>(tokens * packed.back()->rows));
    }
    for (size_t i = 0; i < packed.size(); ++i) {
      outputs.push_back({packed[i].get(), nullptr, together[i].data(), packed[i]->rows});
    }
    backend_->Matmul({x.data(), kCols, tokens, outputs});
    for (size_t i = 0; i < packed.size(); ++i) {
      EXPECT_TRUE(SameBits(together[i], Multiply(*backend_, *packed[i], x.data(), kCols, tokens)))
          << Info(packed[i]->dtype).name;
    }
  }
}

TEST_P(MatmulParity, StackedPartsAreOneMatrix) {
  const Stored a = MakeStored(DType::kQ4_1, 13, 96, rng_);
  const Stored b = MakeStored(DType::kQ4_1, 22, 96, rng_);
  const std::vector<TensorView> parts = {a.view, b.view};
  const auto stacked = backend_->Pack(parts);
  EXPECT_EQ(stacked->rows, 35);
  const std::vector<float> x = RandomFloats(rng_, 96);
  const std::vector<float> y = Multiply(*backend_, *stacked, x.data(), 96, 1);
  const std::vector<float> ya = Multiply(*backend_, *Pack(a.view), x.data(), 96, 1);
  const std::vector<float> yb = Multiply(*backend_, *Pack(b.view), x.data(), 96, 1);
  EXPECT_TRUE(SameBits(y.data(), ya.data(), 13));
  EXPECT_TRUE(SameBits(y.data() + 13, yb.data(), 22));
}

TEST_P(MatmulParity, WritesNothingButItsRows) {
  const Stored weight = MakeStored(DType::kQ4_0, 21, 64, rng_);
  const auto packed = Pack(weight.view);
  for (const int64_t tokens : {1, 9, 40}) {
    const std::vector<float> x = RandomFloats(rng_, tokens * 64);
    constexpr int64_t kLdy = 30;
    std::vector<float> y(static_cast<size_t>(tokens * kLdy), 7.0f);
    const MatmulOutput output{packed.get(), nullptr, y.data(), kLdy};
    backend_->Matmul({x.data(), 64, tokens, {&output, 1}});
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t n = 21; n < kLdy; ++n) EXPECT_EQ(y[static_cast<size_t>(t * kLdy + n)], 7.0f);
    }
  }
}

TEST_P(MatmulParity, NotANumberStaysInItsRow) {
  for (const DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kQ6_K, DType::kBF16}) {
    const int64_t cols = ColsFor(dtype, 256);
    const Stored weight = MakeStored(dtype, 20, cols, rng_);
    const auto packed = Pack(weight.view);
    std::vector<float> x = RandomFloats(rng_, 9 * cols);
    const std::vector<float> clean = Multiply(*backend_, *packed, x.data(), cols, 9);
    x[static_cast<size_t>(4 * cols + 77)] = std::nanf("");
    const std::vector<float> y = Multiply(*backend_, *packed, x.data(), cols, 9);
    for (int64_t t = 0; t < 9; ++t) {
      if (t != 4) {
        EXPECT_TRUE(SameBits(y.data() + t * 20, clean.data() + t * 20, 20));
        continue;
      }
      for (int64_t n = 0; n < 20; ++n) {
        EXPECT_TRUE(std::isnan(y[static_cast<size_t>(t * 20 + n)])) << Info(dtype).name;
      }
    }
  }
}

TEST_P(MatmulParity, GatherGivesTheStoredRows) {
  Rng rng(8);
  for (const DType dtype : WeightTypes()) {
    const int64_t cols = ColsFor(dtype, 300);
    const Stored weight = MakeStored(dtype, 70, cols, rng);
    int64_t bytes_done = 0;
    const auto packed = backend_->Pack({&weight.view, 1}, [&](std::span<const std::byte> stored) {
      EXPECT_EQ(stored.data(), weight.view.data + bytes_done);
      bytes_done += static_cast<int64_t>(stored.size());
    });
    EXPECT_EQ(bytes_done, packed->bytes == 0 ? 0 : weight.view.bytes);
    std::vector<int32_t> rows = {69, 0, 1, 1, 33};
    for (int i = 0; i < 200; ++i) rows.push_back(static_cast<int32_t>(rng.Below(70)));
    const int64_t ldy = cols + 3;
    std::vector<float> got(rows.size() * static_cast<size_t>(ldy));
    backend_->Gather({.weight = packed.get(), .rows = rows, .y = got.data(), .ldy = ldy});
    std::vector<float> expected(static_cast<size_t>(cols));
    for (size_t t = 0; t < rows.size(); ++t) {
      DequantizeRow(weight.view, rows[t], expected);
      const auto* row = got.data() + static_cast<int64_t>(t) * ldy;
      ASSERT_TRUE(SameBits(expected, {row, row + cols})) << Info(dtype).name << " row " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MatmulParity, ::testing::ValuesIn(FastBackends()),
                         [](const auto& info) { return info.param; });

// Packing itself runs on any machine.
TEST(PanelParity, PackedWeightsDequantizeToTheSameBits) {
  ThreadPool pool(2);
  Rng rng(5);
  for (const DType dtype : WeightTypes()) {
    for (const int lanes : {8, 16}) {
      const int64_t cols = ColsFor(dtype, 545);
      const Stored a = MakeStored(dtype, 37, cols, rng);
      const Stored b = MakeStored(dtype, 4, cols, rng);
      const std::vector<TensorView> parts = {a.view, b.view};
      cpu::Arena arena;
      const auto packed = cpu::PackPanels(parts, lanes, lanes == 16, arena, pool);
      ASSERT_EQ(packed->rows, 41);
      std::vector<float> expected(static_cast<size_t>(cols));
      std::vector<float> got(static_cast<size_t>(cols));
      for (int64_t row = 0; row < 41; ++row) {
        DequantizeRow(row < 37 ? a.view : b.view, row < 37 ? row : row - 37, expected);
        cpu::DequantizePanelRow(*packed, row, got);
        ASSERT_TRUE(SameBits(expected, got)) << Info(dtype).name << " row " << row;
      }
    }
  }
}

TEST(PanelParity, PackedSizeIsAboutTheStoredSize) {
  ThreadPool pool(1);
  Rng rng(6);
  for (const DType dtype : WeightTypes()) {
    const Stored weight = MakeStored(dtype, 64, 2048, rng);
    cpu::Arena arena;
    const auto packed = cpu::PackPanels({&weight.view, 1}, 16, false, arena, pool);
    EXPECT_LE(static_cast<double>(packed->bytes), 1.06 * static_cast<double>(weight.view.bytes))
        << Info(dtype).name;
  }
}

}  // namespace
}  // namespace kvasir::kernels
