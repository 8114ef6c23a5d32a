// The reference backend against the formulas of the op headers, written out once more, and its
// exactness: a row alone gives the bits that it gives in any batch, anywhere in the pool.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "kernels/backend.h"
#include "kernels/ref/ref_backend.h"
#include "tensor/float16.h"

namespace kvasir::kernels {
namespace {

std::vector<float> RandomFloats(Rng& rng, int64_t count, double scale = 1.0) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>((rng.Uniform() * 2.0 - 1.0) * scale);
  return values;
}

TensorView View(DType dtype, Shape shape, const void* data) {
  TensorView view;
  view.dtype = dtype;
  view.shape = std::move(shape);
  view.data = static_cast<const std::byte*>(data);
  view.bytes = view.rows() * RowBytes(dtype, view.cols());
  return view;
}

class RefBackendTest : public ::testing::Test {
 protected:
  ThreadPool pool_{2};
  std::unique_ptr<Backend> backend_ = MakeRefBackend(pool_);
  Rng rng_{7};
};

TEST_F(RefBackendTest, MatmulOfStackedPartsWithBiasIsTheDotProduct) {
  constexpr int64_t kTokens = 5;
  constexpr int64_t kCols = 37;  // no multiple of the lanes
  constexpr int64_t kLdx = 40;
  const std::vector<float> first = RandomFloats(rng_, 19 * kCols);
  const std::vector<float> second = RandomFloats(rng_, 4 * kCols);
  const std::vector<float> other = RandomFloats(rng_, 3 * kCols);
  const std::vector<float> bias = RandomFloats(rng_, 23);
  const std::vector<float> x = RandomFloats(rng_, kTokens * kLdx);
  const std::vector<TensorView> parts = {View(DType::kF32, {19, kCols}, first.data()),
                                         View(DType::kF32, {2, 2, kCols}, second.data())};
  const auto stacked = backend_->Pack(parts);
  const std::vector<TensorView> single = {View(DType::kF32, {3, kCols}, other.data())};
  const auto small = backend_->Pack(single);
  EXPECT_EQ(stacked->rows, 23);
  EXPECT_EQ(stacked->cols, kCols);
  EXPECT_EQ(stacked->bytes, 0);

  std::vector<float> y(kTokens * 25, -1.0f);
  std::vector<float> z(kTokens * 3);
  const std::vector<MatmulOutput> outputs = {{stacked.get(), bias.data(), y.data(), 25},
                                             {small.get(), nullptr, z.data(), 3}};
  backend_->Matmul({x.data(), kLdx, kTokens, outputs});
  const auto expected = [&](const std::vector<float>& w, int64_t row, int64_t t) {
    double sum = 0.0;
    for (int64_t k = 0; k < kCols; ++k) {
      sum += static_cast<double>(x[static_cast<size_t>(t * kLdx + k)]) *
             static_cast<double>(w[static_cast<size_t>(row * kCols + k)]);
    }
    return sum;
  };
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t n = 0; n < 23; ++n) {
      const double sum = (n < 19 ? expected(first, n, t) : expected(second, n - 19, t)) +
                         static_cast<double>(bias[static_cast<size_t>(n)]);
      EXPECT_NEAR(y[static_cast<size_t>(t * 25 + n)], sum, 1e-6) << t << " " << n;
    }
    for (int64_t n = 23; n < 25; ++n) EXPECT_EQ(y[static_cast<size_t>(t * 25 + n)], -1.0f);
    for (int64_t n = 0; n < 3; ++n) {
      EXPECT_NEAR(z[static_cast<size_t>(t * 3 + n)], expected(other, n, t), 1e-6);
    }
  }
}

