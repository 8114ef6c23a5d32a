// This machine measured with the server's own kernels.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "kernels/backend.h"
#include "plan/hardware.h"

namespace kvasir::plan {
namespace {

// Three measurements share two seconds.
constexpr TimeNs kBudgetNs = 550'000'000;

/// The shortest of the runs of `body` that fit into the budget (at least three), in seconds.
template <typename Body>
double BestSeconds(Body&& body) {
  const SteadyClock clock;
  const TimeNs began = clock.Now();
  double best = 0;
  for (int run = 0; run < 3 || clock.Now() - began < kBudgetNs; ++run) {
    const TimeNs start = clock.Now();
    body();
    const double seconds = ToSeconds(std::max<TimeNs>(clock.Now() - start, 1));
    if (run == 0 || seconds < best) best = seconds;
  }
  return best;
}

// Bytes a second of all threads reading memory that no cache holds.
double MeasureBandwidth(ThreadPool& pool, int64_t available_bytes) {
  constexpr int64_t kMost = int64_t{512} << 20;
  constexpr int64_t kChunk = int64_t{1} << 20;
  const int64_t chunks = std::max<int64_t>(1, std::min(kMost, available_bytes / 4) / kChunk);
  constexpr int64_t kWords = kChunk / static_cast<int64_t>(sizeof(uint64_t));
  const auto memory =
      std::make_unique_for_overwrite<uint64_t[]>(static_cast<size_t>(chunks * kWords));
  pool.ParallelFor(chunks, [&](int64_t chunk, int) {
    std::fill_n(memory.get() + chunk * kWords, kWords, uint64_t{1});
  });
  std::vector<uint64_t> sums(static_cast<size_t>(chunks));
  const double seconds = BestSeconds([&] {
    pool.ParallelFor(chunks, [&](int64_t chunk, int) {
      const uint64_t* words = memory.get() + chunk * kWords;
      uint64_t sum[4] = {};
      for (int64_t i = 0; i < kWords; i += 4) {
        for (int64_t lane = 0; lane < 4; ++lane) sum[lane] += words[i + lane];
      }
      sums[static_cast<size_t>(chunk)] += sum[0] + sum[1] + sum[2] + sum[3];
    });
  });
  // The sums are looked at, so that the reads are not left out.
  const bool read = std::all_of(sums.begin(), sums.end(), [](uint64_t sum) { return sum > 0; });
  return read ? static_cast<double>(chunks * kChunk) / seconds : 0.0;
}

// Operations a second of a matmul of 64 tokens with weights in `dtype`.
double MeasureMatmul(kernels::Backend& backend, DType dtype) {
  constexpr int64_t kRows = 1024;
  constexpr int64_t kCols = 1024;
  constexpr int64_t kTokens = 64;
  // Zeros take as long as any weights.
  const auto row_bytes = static_cast<size_t>(RowBytes(dtype, kCols));
  std::vector<std::byte> weights(kRows * row_bytes);
  TensorView view;
  view.dtype = dtype;
  view.shape = {kRows, kCols};
  view.data = weights.data();
  view.bytes = static_cast<int64_t>(weights.size());
  const auto packed = backend.Pack({&view, 1});
  std::vector<float> x(kTokens * kCols, 1.0f);
  std::vector<float> y(kTokens * kRows);
  const kernels::MatmulOutput output{.weight = packed.get(), .y = y.data(), .ldy = kRows};
  const double seconds = BestSeconds([&] {
    backend.Matmul({.x = x.data(), .ldx = kCols, .tokens_count = kTokens, .outputs = {&output, 1}});
  });
  return 2.0 * kRows * kCols * kTokens / seconds;
}

std::string CpuTitle(int cores) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t at = line.find(": ");
    if (line.starts_with("model name") && at != std::string::npos) {
      return fmt::format("this machine: {}, {} cores", line.substr(at + 2), cores);
    }
  }
  return fmt::format("this machine: {} cores", cores);
}

}  // namespace

Result<Hardware> ProbeHardware() {
  const int cores = UsablePhysicalCores();
  ThreadPool pool(cores);
  KVASIR_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                          kernels::MakeBackend("auto", pool));
  Hardware out;
  out.name = "this";
  out.title = CpuTitle(cores);
  out.source = fmt::format("measured with the {} kernels on {} threads", backend->name(), cores);
  out.kind = Hardware::Kind::kCpu;
  out.cores = cores;
  out.kernels = backend->name();
  out.memory_bytes = AvailableMemoryBytes();
  out.bandwidth = MeasureBandwidth(pool, out.memory_bytes);
  const double dense = MeasureMatmul(*backend, DType::kBF16);
  out.peak_flops[static_cast<size_t>(Math::kF32)] = dense;
  out.peak_flops[static_cast<size_t>(Math::kBF16)] = dense;
  out.peak_flops[static_cast<size_t>(Math::kI8)] = MeasureMatmul(*backend, DType::kQ8_0);
  // A layer meets its threads about five times.
  out.layer_overhead_s = 25e-6;
  out.step_overhead_s = 100e-6;
  return out;
}

}  // namespace kvasir::plan
