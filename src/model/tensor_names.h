// How a checkpoint names and arranges the tensors of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvasir::model {

/// Where the matrices of one linear step lie. Names are without ".weight" and ".bias"; "{}" stands
/// for the layer's number.
struct LinearSource {
  struct Part {
    std::string name;
    int64_t rows = 0;  ///< outputs
  };
  enum class Layout : uint8_t {
    kRows,        ///< [rows, cols]; fused parts lie one after another, as the outputs do
    kTransposed,  ///< [cols, rows] (GPT-2's Conv1D)
    kQkvPerHead,  ///< one part whose rows are q, k, v of head 0, then of head 1, ... (GPT-NeoX)
  };
  enum class Bias : uint8_t { kNone, kRequired, kIfPresent };

  std::vector<Part> parts;  ///< in the order of the output columns
  int64_t cols = 0;         ///< inputs
  Layout layout = Layout::kRows;
  Bias bias = Bias::kNone;
  int64_t head_dim = 0;  ///< for kQkvPerHead
};

/// Names of norms are without ".weight" and ".bias"; those that the spec lacks stay empty.
struct LayerNames {
  std::string attention_pre_norm;
  std::string attention_post_norm;
  std::string ffn_pre_norm;
  std::string ffn_post_norm;
  std::string q_norm;
  std::string k_norm;
  LinearSource qkv;
  LinearSource attention_output;
  LinearSource ffn_input;
  LinearSource ffn_output;
};

struct TensorNames {
  std::string embedding;
  std::string positions;  ///< where positions are learned
  std::string final_norm;
  std::string head;  ///< where it is not tied
  LayerNames layer;
  /// Tensors that are no weights of the text model and may be there.
  std::vector<std::string> ignored_prefixes;
  std::vector<std::string> ignored_suffixes;
};

}  // namespace kvasir::model