TEST_F(RefBackendTest, MatmulOfEveryWeightFormatIsTheMatmulOfItsDequantizedValues) {
  constexpr int64_t kRows = 6;
  constexpr int64_t kCols = 512;
  const std::vector<float> x = RandomFloats(rng_, 3 * kCols);
  const std::vector<DType> formats = {
      DType::kF32,  DType::kF16,  DType::kBF16, DType::kF64,  DType::kF8E4M3, DType::kF8E5M2,
      DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,   DType::kQ2_K,
      DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL};
  for (const DType dtype : formats) {
    SCOPED_TRACE(Info(dtype).name);
    ASSERT_TRUE(backend_->Supports(dtype));
    // Bytes below 0x3C keep every scale, whichever bytes hold it, a small finite number.
    std::vector<uint8_t> bytes(static_cast<size_t>(kRows * RowBytes(dtype, kCols)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng_.Below(0x3C));
    const std::vector<TensorView> stored = {View(dtype, {kRows, kCols}, bytes.data())};
    const std::vector<float> values = ToFloat(stored.front());
    const std::vector<TensorView> plain = {View(DType::kF32, {kRows, kCols}, values.data())};
    std::vector<float> y(3 * kRows);
    std::vector<float> expected(3 * kRows);
    const auto packed = backend_->Pack(stored);
    const auto packed_plain = backend_->Pack(plain);
    const std::vector<MatmulOutput> out = {{packed.get(), nullptr, y.data(), kRows}};
    const std::vector<MatmulOutput> out_plain = {
        {packed_plain.get(), nullptr, expected.data(), kRows}};
    backend_->Matmul({x.data(), kCols, 3, out});
    backend_->Matmul({x.data(), kCols, 3, out_plain});
    EXPECT_EQ(y, expected);
    EXPECT_NE(y, std::vector<float>(3 * kRows));
  }
  EXPECT_FALSE(backend_->Supports(DType::kI32));
}

TEST_F(RefBackendTest, MatmulRowsAreTheSameBitsInAnyBatchAndOnOneThread) {
  constexpr int64_t kRows = 53;
  constexpr int64_t kCols = 131;
  constexpr int64_t kTokens = 35;
  const std::vector<float> w = RandomFloats(rng_, kRows * kCols);
  const std::vector<float> x = RandomFloats(rng_, kTokens * kCols);
  const std::vector<TensorView> parts = {View(DType::kF32, {kRows, kCols}, w.data())};
  const auto packed = backend_->Pack(parts);
  std::vector<float> whole(kTokens * kRows);
  const std::vector<MatmulOutput> outputs = {{packed.get(), nullptr, whole.data(), kRows}};
  backend_->Matmul({x.data(), kCols, kTokens, outputs});

  ThreadPool one(1);
  const auto alone_backend = MakeRefBackend(one);
  std::vector<float> alone(kTokens * kRows);
  for (int64_t t = 0; t < kTokens; ++t) {
    const std::vector<MatmulOutput> row = {
        {packed.get(), nullptr, alone.data() + t * kRows, kRows}};
    alone_backend->Matmul({x.data() + t * kCols, kCols, 1, row});
  }
  EXPECT_EQ(alone, whole);
}

TEST_F(RefBackendTest, NormsByRowAndByGroup) {
  constexpr int64_t kTokens = 3;
  constexpr int64_t kCols = 12;
  const std::vector<float> x = RandomFloats(rng_, kTokens * kCols);
  const std::vector<float> weight = RandomFloats(rng_, kCols);
  const std::vector<float> bias = RandomFloats(rng_, kCols);
  for (const bool layer : {false, true}) {
    for (const int64_t groups : {int64_t{1}, int64_t{3}}) {
      for (const bool weight_per_group : {false, true}) {
        SCOPED_TRACE(testing::Message() << layer << groups << weight_per_group);
        NormArgs args;
        args.kind = layer ? NormArgs::Kind::kLayer : NormArgs::Kind::kRms;
        std::vector<float> y(kTokens * kCols);
        args.x = x.data();
        args.y = y.data();
        args.ldx = args.ldy = args.cols = kCols;
        args.tokens_count = kTokens;
        args.groups_count = groups;
        args.weight_per_group = weight_per_group;
        args.weight = weight.data();
        args.bias = layer ? bias.data() : nullptr;
        args.eps = 0.01f;
        backend_->Norm(args);
        const int64_t count = kCols / groups;
        for (int64_t at = 0; at < kTokens * kCols; ++at) {
          const int64_t first = at / count * count;
          double mean = 0.0;
          double square = 0.0;
          for (int64_t i = first; i < first + count; ++i) {
            const double value = static_cast<double>(x[static_cast<size_t>(i)]);
            mean += value / static_cast<double>(count);
            square += value * value / static_cast<double>(count);
          }
          const double spread = layer ? square - mean * mean : square;
          const int64_t in_row = at % kCols;
          const auto w_at = static_cast<size_t>(weight_per_group ? in_row : in_row % count);
          const double value = static_cast<double>(x[static_cast<size_t>(at)]);
          const double expected =
              layer
                  ? static_cast<double>(weight[w_at]) * (value - mean) / std::sqrt(spread + 0.01) +
                        static_cast<double>(bias[w_at])
                  : static_cast<double>(weight[w_at]) * value / std::sqrt(spread + 0.01);
          EXPECT_NEAR(y[static_cast<size_t>(at)], expected, 1e-6);
        }
      }
    }
  }
}

TEST_F(RefBackendTest, ActivationsAtKnownPoints) {
  struct Point {
    Activation kind;
    float gate;
    double expected;  // from the definitions, by a calculator with 10 digits
  };
  const std::vector<Point> points = {{Activation::kSilu, 1.0f, 0.7310585786},
                                     {Activation::kSilu, -2.0f, -0.2384058440},
                                     {Activation::kSilu, -200.0f, 0.0},
                                     {Activation::kGelu, 1.0f, 0.8413447461},
                                     {Activation::kGelu, -0.5f, -0.1542687694},
                                     {Activation::kGeluTanh, 1.0f, 0.8411919906},
                                     {Activation::kGeluTanh, -2.0f, -0.0454023059},
                                     {Activation::kRelu, -3.0f, 0.0},
                                     {Activation::kRelu, 3.0f, 3.0}};
  for (const Point& point : points) {
    float y = 0.0f;
    ActivationArgs args;
    args.kind = point.kind;
    args.gate = &point.gate;
    args.y = &y;
    args.ld_gate = args.ld_up = args.ldy = args.tokens_count = args.cols = 1;
    backend_->Activate(args);
    EXPECT_NEAR(y, point.expected, 1e-7);
    const float up = -2.5f;
    args.up = &up;
    backend_->Activate(args);
    EXPECT_NEAR(y, point.expected * -2.5, 3e-7);
  }
}

TEST_F(RefBackendTest, RopeRotatesPairsAndLeavesTheRest) {
  constexpr int64_t kDim = 6;
  constexpr int64_t kRotated = 4;
  std::vector<float> cos;
  std::vector<float> sin;
  for (int position = 0; position < 9; ++position) {
    for (const double frequency : {1.0, 0.25}) {
      cos.push_back(static_cast<float>(std::cos(position * frequency)));
      sin.push_back(static_cast<float>(std::sin(position * frequency)));
    }
  }
  const std::vector<int64_t> positions = {8, 0};
  const std::vector<float> before = RandomFloats(rng_, 2 * 2 * kDim);
  for (const auto kind : {RopeArgs::Kind::kHalf, RopeArgs::Kind::kInterleaved}) {
    std::vector<float> x = before;
    RopeArgs args;
    args.kind = kind;
    args.x = x.data();
    args.ldx = 2 * kDim;
    args.tokens_count = args.heads_count = 2;
    args.head_dim = kDim;
    args.rotated_dims = kRotated;
    args.positions = positions.data();
    args.cos = cos.data();
    args.sin = sin.data();
    backend_->Rope(args);
    for (size_t at = 0; at < x.size(); ++at) {
      const size_t i = at % kDim;
      if (i >= kRotated || at >= 2 * kDim) {  // unrotated, or position 0
        EXPECT_EQ(x[at], before[at]);
        continue;
      }
      const bool half = kind == RopeArgs::Kind::kHalf;
      const size_t pair = half ? i % 2 : i / 2;
      const bool is_first = half ? i < 2 : i % 2 == 0;
      const size_t partner = half ? (is_first ? at + 2 : at - 2) : (is_first ? at + 1 : at - 1);
      const double angle = 8.0 * (pair == 0 ? 1.0 : 0.25);
      const double turned = is_first ? -std::sin(angle) : std::sin(angle);
      EXPECT_NEAR(x[at],
                  static_cast<double>(before[at]) * std::cos(angle) +
                      static_cast<double>(before[partner]) * turned,
                  1e-6);
    }
  }
}

TEST_F(RefBackendTest, AddAndScale) {
  std::vector<float> x = {1.0f, 2.0f, 9.0f, 3.0f, 4.0f, 9.0f};
  const std::vector<float> y = {10.0f, 20.0f, 30.0f, 40.0f};
  AddArgs add;
  add.x = x.data();
  add.y = y.data();
  add.ldx = 3;
  add.ldy = add.tokens_count = add.cols = 2;
  add.scale = 0.5f;
  backend_->Add(add);
  EXPECT_EQ(x, (std::vector<float>{6.0f, 12.0f, 9.0f, 18.0f, 24.0f, 9.0f}));
  ScaleArgs scale;
  scale.x = x.data();
  scale.ldx = 3;
  scale.tokens_count = scale.cols = 2;
  scale.scale = 0.5f;
  backend_->Scale(scale);
  EXPECT_EQ(x, (std::vector<float>{3.0f, 6.0f, 9.0f, 9.0f, 12.0f, 9.0f}));
  scale.scale = 1.0f;
  scale.softcap = 5.0f;
  backend_->Scale(scale);
  EXPECT_NEAR(x[0], 5.0 * std::tanh(0.6), 1e-6);
  EXPECT_NEAR(x[4], 5.0 * std::tanh(2.4), 1e-6);
  EXPECT_EQ(x[2], 9.0f);
}

// A pool of blocks for one layer, with a stride that leaves room for others.
struct Pool {
  Pool(DType dtype, int64_t block_tokens, int64_t kv_heads, int64_t head_dim, int64_t blocks) {
    view.block_tokens = block_tokens;
    view.kv_heads = kv_heads;
    view.head_dim = head_dim;
    view.dtype = dtype;
    view.block_stride_bytes = LayerBlockBytes(view) + 64;
    bytes.resize(static_cast<size_t>(view.block_stride_bytes * blocks), std::byte{0xFF});
    view.base = bytes.data();
  }
  KvView view;
  std::vector<std::byte> bytes;  // NaN until stored: what is read must have been written
};

double Rounded(DType dtype, float value) {
  if (dtype == DType::kF16) return static_cast<double>(HalfToFloat(FloatToHalf(value)));
  if (dtype == DType::kBF16) return static_cast<double>(Bf16ToFloat(FloatToBf16(value)));
  return static_cast<double>(value);
}

struct AttentionCase {
  DType dtype = DType::kF32;
  int64_t window = 0;
  float softcap = 0.0f;
  bool sinks = false;
};

class AttentionTest : public RefBackendTest {
 protected:
  static constexpr int64_t kTokens = 41;
  static constexpr int64_t kQueryHeads = 6;
  static constexpr int64_t kKvHeads = 2;
  static constexpr int64_t kDim = 10;
  static constexpr int64_t kBlockTokens = 4;

  // Runs rows [0, kTokens) in the given chunks; returns out [T, Hq, D].
  std::vector<float> Run(const AttentionCase& c, const std::vector<int64_t>& chunks,
                         const std::vector<int32_t>& table, int threads) {
    ThreadPool pool(threads);
    const auto backend = MakeRefBackend(pool);
    Pool blocks(c.dtype, kBlockTokens, kKvHeads, kDim, 16);
    std::vector<float> out(kTokens * kQueryHeads * kDim);
    int64_t start = 0;
    for (const int64_t count : chunks) {
      const std::vector<AttentionSequence> sequences = {{0, count, start, table}};
      StoreKvArgs store;
      store.k = k_.data() + start * kKvHeads * kDim;
      store.v = v_.data() + start * kKvHeads * kDim;
      store.ldk = store.ldv = kKvHeads * kDim;
      store.kv = blocks.view;
      store.sequences = sequences;
      backend->StoreKv(store);
      AttentionArgs args;
      args.q = q_.data() + start * kQueryHeads * kDim;
      args.ldq = args.ldo = kQueryHeads * kDim;
      args.query_heads = kQueryHeads;
      args.kv = blocks.view;
      args.sequences = sequences;
      args.scale = 0.4f;
      args.softcap = c.softcap;
      args.window = c.window;
      args.sinks = c.sinks ? sinks_.data() : nullptr;
      args.out = out.data() + start * kQueryHeads * kDim;
      backend->Attention(args);
      start += count;
    }
    return out;
  }

  double Expected(const AttentionCase& c, int64_t t, int64_t head, int64_t i) const {
    const int64_t kv_head = head / (kQueryHeads / kKvHeads);
    const auto at = [&](const std::vector<float>& values, int64_t row, int64_t heads, int64_t h,
                        int64_t d) {
      return values[static_cast<size_t>((row * heads + h) * kDim + d)];
    };
    double denominator =
        c.sinks ? std::exp(static_cast<double>(sinks_[static_cast<size_t>(head)])) : 0.0;
    double numerator = 0.0;
    for (int64_t j = 0; j <= t; ++j) {
      if (c.window != 0 && j <= t - c.window) continue;
      double dot = 0.0;
      for (int64_t d = 0; d < kDim; ++d) {
        dot += static_cast<double>(at(q_, t, kQueryHeads, head, d)) *
               Rounded(c.dtype, at(k_, j, kKvHeads, kv_head, d));
      }
      double score = dot * static_cast<double>(0.4f);
      if (c.softcap != 0.0f) {
        const auto cap = static_cast<double>(c.softcap);
        score = cap * std::tanh(score / cap);
      }
      denominator += std::exp(score);
      numerator += std::exp(score) * Rounded(c.dtype, at(v_, j, kKvHeads, kv_head, i));
    }
    return numerator / denominator;
  }

  std::vector<float> q_ = RandomFloats(rng_, kTokens* kQueryHeads* kDim, 3.0);
  std::vector<float> k_ = RandomFloats(rng_, kTokens* kKvHeads* kDim, 3.0);
  std::vector<float> v_ = RandomFloats(rng_, kTokens* kKvHeads* kDim);
  std::vector<float> sinks_ = RandomFloats(rng_, kQueryHeads, 3.0);
  const std::vector<int32_t> straight_ = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const std::vector<int32_t> shuffled_ = {9, 3, 14, 0, 5, 15, 1, 2, 11, 7, 4};
  const std::vector<AttentionCase> cases_ = {{DType::kF32, 0, 0.0f, false},
                                             {DType::kF16, 7, 0.0f, false},
                                             {DType::kBF16, 0, 2.0f, true},
                                             {DType::kF16, 16, 0.0f, true},
                                             {DType::kF32, 1, 0.0f, false}};
};

TEST_F(AttentionTest, IsTheFormula) {
  for (const AttentionCase& c : cases_) {
    SCOPED_TRACE(testing::Message() << Info(c.dtype).name << " window " << c.window);
    const std::vector<float> out = Run(c, {kTokens}, straight_, 2);
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t head = 0; head < kQueryHeads; ++head) {
        for (int64_t i = 0; i < kDim; ++i) {
          ASSERT_NEAR(out[static_cast<size_t>((t * kQueryHeads + head) * kDim + i)],
                      Expected(c, t, head, i), 1e-6)
              << t << " " << head << " " << i;
        }
      }
    }
  }
}

