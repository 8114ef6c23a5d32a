// The pieces that families' files are written with: what most configs say, and a first spec and
// naming made from it, which a family then changes where it differs.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config_reader.h"
#include "model/spec.h"
#include "model/tensor_names.h"

namespace kvasir::model {

/// All that a family says about a checkpoint.
struct Blueprint {
  ModelSpec spec;
  TensorNames names;
};

/// A family: the names it goes by, and how its config becomes a blueprint. `build` may leave errors
/// in the reader.
struct Family {
  std::vector<std::string_view> hf_architectures;  ///< architectures[0] and model_type
  std::vector<std::string_view> gguf_architectures;
  Blueprint (*build)(ConfigReader& reader);
};

/// Finds the family of the config and builds its spec, checked and with cache groups. An unknown
/// architecture is refused with one line.
[[nodiscard]] Result<Blueprint> MakeBlueprint(ConfigReader& reader);

/// Keys under which a family's config has the common sizes.
struct CommonKeys {
  Key hidden_size{"hidden_size", "embedding_length"};
  Key layers{"num_hidden_layers", "block_count"};
  Key query_heads{"num_attention_heads", "attention.head_count"};
  Key kv_heads{"num_key_value_heads", "attention.head_count_kv"};
  Key head_dim{"head_dim", "attention.key_length"};
  Key ffn_size{"intermediate_size", "feed_forward_length"};
  Key norm_eps{"rms_norm_eps", "attention.layer_norm_rms_epsilon"};
};

/// What a config means where it leaves a key out.
struct CommonDefaults {
  int64_t vocab_size = 0;  ///< 0 = the key is required; so are query_heads
  int64_t query_heads = 0;
  int64_t kv_heads = 0;  ///< 0 = query_heads
  int64_t head_dim = 0;  ///< 0 = hidden_size / query_heads
  int64_t ffn_size = 0;  ///< 0 = the key is required
  double norm_eps = 1e-6;
  bool tied_embeddings = false;
  int64_t max_positions = 2048;
  kernels::NormArgs::Kind norm_kind = kernels::NormArgs::Kind::kRms;
  bool norm_bias = false;
  RopeDefaults rope;
};

struct CommonConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers_count = 0;
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_size = 0;
  int64_t max_positions = 0;
  bool tied_embeddings = false;
  NormSpec norm;
  RopeConfig rope;
};

CommonConfig ReadCommon(ConfigReader& reader, const CommonDefaults& defaults = {},
                        const CommonKeys& keys = {});

/// A spec of equal layers: pre-norms, full attention with rope table 0 in halves, a SiLU-gated FFN.
ModelSpec PlainSpec(ConfigReader& reader, const CommonConfig& common);

/// Applies `change` to each layer with its index.
void ForEachLayer(ModelSpec& spec,
                  const std::function<void(int64_t, LayerSpec&, GroupedQueryAttention&)>& change);

/// Adds the table of `rope` unless an equal one is there; its index.
int AddRopeTable(ConfigReader& reader, ModelSpec& spec, const RopeConfig& rope);

/// Masks of all layers: by layer_types where the config lists them, else windowed where
/// `is_windowed(layer)`. A window of 0 means full attention everywhere.
void ApplyMasks(ConfigReader& reader, ModelSpec& spec, int64_t window_tokens,
                const std::function<bool(int64_t)>& is_windowed);

/// hidden_act and its relatives: silu, gelu, gelu_new, gelu_pytorch_tanh, relu.
kernels::Activation ReadActivation(ConfigReader& reader, std::string_view hf_key,
                                   std::string_view otherwise);

/// Names as in Llama's safetensors. `prefix` is "model." but for wrapped checkpoints.
TensorNames LlamaNames(const ModelSpec& spec, const std::string& prefix);
/// The first of `candidates` under which the checkpoint has `tensor`, else the first of all.
std::string FindPrefix(const ConfigReader& reader, const std::vector<std::string>& candidates,
                       std::string_view tensor);
/// Names as in GGUF; fused tensors are found by looking.
TensorNames GgufNames(const ConfigReader& reader, const ModelSpec& spec);
/// GgufNames or LlamaNames with the prefix "model.".
TensorNames DefaultNames(const ConfigReader& reader, const ModelSpec& spec);

/// One of kRequired or kNone, by a flag of the config (GGUF has no flags: kIfPresent).
LinearSource::Bias BiasRule(const ConfigReader& reader, bool required);

}  // namespace kvasir::model
