#include "plan/roofline.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace kvasir::plan {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Sum over the new tokens of the positions that each sees, its own included: min(context + i,
// limit) for i = 1 ... n.
double SeenPositions(double context, double n, double limit) {
  // The first `below` of them see fewer than the limit.
  const double below = std::clamp(limit - context, 0.0, n);
  const double growing = below * context + below * (below + 1) / 2;
  return growing + (n > below ? (n - below) * limit : 0.0);
}

}  // namespace

std::string_view BoundName(Bound bound) {
  switch (bound) {
    case Bound::kMemory:
      return "memory bandwidth";
    case Bound::kCompute:
      return "compute";
    case Bound::kLink:
      return "link";
    case Bound::kOverhead:
      return "overhead";
  }
  return "";
}

Roofline::Roofline(const Hardware& hardware, const ModelShape& shape,
                   const RooflineOptions& options) {
  const Parallel& parallel = options.parallel;
  KVASIR_CHECK(parallel.tensor > 0 && parallel.pipeline > 0 && parallel.expert > 0);
  KVASIR_CHECK(options.bandwidth_share > 0 && options.compute_share > 0);
  const auto tensor = static_cast<double>(parallel.tensor);
  const auto replicas = static_cast<double>(parallel.expert);
  const auto stages = static_cast<double>(parallel.pipeline);
  // All stages of a pipeline work in turn on one step, so they do not add up.
  const double working = tensor * replicas;
  bandwidth_ = hardware.bandwidth * options.bandwidth_share * working;
  const auto rate = [&](const NumberFormat& format) {
    return hardware.PeakFlops(hardware.UsedMath(format)) * options.compute_share * working;
  };

  rates_.bandwidth = bandwidth_;
  for (size_t i = 0; i < kMathCount; ++i) {
    rates_.flops[i] = hardware.peak_flops[i] * options.compute_share * working;
  }
  const auto math_of = [&](const NumberFormat& format) {
    return static_cast<size_t>(hardware.UsedMath(format));
  };

  const auto add_dense = [&](Part part) {
    const NumberFormat& format = options.weights[static_cast<size_t>(part)];
    // Every replica reads its own copy.
    dense_bytes_ += replicas * static_cast<double>(PartBytes(shape, part, options.weights));
    const double flops = 2.0 * static_cast<double>(shape.ParametersCount(part));
    dense_flops_ += flops;
    math_flops_[math_of(format)] += flops;
    dense_seconds_ += flops / rate(format);
  };
  for (const Part part : {Part::kAttention, Part::kFfn, Part::kSharedExpert, Part::kRouter}) {
    add_dense(part);
  }
  dense_bytes_ += replicas * static_cast<double>(PartBytes(shape, Part::kNorms, options.weights));
  if (shape.experts.experts_count > 0) {
    expert_share_ = static_cast<double>(shape.experts.used_count) /
                    static_cast<double>(shape.experts.experts_count);
    expert_bytes_ = static_cast<double>(PartBytes(shape, Part::kExperts, options.weights));
    const double flops =
        2.0 * static_cast<double>(shape.ParametersCount(Part::kExperts)) * expert_share_;
    const NumberFormat& format = options.weights[static_cast<size_t>(Part::kExperts)];
    dense_flops_ += flops;
    math_flops_[math_of(format)] += flops;
    dense_seconds_ += flops / rate(format);
  }
  const Part head = shape.tied_embeddings ? Part::kEmbedding : Part::kHead;
  const NumberFormat& head_format = options.weights[static_cast<size_t>(head)];
  head_bytes_ =
      replicas * static_cast<double>(head_format.Bytes(shape.vocab_size, shape.hidden_size));
  head_flops_ =
      2.0 * static_cast<double>(shape.vocab_size) * static_cast<double>(shape.hidden_size);
  head_math_ = math_of(head_format);
  head_seconds_ = head_flops_ / rate(head_format);
  row_bytes_ = static_cast<double>(
      options.weights[static_cast<size_t>(Part::kEmbedding)].Bytes(1, shape.hidden_size));

  NumberFormat attention_format;  // keys and values are multiplied in BF16
  attention_math_ = math_of(attention_format);
  attention_rate_ = rate(attention_format);
  for (const LayerShape& layer : shape.layers) {
    Layer out;
    const auto count = static_cast<double>(layer.layers_count);
    out.window =
        layer.kind == LayerKind::kWindow ? static_cast<double>(layer.window_tokens) : kInfinite;
    if (layer.attended_tokens > 0) out.window = static_cast<double>(layer.attended_tokens);
    if (layer.kind == LayerKind::kLinear) {
      // Decay, delta and output touch each value of the state about four times.
      const double values = static_cast<double>(layer.state_bytes) / 4.0;
      out.token_flops = count * 8.0 * values;
      out.state_bytes = count * 2.0 * static_cast<double>(layer.state_bytes);
    } else {
      // A latent cannot be cut by heads, so every tensor device reads all of it.
      const double copies =
          std::max(1.0, tensor / static_cast<double>(std::max<int64_t>(layer.kv_heads, 1)));
      out.kv_bytes = count * copies * static_cast<double>(options.kv.Bytes(1, layer.cached_values));
      out.pair_flops = count * 2.0 * static_cast<double>(layer.query_heads) *
                       static_cast<double>(layer.key_dim + layer.value_dim);
      out.expanded_pair_flops = count * 2.0 * static_cast<double>(layer.query_heads) *
                                static_cast<double>(layer.expanded_dims);
      out.expand_flops = count * 2.0 * static_cast<double>(layer.expanding_values);
    }
    layers_.push_back(out);
  }

  const auto layers_count = static_cast<double>(shape.layers_count);
  const auto row = 2.0 * static_cast<double>(shape.hidden_size);  // BF16 activations
  if (parallel.tensor > 1) {
    // Two all-reduces a layer; in a ring each device sends 2 (n - 1) / n of the rows.
    link_bytes_ += layers_count * 2.0 * row * 2.0 * (tensor - 1) / tensor;
    link_latency_s_ += layers_count * 2.0 * hardware.link_latency_s;
  }
  if (parallel.expert > 1 && shape.experts.experts_count > 0) {
    // There and back, to as many experts as a token uses; a replica sends its own tokens alone.
    const auto moe_layers = static_cast<double>(shape.experts.layers_count);
    link_bytes_ += moe_layers * 2.0 * row * static_cast<double>(shape.experts.used_count) *
                   (replicas - 1) / replicas / working;
    link_latency_s_ += moe_layers * 2.0 * hardware.link_latency_s;
  }
  if (parallel.pipeline > 1) {
    link_bytes_ += (stages - 1) * row;
    link_latency_s_ += (stages - 1) * hardware.link_latency_s;
  }
  link_rate_ =
      hardware.link_bandwidth > 0 ? hardware.link_bandwidth * options.bandwidth_share : kInfinite;
  rates_.link_bandwidth = link_rate_;
  rates_.link_latency_s = link_latency_s_;
  overhead_s_ = layers_count * hardware.layer_overhead_s + hardware.step_overhead_s;
  stages_ = stages;
  replicas_ = replicas;
}