TEST_F(AttentionTest, ChunksBlocksAndThreadsDoNotChangeABit) {
  for (const AttentionCase& c : cases_) {
    const std::vector<float> whole = Run(c, {kTokens}, straight_, 1);
    EXPECT_EQ(Run(c, {1, 17, 1, 1, 21}, straight_, 2), whole);
    EXPECT_EQ(Run(c, {20, 20, 1}, shuffled_, 2), whole);
  }
}

TEST_F(AttentionTest, ABlockBehindTheWindowIsNeverRead) {
  const AttentionCase c = {DType::kF16, 6, 0.0f, false};
  const std::vector<float> whole = Run(c, {kTokens}, straight_, 2);
  Pool blocks(c.dtype, kBlockTokens, kKvHeads, kDim, 16);
  std::vector<int32_t> table = shuffled_;
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t entry = 0; (entry + 1) * kBlockTokens <= t - c.window + 1; ++entry) {
      table[static_cast<size_t>(entry)] = -1;
    }
    const std::vector<AttentionSequence> sequences = {{0, 1, t, table}};
    StoreKvArgs store;
    store.k = k_.data() + t * kKvHeads * kDim;
    store.v = v_.data() + t * kKvHeads * kDim;
    store.kv = blocks.view;
    store.sequences = sequences;
    backend_->StoreKv(store);
    std::vector<float> out(kQueryHeads * kDim);
    AttentionArgs args;
    args.q = q_.data() + t * kQueryHeads * kDim;
    args.query_heads = kQueryHeads;
    args.kv = blocks.view;
    args.sequences = sequences;
    args.scale = 0.4f;
    args.window = c.window;
    args.out = out.data();
    backend_->Attention(args);
    const auto* expected = whole.data() + t * kQueryHeads * kDim;
    ASSERT_EQ(std::memcmp(out.data(), expected, out.size() * sizeof(float)), 0) << t;
  }
}

