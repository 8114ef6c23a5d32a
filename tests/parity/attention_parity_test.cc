// StoreKv and Attention of every fast backend against the reference, and against themselves: alone
// and in a batch, in chunks and whole, in any blocks, on any number of threads.
#include <cmath>
#include <limits>
#include <numeric>

#include "parity/parity.h"

namespace kvasir::kernels {
namespace {

struct Setting {
  int64_t query_heads = 3;
  int64_t kv_heads = 1;
  int64_t head_dim = 64;
  int64_t block_tokens = 16;
  DType dtype = DType::kF16;
  int64_t window = 0;
  float softcap = 0.0f;
  bool sinks = false;
};

std::string Name(const Setting& s) {
  return fmt::format("Hq {} Hkv {} D {} B {} {} window {} softcap {} sinks {}", s.query_heads,
                     s.kv_heads, s.head_dim, s.block_tokens, Info(s.dtype).name, s.window,
                     s.softcap, s.sinks);
}

// A pool of blocks for one backend; every value that no one stored is NaN.
class Cache {
 public:
  Cache(const Setting& setting, int64_t blocks, Backend& backend)
      : setting_(setting), backend_(backend) {
    view_.block_tokens = setting.block_tokens;
    view_.kv_heads = setting.kv_heads;
    view_.head_dim = setting.head_dim;
    view_.dtype = setting.dtype;
    view_.block_stride_bytes = LayerBlockBytes(view_) + 128;  // other layers lie between
    bytes_.resize(static_cast<size_t>(blocks * view_.block_stride_bytes), std::byte{0xFF});
    view_.base = bytes_.data();
  }
  void Store(const float* k, const float* v, std::span<const AttentionSequence> sequences) {
    const int64_t ld = setting_.kv_heads * setting_.head_dim;
    backend_.StoreKv({k, v, ld, ld, view_, sequences});
  }
  // out is [rows, Hq D].
  std::vector<float> Attend(const float* q, const std::vector<float>& sinks, int64_t rows,
                            std::span<const AttentionSequence> sequences) {
    AttentionArgs args;
    args.q = q;
    args.ldq = setting_.query_heads * setting_.head_dim;
    args.query_heads = setting_.query_heads;
    args.kv = view_;
    args.sequences = sequences;
    args.scale = 0.3f;
    args.softcap = setting_.softcap;
    args.window = setting_.window;
    args.sinks = setting_.sinks ? sinks.data() : nullptr;
    std::vector<float> out(static_cast<size_t>(rows * args.ldq), -9.0f);
    args.out = out.data();
    args.ldo = args.ldq;
    backend_.Attention(args);
    return out;
  }

 private:
  Setting setting_;
  Backend& backend_;
  KvView view_;
  std::vector<std::byte> bytes_;
};

struct Text {
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
  int64_t length = 0;
  std::vector<int32_t> blocks;
};

class AttentionParity : public ::testing::TestWithParam<std::string> {
 protected:
  ThreadPool pool_{2};
  std::unique_ptr<Backend> fast_ = Make(GetParam(), pool_);
  std::unique_ptr<Backend> ref_ = Make("ref", pool_);
  Rng rng_{17};

  Text MakeText(const Setting& s, int64_t length) {
    Text text;
    text.length = length;
    text.q = RandomFloats(rng_, length * s.query_heads * s.head_dim, 2.0);
    text.k = RandomFloats(rng_, length * s.kv_heads * s.head_dim, 2.0);
    text.v = RandomFloats(rng_, length * s.kv_heads * s.head_dim);
    return text;
  }
  // Blocks in an order of no meaning, `first` of the pool's left out.
  std::vector<int32_t> Blocks(const Setting& s, int64_t length, int32_t first) {
    std::vector<int32_t> blocks(
        static_cast<size_t>((length + s.block_tokens - 1) / s.block_tokens));
    std::iota(blocks.begin(), blocks.end(), first);
    for (size_t i = blocks.size(); i > 1; --i) std::swap(blocks[i - 1], blocks[rng_.Below(i)]);
    return blocks;
  }
  static int64_t PoolBlocks(const Setting& s, int64_t length) {
    return (length + s.block_tokens - 1) / s.block_tokens + 3;
  }

