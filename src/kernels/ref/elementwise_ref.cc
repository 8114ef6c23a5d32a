#include "kernels/ref/elementwise_ref.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace kvasir::kernels::ref {
namespace {

double Activated(Activation kind, double z) {
  switch (kind) {
    case Activation::kSilu:
      return z / (1.0 + std::exp(-z));
    case Activation::kGelu:
      return 0.5 * z * (1.0 + std::erf(z / std::numbers::sqrt2));
    case Activation::kGeluTanh: {
      const double root = std::sqrt(2.0 / std::numbers::pi);
      return 0.5 * z * (1.0 + std::tanh(root * (z + 0.044715 * z * z * z)));
    }
    case Activation::kRelu:
      return z > 0.0 ? z : 0.0;
  }
  KVASIR_CHECK(false, "activation {}", static_cast<int>(kind));
}

void NormGroup(const NormArgs& args, const float* x, float* y, const float* weight,
               const float* bias, int64_t count) {
  double mean = 0.0;
  if (args.kind == NormArgs::Kind::kLayer) {
    for (int64_t i = 0; i < count; ++i) mean += static_cast<double>(x[i]);
    mean /= static_cast<double>(count);
  }
  double square_sum = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const double centered = static_cast<double>(x[i]) - mean;
    square_sum += centered * centered;
  }
  const double variance = square_sum / static_cast<double>(count);
  const double inverse = 1.0 / std::sqrt(variance + static_cast<double>(args.eps));
  for (int64_t i = 0; i < count; ++i) {
    double value = (static_cast<double>(x[i]) - mean) * inverse;
    if (weight != nullptr) value *= static_cast<double>(weight[i]);
    if (bias != nullptr) value += static_cast<double>(bias[i]);
    y[i] = static_cast<float>(value);
  }
}

}  // namespace

void Norm(const NormArgs& args, ThreadPool& pool) {
  KVASIR_CHECK(args.groups_count > 0 && args.cols % args.groups_count == 0, "{} groups of {}",
               args.groups_count, args.cols);
  KVASIR_CHECK(args.bias == nullptr || args.kind == NormArgs::Kind::kLayer);
  const int64_t count = args.cols / args.groups_count;
  pool.ParallelFor(args.tokens_count, [&](int64_t t, int) {
    for (int64_t group = 0; group < args.groups_count; ++group) {
      const int64_t at = group * count;
      const int64_t parameters_at = args.weight_per_group ? at : 0;
      NormGroup(args, args.x + t * args.ldx + at, args.y + t * args.ldy + at,
                args.weight == nullptr ? nullptr : args.weight + parameters_at,
                args.bias == nullptr ? nullptr : args.bias + parameters_at, count);
    }
  });
}

void Activate(const ActivationArgs& args, ThreadPool& pool) {
  pool.ParallelFor(args.tokens_count, [&](int64_t t, int) {
    for (int64_t i = 0; i < args.cols; ++i) {
      double value = Activated(args.kind, static_cast<double>(args.gate[t * args.ld_gate + i]));
      if (args.up != nullptr) value *= static_cast<double>(args.up[t * args.ld_up + i]);
      args.y[t * args.ldy + i] = static_cast<float>(value);
    }
  });
}

void Rope(const RopeArgs& args, ThreadPool& pool) {
  KVASIR_CHECK(args.rotated_dims % 2 == 0 && args.rotated_dims <= args.head_dim, "{} of {}",
               args.rotated_dims, args.head_dim);
  const int64_t pairs = args.rotated_dims / 2;
  const bool half = args.kind == RopeArgs::Kind::kHalf;
  pool.ParallelFor(args.tokens_count, [&](int64_t t, int) {
    const float* cos = args.cos + args.positions[t] * pairs;
    const float* sin = args.sin + args.positions[t] * pairs;
    for (int64_t head = 0; head < args.heads_count; ++head) {
      float* x = args.x + t * args.ldx + head * args.head_dim;
      for (int64_t i = 0; i < pairs; ++i) {
        float& first = x[half ? i : 2 * i];
        float& second = x[half ? i + pairs : 2 * i + 1];
        const auto a = static_cast<double>(first);
        const auto b = static_cast<double>(second);
        const auto c = static_cast<double>(cos[i]);
        const auto s = static_cast<double>(sin[i]);
        first = static_cast<float>(a * c - b * s);
        second = static_cast<float>(b * c + a * s);
      }
    }
  });
}

void Add(const AddArgs& args, ThreadPool& pool) {
  const auto scale = static_cast<double>(args.scale);
  pool.ParallelFor(args.tokens_count, [&](int64_t t, int) {
    float* x = args.x + t * args.ldx;
    const float* y = args.y + t * args.ldy;
    for (int64_t i = 0; i < args.cols; ++i) {
      x[i] = static_cast<float>(static_cast<double>(x[i]) + scale * static_cast<double>(y[i]));
    }
  });
}

void Scale(const ScaleArgs& args, ThreadPool& pool) {
  const auto scale = static_cast<double>(args.scale);
  const auto cap = static_cast<double>(args.softcap);
  pool.ParallelFor(args.tokens_count, [&](int64_t t, int) {
    float* x = args.x + t * args.ldx;
    for (int64_t i = 0; i < args.cols; ++i) {
      double value = scale * static_cast<double>(x[i]);
      if (cap != 0.0) value = cap * std::tanh(value / cap);
      x[i] = static_cast<float>(value);
    }
  });
}

}  // namespace kvasir::kernels::ref
