// A model as data: one global record and a list of layer records. A family's file fills it in; the
// loader and the forward pass read it and know no family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernels/elementwise.h"
#include "tensor/dtype.h"

namespace kvasir::model {

struct NormSpec {
  kernels::NormArgs::Kind kind = kernels::NormArgs::Kind::kRms;
  float eps = 1e-6f;
  /// The stored weight is w - 1 (Gemma in safetensors); one is added at load.
  bool weight_plus_one = false;
  bool has_bias = false;  ///< kLayer only
};

/// Where a query's keys lie. Two layers with equal masks may share a block table.
struct MaskSpec {
  enum class Kind : uint8_t {
    kFull,    ///< every position up to its own
    kWindow,  ///< the last `window_tokens` positions, its own included
  };
  Kind kind = Kind::kFull;
  int64_t window_tokens = 0;

  bool operator==(const MaskSpec&) const = default;
};

/// Norms of q and k before the rotation.
enum class QkNorm : uint8_t {
  kNone,
  kPerHead,   ///< each head on its own, one weight [D] for all (Qwen 3, Gemma 3)
  kWholeRow,  ///< all heads at once, weight [Hq D] and [Hkv D] (OLMo 2)
};

/// What a layer keeps of the past. Today's attention keeps keys and values a token; a latent, an
/// indexer's keys or a state a sequence would be further kinds.
enum class CacheKind : uint8_t { kPagedKv };

/// Grouped-query attention (multi-head where kv_heads == query_heads).
struct GroupedQueryAttention {
  int64_t query_heads = 0;  ///< Hq
  int64_t kv_heads = 0;     ///< Hkv; divides Hq
  int64_t head_dim = 0;     ///< D
  float scale = 1.0f;       ///< of q . k
  float softcap = 0.0f;     ///< of the scaled scores; 0 = none
  QkNorm qk_norm = QkNorm::kNone;
  NormSpec qk_norm_spec;
  MaskSpec mask;
  std::optional<int> rope_table;  ///< index into ModelSpec::rope_tables; none = no rotation
  kernels::RopeArgs::Kind rope_kind = kernels::RopeArgs::Kind::kHalf;

  [[nodiscard]] int64_t QueryCols() const { return query_heads * head_dim; }
  [[nodiscard]] int64_t KvCols() const { return kv_heads * head_dim; }
};
/// One alternative a kind of attention; readers visit it, so a new kind is found by the compiler.
using AttentionSpec = std::variant<GroupedQueryAttention>;

/// down(act(gate x) * up x), or down(act(up x)) where it is not gated.
struct DenseFfn {
  int64_t hidden_size = 0;  ///< F
  bool gated = true;
  kernels::Activation activation = kernels::Activation::kSilu;
};
using FfnSpec = std::variant<DenseFfn>;

/// Sequential: x += r post_a(attn(pre_a(x))); x += r post_f(ffn(pre_f(x))), each norm being the
/// identity where absent. Parallel: x += attn(pre_a(x)) + ffn(pre_f(x)), and without a pre_f of its
/// own the FFN reads pre_a(x).
struct LayerSpec {
  AttentionSpec attention;
  FfnSpec ffn;
  bool parallel = false;
  std::optional<NormSpec> attention_pre_norm;
  std::optional<NormSpec> attention_post_norm;
  std::optional<NormSpec> ffn_pre_norm;
  std::optional<NormSpec> ffn_post_norm;

  [[nodiscard]] const GroupedQueryAttention& gqa() const {
    return std::get<GroupedQueryAttention>(attention);
  }
  [[nodiscard]] const DenseFfn& dense_ffn() const { return std::get<DenseFfn>(ffn); }
};

/// Angle of pair i at position p is p * frequencies[i]; cos and sin are times attention_factor.
struct RopeTableSpec {
  std::vector<double> frequencies;  ///< [r / 2], r = rotated dims of a head
  double attention_factor = 1.0;

  bool operator==(const RopeTableSpec&) const = default;
};

/// Layers that share a block table. All groups are of equal size (ModelSpec::layers_per_group), so
/// that a block of any group takes the same bytes; a group with fewer layers leaves slots unused.
struct CacheGroup {
  CacheKind kind = CacheKind::kPagedKv;
  MaskSpec mask;
  std::vector<int> layers;  ///< layer indices; the position in this list is the slot in a block
};

struct ModelSpec {
  std::string architecture;  ///< as the config names it
  int64_t vocab_size = 0;    ///< V
  int64_t hidden_size = 0;   ///< M
  /// Positions that the model can stand at, rope scaling included.
  int64_t max_positions = 0;

  float embedding_scale = 1.0f;
  bool tied_embeddings = false;    ///< the head is the embedding table
  bool learned_positions = false;  ///< a table of max_positions rows is added to the embeddings
  float residual_multiplier = 1.0f;

  NormSpec final_norm;
  float logit_scale = 1.0f;
  float logit_softcap = 0.0f;  ///< 0 = none

  std::vector<RopeTableSpec> rope_tables;
  std::vector<LayerSpec> layers;

  // Derived by FinishSpec.
  std::vector<CacheGroup> cache_groups;
  int64_t layers_per_group = 0;

  /// Values (keys and values together) that a token leaves in one layer of any group.
  [[nodiscard]] int64_t KvValuesPerTokenLayer() const;
  /// Bytes of one block of one group: block_tokens * layers_per_group layers.
  [[nodiscard]] int64_t KvBlockBytes(int64_t block_tokens, DType kv_dtype) const;
  /// Bytes that a token leaves in all layers together while none is given back.
  [[nodiscard]] int64_t KvBytesPerToken(DType kv_dtype) const;
};

/// Cuts the layers into cache groups of equal size. Layers of one mask are grouped in order; the
/// size is the largest that leaves at most an eighth of all slots unused, and divides every count
/// where none larger does.
void AssignCacheGroups(ModelSpec& spec);

}  // namespace kvasir::model