  // The whole text in one step on a cache of its own.
  std::vector<float> Whole(Backend& backend, const Setting& s, const Text& text,
                           const std::vector<float>& sinks, const std::vector<int32_t>& blocks) {
    Cache cache(s, PoolBlocks(s, text.length), backend);
    const AttentionSequence sequence{0, text.length, 0, blocks};
    cache.Store(text.k.data(), text.v.data(), {&sequence, 1});
    return cache.Attend(text.q.data(), sinks, text.length, {&sequence, 1});
  }
  // The text in steps of random size.
  std::vector<float> Chunked(Backend& backend, const Setting& s, const Text& text,
                             const std::vector<float>& sinks, int64_t most) {
    Cache cache(s, PoolBlocks(s, text.length), backend);
    const std::vector<int32_t> blocks = Blocks(s, text.length, 2);
    const int64_t ldq = s.query_heads * s.head_dim;
    const int64_t ldk = s.kv_heads * s.head_dim;
    std::vector<float> all;
    for (int64_t start = 0; start < text.length;) {
      const int64_t rows = std::min(text.length - start, rng_.Between(1, most));
      const AttentionSequence sequence{0, rows, start, blocks};
      cache.Store(text.k.data() + start * ldk, text.v.data() + start * ldk, {&sequence, 1});
      const std::vector<float> out =
          cache.Attend(text.q.data() + start * ldq, sinks, rows, {&sequence, 1});
      all.insert(all.end(), out.begin(), out.end());
      start += rows;
    }
    return all;
  }
};

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  settings.push_back({});
  settings.push_back({.query_heads = 9, .kv_heads = 3});
  settings.push_back({.query_heads = 4, .kv_heads = 1, .head_dim = 256, .window = 70});
  settings.push_back({.query_heads = 2, .kv_heads = 2, .head_dim = 16, .dtype = DType::kF32});
  settings.push_back({.query_heads = 7, .head_dim = 80, .dtype = DType::kBF16, .softcap = 5.0f});
  settings.push_back({.query_heads = 5, .head_dim = 32, .block_tokens = 8, .sinks = true});
  settings.push_back({.query_heads = 6, .head_dim = 24, .block_tokens = 24, .window = 300});
  settings.push_back({.query_heads = 2, .head_dim = 40, .block_tokens = 32, .dtype = DType::kF32});
  settings.push_back({.query_heads = 3, .head_dim = 20, .block_tokens = 5, .dtype = DType::kBF16});
  settings.push_back({.query_heads = 40, .head_dim = 8, .block_tokens = 16, .window = 1});
  settings.push_back({.query_heads = 1, .head_dim = 13, .block_tokens = 1, .dtype = DType::kF32});
  settings.push_back(
      {.query_heads = 8, .head_dim = 128, .block_tokens = 64, .softcap = 20.0f, .sinks = true});
  return settings;
}

TEST_P(AttentionParity, IsNearTheReference) {
  for (const Setting& s : Settings()) {
    for (const int64_t length : {1, 19, 300}) {
      const Text text = MakeText(s, length);
      const std::vector<float> sinks = RandomFloats(rng_, s.query_heads, 3.0);
      const std::vector<int32_t> blocks = Blocks(s, length, 1);
      const std::vector<float> fast = Whole(*fast_, s, text, sinks, blocks);
      const std::vector<float> exact = Whole(*ref_, s, text, sinks, blocks);
      for (size_t i = 0; i < fast.size(); ++i) {
        // |v| <= 1; scores reach some 0.3 * 4 * D, and are off by some ulp of that.
        ASSERT_NEAR(fast[i], exact[i], 1e-5 + 2e-7 * static_cast<double>(s.head_dim))
            << Name(s) << " length " << length << " value " << i;
      }
    }
  }
}

TEST_P(AttentionParity, IsTheSameInChunksBlocksAndThreads) {
  for (const Setting& s : Settings()) {
    const int64_t length = s.head_dim > 100 ? 300 : 600;
    const Text text = MakeText(s, length);
    const std::vector<float> sinks = RandomFloats(rng_, s.query_heads, 3.0);
    const std::vector<float> whole = Whole(*fast_, s, text, sinks, Blocks(s, length, 0));
    EXPECT_TRUE(SameBits(whole, Whole(*fast_, s, text, sinks, Blocks(s, length, 3)))) << Name(s);
    EXPECT_TRUE(SameBits(whole, Chunked(*fast_, s, text, sinks, 3))) << Name(s);
    EXPECT_TRUE(SameBits(whole, Chunked(*fast_, s, text, sinks, 100))) << Name(s);
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      const auto other = Make(GetParam(), pool);
      EXPECT_TRUE(SameBits(whole, Chunked(*other, s, text, sinks, 150)))
          << Name(s) << " " << threads << " threads";
    }
    Setting wide = s;
    wide.block_tokens = 48;
    EXPECT_TRUE(SameBits(whole, Whole(*fast_, wide, text, sinks, Blocks(wide, length, 0))))
        << Name(s);
  }
}

