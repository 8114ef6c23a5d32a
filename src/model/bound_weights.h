// The weights of a model where the forward pass finds them: packed matrices, norms as float, the
// embedding table as it lies in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/matmul.h"
#include "tensor/tensor.h"

namespace kvasir::model {

struct BoundNorm {
  std::vector<float> weight;
  std::vector<float> bias;  ///< empty = none
};

/// One or more matrices that read the same input; output columns lie side by side in the order of
/// the parts (q | k | v, gate | up).
struct BoundLinear {
  std::vector<std::unique_ptr<kernels::PackedMatrix>> matrices;
  std::vector<float> bias;  ///< [cols] of all outputs together; empty = none
  int64_t cols = 0;         ///< outputs of all matrices together
  /// Copies that matrices refer to where the file's own bytes could not be used.
  std::vector<std::unique_ptr<std::byte[]>> copies;
};

struct BoundLayer {
  BoundNorm attention_pre_norm;
  BoundNorm attention_post_norm;
  BoundNorm ffn_pre_norm;
  BoundNorm ffn_post_norm;
  BoundLinear qkv;
  BoundLinear attention_output;
  /// Weights of a per-head norm repeated for each of the Hq + Hkv heads, or of a whole-row norm of
  /// q.
  std::vector<float> q_norm;
  std::vector<float> k_norm;  ///< of a whole-row norm of k
  BoundLinear ffn_input;      ///< gate | up, or up alone
  BoundLinear ffn_output;
};

struct BoundWeights {
  TensorView embedding;            ///< [V, M], read a row at a time
  bool embedding_in_head = false;  ///< read from the packed head, which is the same table
  TensorView positions;            ///< [max_positions, M] where positions are learned
  std::vector<BoundLayer> layers;
  BoundNorm final_norm;
  BoundLinear head;
  int64_t packed_bytes = 0;  ///< memory that packed matrices and copies take
};

}  // namespace kvasir::model