StepTime Roofline::Step(std::span<const StepSequence> sequences, int64_t logits_count) const {
  StepTime out;
  double tokens = 0;
  double attention_flops = 0;
  double state_flops = 0;
  double sequences_count = 0;
  for (const StepSequence& sequence : sequences) {
    const auto n = static_cast<double>(sequence.new_tokens);
    const auto context = static_cast<double>(sequence.context_tokens);
    const auto count = static_cast<double>(sequence.count);
    tokens += count * n;
    sequences_count += count;
    for (const Layer& layer : layers_) {
      // Read once for all new tokens: what the first of them sees and what comes after; written
      // once.
      const double read = std::min(context + n, layer.window + n - 1);
      out.kv_bytes += count * (layer.kv_bytes * (read + n) + layer.state_bytes);
      const double seen = SeenPositions(context, n, layer.window);
      double flops = layer.pair_flops * seen;
      if (layer.expanded_pair_flops > 0) {
        // Expanding the new positions is part of every token's work.
        flops = std::min(flops, layer.expanded_pair_flops * seen + layer.expand_flops * context);
      }
      attention_flops += count * flops;
      state_flops += count * layer.token_flops * n;
    }
  }
  if (tokens <= 0) return out;
  // Of E experts a token uses K at random: this share is used by at least one of T tokens.
  const double experts_used = expert_share_ > 0 ? 1.0 - std::pow(1.0 - expert_share_, tokens) : 0.0;
  const auto logits = static_cast<double>(logits_count);
  out.weight_bytes = dense_bytes_ + expert_bytes_ * experts_used + tokens * row_bytes_ +
                     (logits_count > 0 ? head_bytes_ : 0.0);
  out.flops = tokens * dense_flops_ + logits * head_flops_ + attention_flops + state_flops;
  // Fewer sequences than replicas leave some of them idle.
  const double idle = replicas_ / std::min(replicas_, std::max(1.0, sequences_count));
  out.idle_factor = idle;
  for (size_t i = 0; i < kMathCount; ++i) out.math_flops[i] = tokens * math_flops_[i];
  out.math_flops[head_math_] += logits * head_flops_;
  out.math_flops[attention_math_] += attention_flops + state_flops;
  out.link_bytes = tokens * link_bytes_;
  out.memory_s = (out.weight_bytes + idle * out.kv_bytes) / bandwidth_;
  out.compute_s = idle * (tokens * dense_seconds_ + logits * head_seconds_ +
                          (attention_flops + state_flops) / attention_rate_);
  out.link_s = tokens * link_bytes_ / link_rate_ + link_latency_s_;
  out.overhead_s = overhead_s_;
  out.seconds = std::max(out.memory_s, out.compute_s) + out.link_s + out.overhead_s;
  out.interval_s = out.seconds / stages_;
  const double most = std::max({out.memory_s, out.compute_s, out.link_s, out.overhead_s});
  out.bound = most == out.memory_s    ? Bound::kMemory
              : most == out.compute_s ? Bound::kCompute
              : most == out.link_s    ? Bound::kLink
                                      : Bound::kOverhead;
  return out;
}

}  // namespace kvasir::plan