TEST_F(AttentionTest, SequencesOfOneStepDoNotMeet) {
  const AttentionCase c = {DType::kF16, 0, 0.0f, false};
  const std::vector<float> whole = Run(c, {kTokens}, straight_, 2);
  // The same sequence twice in one batch, in different blocks; the second one behind the first.
  Pool blocks(c.dtype, kBlockTokens, kKvHeads, kDim, 32);
  std::vector<int32_t> second_table = shuffled_;
  for (int32_t& block : second_table) block += 16;
  const auto doubled = [](const std::vector<float>& values) {
    std::vector<float> twice = values;
    twice.insert(twice.end(), values.begin(), values.end());
    return twice;
  };
  const std::vector<float> q = doubled(q_);
  const std::vector<float> k = doubled(k_);
  const std::vector<float> v = doubled(v_);
  const std::vector<AttentionSequence> sequences = {{0, kTokens, 0, straight_},
                                                    {kTokens, kTokens, 0, second_table}};
  StoreKvArgs store;
  store.k = k.data();
  store.v = v.data();
  store.ldk = store.ldv = kKvHeads * kDim;
  store.kv = blocks.view;
  store.sequences = sequences;
  backend_->StoreKv(store);
  std::vector<float> out(2 * kTokens * kQueryHeads * kDim);
  AttentionArgs args;
  args.q = q.data();
  args.ldq = args.ldo = kQueryHeads * kDim;
  args.query_heads = kQueryHeads;
  args.kv = blocks.view;
  args.sequences = sequences;
  args.scale = 0.4f;
  args.out = out.data();
  backend_->Attention(args);
  EXPECT_EQ(out, doubled(whole));
}

}  // namespace
}  // namespace kvasir::kernels