TEST_P(AttentionParity, SequencesInOneBatchAreAsAlone) {
  for (const Setting& s : Settings()) {
    const std::vector<float> sinks = RandomFloats(rng_, s.query_heads, 3.0);
    const int64_t ldq = s.query_heads * s.head_dim;
    const int64_t ldk = s.kv_heads * s.head_dim;
    // Each has `start` positions in the cache already and brings `rows` more.
    const std::vector<std::pair<int64_t, int64_t>> shapes = {{0, 5},    {37, 1}, {700, 1},
                                                             {270, 20}, {0, 1},  {512, 2}};
    std::vector<Text> texts;
    std::vector<std::vector<int32_t>> tables;
    std::vector<std::vector<float>> alone;
    int64_t blocks = 0;
    for (const auto& [start, rows] : shapes) {
      const Text text = MakeText(s, start + rows);
      tables.push_back(Blocks(s, start + rows, static_cast<int32_t>(blocks)));
      blocks += static_cast<int64_t>(tables.back().size());
      const std::vector<float> whole = Whole(*fast_, s, text, sinks, Blocks(s, text.length, 0));
      alone.emplace_back(whole.begin() + start * ldq, whole.end());
      texts.push_back(text);
    }
    Cache cache(s, blocks, *fast_);
    std::vector<AttentionSequence> step;
    std::vector<float> q;
    std::vector<float> k;
    std::vector<float> v;
    int64_t rows_count = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto& [start, rows] = shapes[i];
      const AttentionSequence past{0, start, 0, tables[i]};
      cache.Store(texts[i].k.data(), texts[i].v.data(), {&past, 1});
      step.push_back({rows_count, rows, start, tables[i]});
      rows_count += rows;
      q.insert(q.end(), texts[i].q.begin() + start * ldq, texts[i].q.end());
      k.insert(k.end(), texts[i].k.begin() + start * ldk, texts[i].k.end());
      v.insert(v.end(), texts[i].v.begin() + start * ldk, texts[i].v.end());
    }
    cache.Store(k.data(), v.data(), step);
    const std::vector<float> together = cache.Attend(q.data(), sinks, rows_count, step);
    for (size_t i = 0; i < shapes.size(); ++i) {
      EXPECT_TRUE(SameBits(together.data() + step[i].first_row * ldq, alone[i].data(),
                           static_cast<int64_t>(alone[i].size())))
          << Name(s) << " sequence " << i;
    }
  }
}

TEST_P(AttentionParity, FollowsTheLargestScoreHoweverLarge) {
  const Setting s{.query_heads = 1, .head_dim = 8, .dtype = DType::kF32};
  Text text = MakeText(s, 40);
  for (float& value : text.q) value = 100.0f;
  for (float& value : text.k) value = -100.0f;
  for (size_t d = 0; d < 8; ++d) text.k[11 * 8 + d] = 100.0f;
  const std::vector<float> out = Whole(*fast_, s, text, {}, Blocks(s, 40, 0));
  for (size_t d = 0; d < 8; ++d) EXPECT_FLOAT_EQ(out[39 * 8 + d], text.v[11 * 8 + d]);
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionParity, ::testing::ValuesIn(FastBackends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kvasir::kernels
