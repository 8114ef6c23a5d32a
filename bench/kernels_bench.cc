// Speed of the kernels by format and batch: the best of several short runs, since other work on the
// machine can only make a run slower.
//
//   kernels_bench --kernels avx2 --threads 2 matmul attention pack
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "kernels/backend.h"
#include "tensor/dtype.h"
#include "tensor/float16.h"

namespace kvasir {
namespace {

using kernels::Backend;

// With one thread, the time that this thread computed: what others take of the core is left out.
double Seconds(bool of_thread) {
  timespec time{};
  clock_gettime(of_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Timing {
  bool of_thread = true;
  int runs = 20;
};

// Best seconds a call over runs of about a millisecond each.
template <typename Body>
double Best(Timing timing, Body&& body) {
  body();
  double start = Seconds(timing.of_thread);
  body();
  const double once = Seconds(timing.of_thread) - start;
  const int calls = std::clamp(static_cast<int>(1e-3 / (once + 1e-9)), 1, 10'000);
  double best = once;
  for (int run = 0; run < timing.runs; ++run) {
    start = Seconds(timing.of_thread);
    for (int call = 0; call < calls; ++call) body();
    best = std::min(best, (Seconds(timing.of_thread) - start) / calls);
  }
  return best;
}

std::vector<float> RandomFloats(Rng& rng, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(rng.Uniform() * 2.0 - 1.0);
  return values;
}

// Numbers of moderate size in every format: denormal ones would be slow as none of a model's are.
std::vector<std::byte> RandomWeights(DType dtype, Rng& rng, int64_t bytes) {
  std::vector<std::byte> weights(static_cast<size_t>(bytes));
  for (std::byte& byte : weights) byte = static_cast<std::byte>(rng.Next() & 0x3Bu);
  const auto step = static_cast<size_t>(Info(dtype).block_bytes);
  if (Info(dtype).block_values == 1) {
    for (size_t at = step - 1; at < weights.size(); at += step) weights[at] |= std::byte{0x38};
  }
  return weights;
}

struct Shape2 {
  int64_t rows;
  int64_t cols;
};

// As many copies as do not fit any cache, taken in turn, as the layers of a model are.
void BenchMatmul(Backend& backend, DType dtype, Shape2 shape, int64_t copies_bytes, Timing timing) {
  Rng rng(1);
  TensorView view;
  view.dtype = dtype;
  view.shape = {shape.rows, shape.cols};
  view.bytes = shape.rows * RowBytes(dtype, shape.cols);
  const std::vector<std::byte> bytes = RandomWeights(dtype, rng, view.bytes);
  view.data = bytes.data();
  std::vector<std::unique_ptr<kernels::PackedMatrix>> copies;
  for (int64_t total = 0; total == 0 || total < copies_bytes; total += view.bytes) {
    copies.push_back(backend.Pack({&view, 1}));
  }
  for (const int64_t tokens : {1, 2, 4, 8, 16, 64, 512}) {
    const std::vector<float> x = RandomFloats(rng, tokens * shape.cols);
    std::vector<float> y(static_cast<size_t>(tokens * shape.rows));
    size_t next = 0;
    const double seconds = Best(timing, [&] {
      const kernels::MatmulOutput output{copies[next].get(), nullptr, y.data(), shape.rows};
      next = (next + 1) % copies.size();
      backend.Matmul({x.data(), shape.cols, tokens, {&output, 1}});
    });
    const auto macs = static_cast<double>(shape.rows * shape.cols * tokens);
    std::printf("matmul %-6s [%6ld, %5ld] T %3ld  %9.1f us  %7.1f GOP/s  %6.1f GB/s\n",
                std::string(Info(dtype).name).c_str(), shape.rows, shape.cols, tokens,
                seconds * 1e6, 2e-9 * macs / seconds,
                1e-9 * static_cast<double>(copies[0]->bytes) / seconds);
  }
}

void BenchAttention(Backend& backend, DType dtype, int64_t query_heads, int64_t kv_heads,
                    int64_t head_dim, int64_t depth, int64_t sequences_count, int64_t rows,
                    Timing timing) {
  Rng rng(2);
  kernels::KvView kv;
  kv.kv_heads = kv_heads;
  kv.head_dim = head_dim;
  kv.dtype = dtype;
  kv.block_stride_bytes = kernels::LayerBlockBytes(kv);
  const int64_t blocks = (depth + kv.block_tokens - 1) / kv.block_tokens;
  // Several layers' worth, taken in turn.
  const int64_t layers = std::max<int64_t>(
      1, (int64_t{64} << 20) / (blocks * sequences_count * kv.block_stride_bytes));
  std::vector<std::byte> pool(
      static_cast<size_t>(layers * blocks * sequences_count * kv.block_stride_bytes));
  std::vector<std::vector<int32_t>> tables(static_cast<size_t>(sequences_count));
  std::vector<kernels::AttentionSequence> step;
  for (int64_t s = 0; s < sequences_count; ++s) {
    auto& table = tables[static_cast<size_t>(s)];
    for (int64_t b = 0; b < blocks; ++b) table.push_back(static_cast<int32_t>(s * blocks + b));
    step.push_back({s * rows, rows, depth - rows, table});
  }
  const int64_t total_rows = rows * sequences_count;
  const std::vector<float> q = RandomFloats(rng, total_rows * query_heads * head_dim);
  std::vector<float> out(q.size());
  int64_t layer = 0;
  const double seconds = Best(timing, [&] {
    kernels::AttentionArgs args;
    args.q = q.data();
    args.ldq = query_heads * head_dim;
    args.query_heads = query_heads;
    args.kv = kv;
    args.kv.base = pool.data() + layer * blocks * sequences_count * kv.block_stride_bytes;
    args.sequences = step;
    args.out = out.data();
    args.ldo = args.ldq;
    backend.Attention(args);
    layer = (layer + 1) % layers;
  });
  double macs = 0.0;
  for (int64_t row = 0; row < rows; ++row) {
    macs += 2.0 * static_cast<double>((depth - rows + row + 1) * query_heads * head_dim);
  }
  macs *= static_cast<double>(sequences_count);
  const auto bytes = static_cast<double>(blocks * sequences_count * kv.block_stride_bytes);
  std::printf(
      "attention %-4s Hq %ld Hkv %ld D %3ld  %2ld sequences x %3ld rows at depth %5ld  %9.1f us  "
      "%6.1f GFLOP/s  %6.1f GB/s\n",
      std::string(Info(dtype).name).c_str(), query_heads, kv_heads, head_dim, sequences_count, rows,
      depth, seconds * 1e6, 2e-9 * macs / seconds, 1e-9 * bytes / seconds);
}

void BenchPack(Backend& backend, DType dtype, Timing timing) {
  Rng rng(3);
  TensorView view;
  view.dtype = dtype;
  view.shape = {6144, 4096};
  view.bytes = 6144 * RowBytes(dtype, 4096);
  const std::vector<std::byte> bytes = RandomWeights(dtype, rng, view.bytes);
  view.data = bytes.data();
  const double seconds = Best(timing, [&] { (void)backend.Pack({&view, 1}); });
  std::printf("pack %-6s %6.1f ms  %6.1f GB/s\n", std::string(Info(dtype).name).c_str(),
              seconds * 1e3, 1e-9 * static_cast<double>(view.bytes) / seconds);
}

void BenchElementwise(Backend& backend, int64_t tokens, Timing timing) {
  Rng rng(4);
  constexpr int64_t kCols = 1536;
  std::vector<float> x = RandomFloats(rng, tokens * kCols);
  const std::vector<float> y = RandomFloats(rng, tokens * kCols);
  std::vector<float> out(x.size());
  const auto values = static_cast<double>(tokens * kCols);
  const auto report = [&](const char* what, double seconds) {
    std::printf("%-10s T %3ld x %ld  %8.2f us  %6.3f ns a value\n", what, tokens, kCols,
                seconds * 1e6, 1e9 * seconds / values);
  };
  report("norm", Best(timing, [&] {
           kernels::NormArgs args;
           args.x = x.data();
           args.y = out.data();
           args.ldx = kCols;
           args.ldy = kCols;
           args.tokens_count = tokens;
           args.cols = kCols;
           args.weight = y.data();
           backend.Norm(args);
         }));
  report("silu", Best(timing, [&] {
           kernels::ActivationArgs args;
           args.gate = x.data();
           args.up = y.data();
           args.y = out.data();
           args.ld_gate = kCols;
           args.ld_up = kCols;
           args.ldy = kCols;
           args.tokens_count = tokens;
           args.cols = kCols;
           backend.Activate(args);
         }));
  report("add", Best(timing, [&] {
           backend.Add({x.data(), y.data(), kCols, kCols, tokens, kCols, 1e-3f});
         }));
}

int Run(int argc, char** argv) {
  CLI::App app("Speed of the kernels");
  std::string name = "auto";
  int threads = 1;
  int runs = 20;
  std::vector<std::string> parts = {"matmul", "attention", "elementwise", "pack"};
  std::vector<std::string> formats = {"Q4_1", "Q8_0", "Q5_0", "Q4_K", "Q6_K", "BF16", "F32"};
  int64_t rows = 1536;
  int64_t cols = 576;
  int64_t megabytes = 64;
  app.add_option("--kernels", name, "backend")->capture_default_str();
  app.add_option("--threads", threads, "threads of the pool")->capture_default_str();
  app.add_option("--runs", runs, "runs of which the best counts")->capture_default_str();
  app.add_option("--formats", formats, "weight formats")->capture_default_str();
  app.add_option("--rows", rows, "N")->capture_default_str();
  app.add_option("--cols", cols, "K, rounded down to whole blocks")->capture_default_str();
  app.add_option("--megabytes", megabytes, "weights that are read in turn")->capture_default_str();
  app.add_option("parts", parts, "matmul, attention, elementwise, pack")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  ThreadPool pool(threads);
  auto made = kernels::MakeBackend(name, pool);
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.error().message.c_str());
    return 2;
  }
  Backend& backend = **made;
  const Timing timing{threads == 1, runs};
  std::printf("kernels %s, %d threads\n", std::string(backend.name()).c_str(), threads);
  const auto wants = [&](const char* part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  for (const std::string& format : formats) {
    const auto dtype = DTypeFromName(format);
    if (!dtype.has_value()) {
      std::fprintf(stderr, "no format %s\n", format.c_str());
      return 2;
    }
    const int64_t unit = Info(*dtype).block_values;
    const Shape2 shape{rows, std::max<int64_t>(1, cols / unit) * unit};
    if (wants("matmul")) BenchMatmul(backend, *dtype, shape, megabytes << 20, timing);
    if (wants("pack")) BenchPack(backend, *dtype, timing);
  }
  if (wants("attention")) {
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
      BenchAttention(backend, dtype, 9, 3, 64, 128, 1, 1, timing);
      BenchAttention(backend, dtype, 9, 3, 64, 3500, 1, 1, timing);
      BenchAttention(backend, dtype, 4, 1, 256, 3500, 1, 1, timing);
      BenchAttention(backend, dtype, 9, 3, 64, 256, 16, 1, timing);
      BenchAttention(backend, dtype, 9, 3, 64, 512, 1, 512, timing);
    }
  }
  if (wants("elementwise")) {
    for (const int64_t tokens : {1, 64}) BenchElementwise(backend, tokens, timing);
  }
  return 0;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) { return kvasir::Run(argc, argv); }
