// Seconds of a step by a roofline: no faster than the memory can be read, than the units can
// multiply, than the links can carry. Of a machine, a model, its formats and the parallel degree.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/hardware.h"
#include "plan/model_shape.h"

namespace kvasir::plan {

/// How a model is spread over devices. tensor: every matrix is cut (KV heads too, as far as there
/// are enough); pipeline: each stage has a run of layers; expert: experts are cut over this many
/// times the tensor devices, while each of the `expert` replicas of the rest serves its own users.
struct Parallel {
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t expert = 1;

  [[nodiscard]] int64_t DevicesCount() const { return tensor * pipeline * expert; }
  bool operator==(const Parallel&) const = default;
};

/// One sequence's part of a step. A decoding sequence has one new token.
struct StepSequence {
  int64_t new_tokens = 1;
  int64_t context_tokens = 0;  ///< computed before this step
  int64_t count = 1;           ///< of sequences that are alike
};

/// What a step cannot be faster than, and why.
enum class Bound : uint8_t { kMemory, kCompute, kLink, kOverhead };
/// "memory bandwidth", "compute", "link", "overhead".
[[nodiscard]] std::string_view BoundName(Bound bound);

struct StepTime {
  double seconds = 0;  ///< max(memory, compute) + link + overhead, through all stages of a pipeline
  double memory_s = 0;
  double compute_s = 0;
  double link_s = 0;
  double overhead_s = 0;
  /// From one step's end to the next's where every stage of a pipeline is kept busy with its own
  /// batch; seconds where there is one stage.
  double interval_s = 0;
  double weight_bytes = 0;  ///< read, on all devices together
  double kv_bytes = 0;      ///< read and written, on all devices together
  double flops = 0;         ///< on all devices together
  /// The same by the arithmetic they are done in. All as one, idle_factor of them (and of the KV)
  /// is the time: replicas without a sequence do nothing.
  std::array<double, kMathCount> math_flops = {};
  double idle_factor = 1;
  double link_bytes = 0;         ///< that a device sends
  Bound bound = Bound::kMemory;  ///< the largest of the four
};

/// What a machine reaches, all devices that work on a step together.
struct StepRates {
  double bandwidth = 0;
  std::array<double, kMathCount> flops = {};  ///< operations a second
  double link_bandwidth = 0;                  ///< of one device; infinite where there is no link
  double link_latency_s = 0;                  ///< of a step
};

struct RooflineOptions {
  WeightFormats weights;  ///< e.g. ModelShape::shipped
  NumberFormat kv;        ///< e.g. ModelShape::kv_format
  Parallel parallel;
  /// Shares of the machine's bandwidth and operations that are reached. 1 gives bounds.
  double bandwidth_share = 1.0;
  double compute_share = 1.0;
};

/// Precomputed per model and machine; a step then costs some operations a sequence and kind of
/// layer, no allocation. Immutable.
class Roofline {
 public:
  Roofline(const Hardware& hardware, const ModelShape& shape, const RooflineOptions& options);

  [[nodiscard]] const StepRates& rates() const { return rates_; }

  /// Of `sequences` in one step, where `logits_count` rows are taken through the head (as a rule
  /// one a sequence whose known tokens are all computed).
  [[nodiscard]] StepTime Step(std::span<const StepSequence> sequences, int64_t logits_count) const;

 private:
  struct Layer {
    double layers_count = 0;
    double window = 0;               // tokens seen at most; infinite where all are
    double kv_bytes = 0;             // a token in all these layers
    double state_bytes = 0;          // a sequence in all these layers, read and written
    double pair_flops = 0;           // of a query with one key in all these layers
    double expanded_pair_flops = 0;  // the same with latents expanded; 0: there are none
    double expand_flops = 0;         // of expanding one position
    double token_flops = 0;          // a token, whatever its context
  };

  std::vector<Layer> layers_;
  double dense_bytes_ = 0;    // read in every step
  double expert_bytes_ = 0;   // of all routed experts
  double expert_share_ = 0;   // of them that a token uses
  double head_bytes_ = 0;     // read where logits are asked for
  double dense_seconds_ = 0;  // of compute a token
  double head_seconds_ = 0;   // of compute a row of logits
  double dense_flops_ = 0;
  std::array<double, kMathCount> math_flops_ = {};  // dense_flops_ by arithmetic
  size_t head_math_ = 0;
  size_t attention_math_ = 0;
  StepRates rates_;
  double head_flops_ = 0;
  double row_bytes_ = 0;       // of an embedding row
  double bandwidth_ = 0;       // of all devices, reached
  double attention_rate_ = 0;  // operations a second of all devices, reached
  double link_bytes_ = 0;      // a token sends
  double link_rate_ = 0;
  double link_latency_s_ = 0;
  double overhead_s_ = 0;
  double stages_ = 1;
  double replicas_ = 1;
};

}  // namespace kvasir::plan
