// Shapes of the families with experts, latents and linear states, from config.json or GGUF's
// metadata. Field by field as the families' own code in Hugging Face transformers reads them.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "plan/model_readers.h"
#include "plan/shape_builder.h"

namespace kvasir::plan {
namespace {

using model::ConfigReader;
using model::Key;

constexpr int64_t kLayersMost = 1024;
// Of a row, a head or a list of experts: far more than there are, and sums that do not overflow.
constexpr int64_t kWidthMost = int64_t{1} << 24;
constexpr int64_t kExpertsMost = int64_t{1} << 16;

enum class Sparse : uint8_t {
  kAll,          ///< every layer has experts
  kAfterDense,   ///< all but the first first_k_dense_replace
  kQwenStep,     ///< decoder_sparse_step and mlp_only_layers
  kInterleaved,  ///< moe_layers or interleave_moe_layer_step (Llama 4)
  kErnieRange,   ///< moe_layer_start_index ... end_index, each moe_layer_interval-th
};

enum class QkNorms : uint8_t { kNone, kPerHead, kWholeRow, kPerHeadIfUsed };

struct Family {
  std::array<std::string_view, 5> hf;  ///< architectures[0] and model_type
  std::string_view gguf;
  Sparse sparse = Sparse::kAfterDense;
  std::string_view experts_key = "num_experts";  ///< of config.json
  bool dense_too = false;                        ///< a config without experts is a model without
  bool latent = false;                           ///< MLA
  bool indexed = false;                          ///< and an index over all positions
  bool linear = false;                           ///< gated delta-net layers among the full ones
  bool gated_query = false;                      ///< q_proj holds a gate as wide as q
  bool sinks = false;        ///< and biases on experts, router and output (gpt-oss)
  bool query_bias = false;   ///< q, k, v always
  bool output_bias = false;  ///< o has one where attention_bias is set
  QkNorms qk_norms = QkNorms::kNone;
  bool correction_bias = false;  ///< the router has one value an expert beside its matrix
  bool shared_gate = false;
  bool chunked = false;  ///< layers see a chunk, not a window (Llama 4)
  /// The experts' width is intermediate_size itself.
  bool plain_expert_size = false;
  bool all_windowed = false;  ///< where sliding_window is set, every layer has that window
};

constexpr std::array kFamilies = {
    Family{.hf = {"MixtralForCausalLM", "mixtral"},
           .gguf = "llama",
           .sparse = Sparse::kAll,
           .experts_key = "num_local_experts",
           .plain_expert_size = true,
           .all_windowed = true},
    Family{.hf = {"MiniMaxM2ForCausalLM", "minimax_m2"},
           .gguf = "minimax-m2",
           .sparse = Sparse::kAll,
           .experts_key = "num_local_experts",
           .qk_norms = QkNorms::kWholeRow,
           .correction_bias = true,
           .plain_expert_size = true},
    Family{.hf = {"Qwen2MoeForCausalLM", "qwen2_moe"},
           .gguf = "qwen2moe",
           .sparse = Sparse::kQwenStep,
           .query_bias = true,
           .shared_gate = true},
    Family{.hf = {"Qwen3MoeForCausalLM", "qwen3_moe"},
           .gguf = "qwen3moe",
           .sparse = Sparse::kQwenStep,
           .output_bias = true,
           .qk_norms = QkNorms::kPerHead},
    Family{.hf = {"Qwen3NextForCausalLM", "qwen3_next"},
           .gguf = "qwen3next",
           .sparse = Sparse::kQwenStep,
           .linear = true,
           .gated_query = true,
           .output_bias = true,
           .qk_norms = QkNorms::kPerHead,
           .shared_gate = true},
    Family{
        .hf = {"Qwen3_5ForCausalLM", "qwen3_5_text", "Qwen3_5ForConditionalGeneration", "qwen3_5"},
        .gguf = "qwen35",
        .sparse = Sparse::kQwenStep,
        .dense_too = true,
        .linear = true,
        .gated_query = true,
        .output_bias = true,
        .qk_norms = QkNorms::kPerHead},
    Family{.hf = {"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", "Qwen3_5MoeForConditionalGeneration",
                  "qwen3_5_moe"},
           .gguf = "qwen35moe",
           .sparse = Sparse::kQwenStep,
           .linear = true,
           .gated_query = true,
           .output_bias = true,
           .qk_norms = QkNorms::kPerHead,
           .shared_gate = true},
    Family{.hf = {"GptOssForCausalLM", "gpt_oss"},
           .gguf = "gpt-oss",
           .sparse = Sparse::kAll,
           .experts_key = "num_local_experts",
           .sinks = true,
           .output_bias = true,
           .plain_expert_size = true},
    Family{.hf = {"Glm4MoeForCausalLM", "glm4_moe"},
           .gguf = "glm4moe",
           .experts_key = "n_routed_experts",
           .qk_norms = QkNorms::kPerHeadIfUsed,
           .correction_bias = true},
    Family{.hf = {"Glm4MoeLiteForCausalLM", "glm4_moe_lite"},
           .gguf = {},
           .experts_key = "n_routed_experts",
           .latent = true,
           .correction_bias = true},
    Family{.hf = {"GlmMoeDsaForCausalLM", "glm_moe_dsa"},
           .gguf = "glm-dsa",
           .experts_key = "n_routed_experts",
           .latent = true,
           .indexed = true,
           .correction_bias = true},
    Family{.hf = {"DeepseekV2ForCausalLM", "deepseek_v2"},
           .gguf = {},
           .experts_key = "n_routed_experts",
           .latent = true},
    Family{.hf = {"DeepseekV3ForCausalLM", "deepseek_v3", "kimi_k2",
                  "KimiK25ForConditionalGeneration", "kimi_k25"},
           .gguf = "deepseek2",
           .experts_key = "n_routed_experts",
           .latent = true,
           .correction_bias = true},
    Family{.hf = {"DeepseekV32ForCausalLM", "deepseek_v32"},
           .gguf = "deepseek32",
           .experts_key = "n_routed_experts",
           .latent = true,
           .indexed = true,
           .correction_bias = true},
    Family{.hf = {"Llama4ForCausalLM", "llama4_text", "Llama4ForConditionalGeneration", "llama4"},
           .gguf = "llama4",
           .sparse = Sparse::kInterleaved,
           .experts_key = "num_local_experts",
           .output_bias = true,
           .chunked = true,
           .plain_expert_size = true},
    Family{.hf = {"Ernie4_5_MoeForCausalLM", "ernie4_5_moe"},
           .gguf = "ernie4_5-moe",
           .sparse = Sparse::kErnieRange,
           .experts_key = "moe_num_experts",
           .correction_bias = true},
};

const Family* FindFamily(const ConfigReader& reader) {
  const std::string& name = reader.architecture();
  if (name.empty()) return nullptr;
  const auto* found = std::find_if(kFamilies.begin(), kFamilies.end(), [&](const Family& family) {
    if (reader.is_gguf()) return family.gguf == name;
    return std::find(family.hf.begin(), family.hf.end(), name) != family.hf.end();
  });
  return found == kFamilies.end() ? nullptr : found;
}

class ExpertsReader {
 public:
  ExpertsReader(const Family& family, ConfigReader& reader) : family_(family), reader_(reader) {}

  Result<ModelShape> Read() {
    ReadSizes();
    KVASIR_RETURN_IF_ERROR(reader_.status());
    if (family_.latent) ReadLatent();
    if (family_.linear) ReadLinear();
    ReadExperts();
    CheckSize();
    const std::vector<LayerKind> kinds = ReadLayerKinds();
    KVASIR_RETURN_IF_ERROR(reader_.status());
    AddWeights(shape_, Part::kEmbedding, shape_.vocab_size, hidden_);
    std::vector<int64_t> windows;
    for (int64_t i = 0; i < shape_.layers_count; ++i) {
      const LayerKind kind = kinds[static_cast<size_t>(i)];
      AddAttention(kind);
      AddFeedForward(IsSparse(i));
      AddVector(hidden_, 2);
      if (kind != LayerKind::kLinear) windows.push_back(kind == LayerKind::kWindow ? window_ : 0);
    }
    AddVector(hidden_);
    if (!shape_.tied_embeddings) {
      AddWeights(shape_, Part::kHead, shape_.vocab_size, hidden_);
    }
    if (windows.empty()) {
      reader_.Fail(Key{"layer_types", {}}, "expected at least one layer that is not linear");
    }
    KVASIR_RETURN_IF_ERROR(reader_.status());
    AssignCacheGroups(shape_, windows);
    CountSkipped();
    KVASIR_RETURN_IF_ERROR(reader_.status());
    return std::move(shape_);
  }

 private:
  void CheckWidth(const Key& key, int64_t width) {
    if (width >= 0 && width <= kWidthMost) return;
    reader_.Fail(key, fmt::format("expected at most {}, got {}", kWidthMost, width));
  }
  int64_t Width(const Key& key) {
    const int64_t width = reader_.RequiredInt(key);
    CheckWidth(key, width);
    return std::min(width, kWidthMost);
  }

  void ReadSizes() {
    shape_.architecture = reader_.architecture();
    hidden_ = Width({"hidden_size", "embedding_length"});
    shape_.hidden_size = hidden_;
    next_layers_ = reader_.Int({"num_nextn_predict_layers", "nextn_predict_layers"}, 0);
    shape_.layers_count = reader_.RequiredInt({"num_hidden_layers", "block_count"});
    // GGUF counts them among the blocks.
    if (reader_.is_gguf()) shape_.layers_count -= next_layers_;
    if (shape_.layers_count < 1 || shape_.layers_count > kLayersMost) {
      reader_.Fail({"num_hidden_layers", "block_count"},
                   fmt::format("expected 1 to {}, got {}", kLayersMost, shape_.layers_count));
      shape_.layers_count = 1;
    }
    shape_.vocab_size = VocabSize();
    shape_.max_positions =
        std::max<int64_t>(1, reader_.Int({"max_position_embeddings", "context_length"}, 4096));
    query_heads_ = Width({"num_attention_heads", "attention.head_count"});
    kv_heads_ = reader_.Int({"num_key_value_heads", "attention.head_count_kv"}, query_heads_);
    if (kv_heads_ < 1 || query_heads_ % kv_heads_ != 0) {
      reader_.Fail(
          {"num_key_value_heads", "attention.head_count_kv"},
          fmt::format("expected a divisor of {} query heads, got {}", query_heads_, kv_heads_));
    }
    head_dim_ = reader_.Int({"head_dim", "attention.key_length"}, 0);
    if (head_dim_ == 0) head_dim_ = std::max<int64_t>(1, hidden_ / query_heads_);
    CheckWidth({"head_dim", "attention.key_length"}, head_dim_);
    shape_.tied_embeddings = reader_.is_gguf() ? reader_.weights().Find("output.weight") == nullptr
                                               : reader_.Bool({"tie_word_embeddings", {}}, false);
    window_ = family_.chunked ? reader_.Int({"attention_chunk_size", {}}, 8192)
                              : reader_.Int({"sliding_window", "attention.sliding_window"}, 0);
  }

  // Widths that are possible one by one may be none together.
  void CheckSize() {
    constexpr double kParametersMost = 1e15;
    const int64_t head = std::max({head_dim_, nope_dim_ + rope_dim_, value_dim_});
    const double cols = static_cast<double>(query_heads_) * static_cast<double>(head);
    if (cols > static_cast<double>(kWidthMost)) {
      reader_.Fail({"num_attention_heads", "attention.head_count"},
                   fmt::format("expected at most {} values in all heads together, got {} x {}",
                               kWidthMost, query_heads_, head));
    }
    const double linear = static_cast<double>(linear_value_heads_) *
                          static_cast<double>(std::max(linear_value_dim_, linear_key_dim_));
    const double experts = static_cast<double>(std::max<int64_t>(1, experts_));
    const double widths = 4 * cols + 4 * linear + static_cast<double>(dense_size_ + shared_size_) +
                          experts * static_cast<double>(expert_size_);
    const double parameters =
        3 * widths * static_cast<double>(hidden_) * static_cast<double>(shape_.layers_count);
    if (parameters > kParametersMost) {
      reader_.Fail({"hidden_size", "embedding_length"},
                   fmt::format("expected a model of at most {:g} parameters, got about {:.2g}",
                               kParametersMost, parameters));
    }
  }

  int64_t VocabSize() {
    if (reader_.is_gguf() && !reader_.Has({{}, "vocab_size"})) {
      const TensorView* table = reader_.weights().Find("token_embd.weight");
      if (table != nullptr && table->shape.size() == 2) return table->dim(0);
    }
    return Width({"vocab_size", "vocab_size"});
  }

  void ReadLatent() {
    const Key q_rank{"q_lora_rank", "attention.q_lora_rank"};
    q_rank_ = reader_.Int(q_rank, 0);
    CheckWidth(q_rank, q_rank_);
    kv_rank_ = Width({"kv_lora_rank", "attention.kv_lora_rank"});
    rope_dim_ = Width({"qk_rope_head_dim", "rope.dimension_count"});
    nope_dim_ = reader_.is_gguf() ? Width({{}, "attention.key_length_mla"}) - rope_dim_
                                  : Width({"qk_nope_head_dim", {}});
    value_dim_ = Width({"v_head_dim", "attention.value_length_mla"});
    if (!family_.indexed) return;
    index_heads_ = Width({"index_n_heads", "attention.indexer.head_count"});
    index_dim_ = Width({"index_head_dim", "attention.indexer.key_length"});
    index_top_ = Width({"index_topk", "attention.indexer.top_k"});
  }

  void ReadLinear() {
    const Key key_heads{"linear_num_key_heads", "ssm.group_count"};
    linear_key_heads_ = Width(key_heads);
    linear_value_heads_ = Width({"linear_num_value_heads", "ssm.time_step_rank"});
    linear_key_dim_ = Width({"linear_key_head_dim", "ssm.state_size"});
    linear_value_dim_ = reader_.is_gguf() ? Width({{}, "ssm.inner_size"}) / linear_value_heads_
                                          : Width({"linear_value_head_dim", {}});
    const Key kernel{"linear_conv_kernel_dim", "ssm.conv_kernel"};
    conv_kernel_ = reader_.Has(kernel) ? Width(kernel) : 4;
  }

  void ReadExperts() {
    std::string_view given;  // as this config calls it
    for (const std::string_view key :
         {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}) {
      if (given.empty() && reader_.Has({key, {}})) given = key;
      experts_ = std::max(experts_, reader_.Int({key, {}}, 0));
    }
    experts_ = std::max(experts_, reader_.Int({{}, "expert_count"}, 0));
    if (experts_ == 0) {
      if (!family_.dense_too) {
        const bool missing = given.empty() && !reader_.Has({{}, "expert_count"});
        reader_.Fail(Key{given.empty() ? family_.experts_key : given, "expert_count"},
                     missing ? "expected an integer, but the key is missing"
                             : "expected an integer of at least 1, got 0");
      }
    } else {
      used_ = reader_.Has({"moe_k", {}})
                  ? reader_.RequiredInt({"moe_k", {}})
                  : reader_.RequiredInt({"num_experts_per_tok", "expert_used_count"});
      if (used_ > experts_) {
        reader_.Fail({"num_experts_per_tok", "expert_used_count"},
                     fmt::format("expected at most {} experts, got {}", experts_, used_));
      }
      const Key width{family_.plain_expert_size ? "intermediate_size" : "moe_intermediate_size",
                      reader_.Has({{}, "expert_feed_forward_length"}) ? "expert_feed_forward_length"
                                                                      : "feed_forward_length"};
      expert_size_ = Width(width);
      if (experts_ > kExpertsMost) {
        reader_.Fail(Key{given, "expert_count"},
                     fmt::format("expected at most {}, got {}", kExpertsMost, experts_));
      }
    }
    const std::string_view dense =
        reader_.Has({"intermediate_size_mlp", {}}) ? "intermediate_size_mlp" : "intermediate_size";
    dense_size_ = reader_.Int({dense, "feed_forward_length"}, 0);
    CheckWidth({dense, "feed_forward_length"}, dense_size_);
    ReadSharedExpert();
    first_dense_ = reader_.Int({"first_k_dense_replace", "leading_dense_block_count"}, 0);
    if (first_dense_ < 0 || first_dense_ > shape_.layers_count) {
      reader_.Fail(
          {"first_k_dense_replace", "leading_dense_block_count"},
          fmt::format("expected 0 to {}, the layers, got {}", shape_.layers_count, first_dense_));
    }
    // Every layer but the dense ones, in all that were published.
    if (const int64_t every = reader_.Int({"moe_layer_freq", {}}, 1); every != 1) {
      reader_.Fail(Key{"moe_layer_freq", {}}, fmt::format("expected 1, got {}", every));
    }
    sparse_step_ = std::max<int64_t>(
        1, reader_.Int({family_.sparse == Sparse::kInterleaved ? "interleave_moe_layer_step"
                                                               : "decoder_sparse_step",
                        "interleave_moe_layer_step"},
                       1));
    const std::string_view list =
        family_.sparse == Sparse::kInterleaved ? "moe_layers" : "mlp_only_layers";
    listed_layers_ = reader_.Ints({list, {}});
    listed_ = reader_.Has({list, {}});
    if (const nlohmann::json* types = reader_.HfValue("mlp_layer_types"); types != nullptr) {
      if (!types->is_array() || static_cast<int64_t>(types->size()) != shape_.layers_count) {
        reader_.Fail(Key{"mlp_layer_types", {}},
                     fmt::format("expected a list of {} names, one a layer", shape_.layers_count));
      } else {
        for (const nlohmann::json& type : *types) sparse_layers_.push_back(type == "sparse");
      }
    }
  }

  void ReadSharedExpert() {
    if (family_.chunked) {
      shared_size_ = expert_size_;  // Llama 4
      return;
    }
    const Key width{"shared_expert_intermediate_size", "expert_shared_feed_forward_length"};
    const std::string_view count =
        reader_.Has({"moe_num_shared_experts", {}}) ? "moe_num_shared_experts" : "n_shared_experts";
    shared_size_ =
        reader_.Has(width)
            ? reader_.Int(width, 0)
            : std::min(reader_.Int({count, "expert_shared_count"}, 0), kWidthMost) * expert_size_;
    CheckWidth(width, shared_size_);
  }

  std::vector<LayerKind> ReadLayerKinds() {
    const auto count = static_cast<size_t>(shape_.layers_count);
    const LayerKind usual = family_.latent ? LayerKind::kLatent : LayerKind::kFull;
    std::vector<LayerKind> kinds(count, usual);
    const Key key{"layer_types", {}};
    if (const nlohmann::json* types = reader_.HfValue("layer_types"); types != nullptr) {
      if (!types->is_array() || types->size() != count) {
        reader_.Fail(key, fmt::format("expected a list of {} names, one a layer", count));
        return kinds;
      }
      for (size_t i = 0; i < count; ++i) {
        const nlohmann::json& type = (*types)[i];
        if (type == "sliding_attention" || type == "chunked_attention") {
          kinds[i] = LayerKind::kWindow;
        } else if (type == "linear_attention") {
          kinds[i] = LayerKind::kLinear;
        } else if (type != "full_attention" && type != "indexed_attention") {
          reader_.Fail(key, fmt::format("layer {}: expected full_attention, sliding_attention, "
                                        "chunked_attention or linear_attention",
                                        i));
          return kinds;
        }
      }
    } else {
      // What the families do where no list says it: linear but for each fourth, chunked but for
      // each fourth, windowed on the even ones.
      const int64_t interval = std::max<int64_t>(
          1, reader_.Int({"full_attention_interval", "full_attention_interval"}, 4));
      for (size_t i = 0; i < count; ++i) {
        const auto layer = static_cast<int64_t>(i);
        if (family_.linear && (layer + 1) % interval != 0) kinds[i] = LayerKind::kLinear;
        if (family_.chunked && (layer + 1) % 4 != 0) kinds[i] = LayerKind::kWindow;
        if (family_.sinks && layer % 2 == 0) kinds[i] = LayerKind::kWindow;
        if (family_.all_windowed && window_ > 0) kinds[i] = LayerKind::kWindow;
      }
    }
    const bool windowed = std::find(kinds.begin(), kinds.end(), LayerKind::kWindow) != kinds.end();
    const bool linear = std::find(kinds.begin(), kinds.end(), LayerKind::kLinear) != kinds.end();
    if (windowed && window_ < 1) {
      reader_.Fail(
          {family_.chunked ? "attention_chunk_size" : "sliding_window", "attention.sliding_window"},
          "expected at least 1, as layers with a window are listed");
    }
    if (linear && !family_.linear) reader_.Fail(key, "linear layers in a family that has none");
    return kinds;
  }

  [[nodiscard]] bool IsSparse(int64_t layer) {
    if (experts_ == 0) return false;
    if (!sparse_layers_.empty()) return sparse_layers_[static_cast<size_t>(layer)];
    const bool is_listed =
        std::find(listed_layers_.begin(), listed_layers_.end(), layer) != listed_layers_.end();
    switch (family_.sparse) {
      case Sparse::kAll:
        return true;
      case Sparse::kAfterDense:
        return layer >= first_dense_;
      case Sparse::kQwenStep:
        return !is_listed && (layer + 1) % sparse_step_ == 0;
      case Sparse::kInterleaved:
        return listed_ ? is_listed : (layer + 1) % sparse_step_ == 0;
      case Sparse::kErnieRange: {
        if (reader_.is_gguf()) return layer >= first_dense_;
        const int64_t start = reader_.Int({"moe_layer_start_index", {}}, 1);
        const auto ends = reader_.HfValue("moe_layer_end_index");
        // -1 is the last layer.
        const int64_t end = ends != nullptr && *ends == -1
                                ? shape_.layers_count - 1
                                : reader_.Int({"moe_layer_end_index", {}}, shape_.layers_count - 1);
        const int64_t interval = std::max<int64_t>(1, reader_.Int({"moe_layer_interval", {}}, 1));
        return layer >= start && layer <= end && (layer + 1) % interval == 0;
      }
    }
    return false;
  }

  void AddVector(int64_t size, int64_t count = 1) {
    AddWeights(shape_, Part::kNorms, 1, size, count);
  }

  void AddAttention(LayerKind kind) {
    if (kind == LayerKind::kLinear) {
      AddLinearAttention();
    } else if (kind == LayerKind::kLatent) {
      AddLatentAttention();
    } else {
      AddGroupedAttention(kind);
    }
  }

  void AddGroupedAttention(LayerKind kind) {
    const int64_t query_cols = query_heads_ * head_dim_;
    const int64_t kv_cols = kv_heads_ * head_dim_;
    AddWeights(shape_, Part::kAttention, (family_.gated_query ? 2 : 1) * query_cols, hidden_);
    AddWeights(shape_, Part::kAttention, kv_cols, hidden_, 2);
    AddWeights(shape_, Part::kAttention, hidden_, query_cols);
    const bool bias = family_.query_bias || family_.sinks ||
                      (!reader_.is_gguf() && reader_.Bool({"attention_bias", {}}, false));
    if (bias) {
      AddVector((family_.gated_query ? 2 : 1) * query_cols);
      AddVector(kv_cols, 2);
      if (family_.output_bias) AddVector(hidden_);
    }
    if (family_.sinks) AddVector(query_heads_);
    const bool per_head =
        family_.qk_norms == QkNorms::kPerHead ||
        (family_.qk_norms == QkNorms::kPerHeadIfUsed &&
         (reader_.is_gguf() ? reader_.weights().Find("blk.0.attn_q_norm.weight") != nullptr
                            : reader_.Bool({"use_qk_norm", {}}, false)));
    if (per_head) AddVector(head_dim_, 2);
    if (family_.qk_norms == QkNorms::kWholeRow) {
      AddVector(query_cols);
      AddVector(kv_cols);
    }
    LayerShape layer;
    layer.query_heads = query_heads_;
    layer.kv_heads = kv_heads_;
    layer.key_dim = layer.value_dim = head_dim_;
    SetWindow(layer, kind == LayerKind::kWindow ? window_ : 0, shape_.max_positions);
    layer.cached_values = 2 * kv_cols;
    AddLayer(shape_, layer);
  }

  void AddLatentAttention() {
    const int64_t query_cols = query_heads_ * (nope_dim_ + rope_dim_);
    if (q_rank_ > 0) {
      AddWeights(shape_, Part::kAttention, q_rank_, hidden_);
      AddVector(q_rank_);
      AddWeights(shape_, Part::kAttention, query_cols, q_rank_);
    } else {
      AddWeights(shape_, Part::kAttention, query_cols, hidden_);
    }
    AddWeights(shape_, Part::kAttention, kv_rank_ + rope_dim_, hidden_);
    AddVector(kv_rank_);
    AddWeights(shape_, Part::kAttention, query_heads_ * (nope_dim_ + value_dim_), kv_rank_);
    AddWeights(shape_, Part::kAttention, hidden_, query_heads_ * value_dim_);
    LayerShape layer;
    layer.kind = LayerKind::kLatent;
    layer.query_heads = query_heads_;
    layer.kv_heads = 1;
    layer.key_dim = kv_rank_ + rope_dim_;
    layer.value_dim = kv_rank_;
    layer.cached_values = kv_rank_ + rope_dim_;
    layer.expanded_dims = nope_dim_ + rope_dim_ + value_dim_;
    layer.expanding_values = query_heads_ * (nope_dim_ + value_dim_) * kv_rank_;
    if (index_heads_ > 0) {
      AddWeights(shape_, Part::kAttention, index_heads_ * index_dim_, q_rank_);
      AddWeights(shape_, Part::kAttention, index_dim_, hidden_);
      AddWeights(shape_, Part::kAttention, index_heads_, hidden_);
      AddVector(index_dim_, 2);
      layer.attended_tokens = index_top_;
      layer.cached_values += index_dim_;
    }
    AddLayer(shape_, layer);
  }

  // Gated delta-net: q, k, v and an output gate, a convolution over q, k, v, a decay and a step
  // width a value head.
  void AddLinearAttention() {
    const int64_t value_cols = linear_value_heads_ * linear_value_dim_;
    const int64_t conv_cols = 2 * linear_key_heads_ * linear_key_dim_ + value_cols;
    AddWeights(shape_, Part::kAttention, conv_cols + value_cols, hidden_);
    AddWeights(shape_, Part::kAttention, 2 * linear_value_heads_, hidden_);
    AddWeights(shape_, Part::kAttention, hidden_, value_cols);
    AddVector(conv_cols * conv_kernel_);
    AddVector(linear_value_heads_, 2);
    AddVector(linear_value_dim_);
    LayerShape layer;
    layer.kind = LayerKind::kLinear;
    layer.query_heads = linear_value_heads_;
    layer.kv_heads = linear_key_heads_;
    layer.key_dim = linear_key_dim_;
    layer.value_dim = linear_value_dim_;
    layer.state_bytes = 4 * linear_value_heads_ * linear_key_dim_ * linear_value_dim_ +
                        2 * (conv_kernel_ - 1) * conv_cols;
    AddLayer(shape_, layer);
  }

  void AddFeedForward(bool sparse) {
    if (!sparse) {
      if (dense_size_ < 1) {
        reader_.Fail({"intermediate_size", "feed_forward_length"},
                     "expected an integer above 0, as layers without experts are there");
      }
      AddWeights(shape_, Part::kFfn, dense_size_, hidden_, 2);
      AddWeights(shape_, Part::kFfn, hidden_, dense_size_);
      return;
    }
    shape_.experts.experts_count = experts_;
    shape_.experts.used_count = used_;
    shape_.experts.layers_count += 1;
    AddWeights(shape_, Part::kExperts, expert_size_, hidden_, 2 * experts_);
    AddWeights(shape_, Part::kExperts, hidden_, expert_size_, experts_);
    AddWeights(shape_, Part::kRouter, experts_, hidden_);
    if (family_.sinks) {
      AddVector(experts_);
      AddVector(2 * expert_size_, experts_);
      AddVector(hidden_, experts_);
    }
    if (family_.correction_bias) AddVector(experts_);
    if (shared_size_ > 0) {
      AddWeights(shape_, Part::kSharedExpert, shared_size_, hidden_, 2);
      AddWeights(shape_, Part::kSharedExpert, hidden_, shared_size_);
      if (family_.shared_gate) AddWeights(shape_, Part::kRouter, 1, hidden_);
    }
  }

  // A layer of multi-token prediction: an ordinary one with a projection of [2 M] to [M], three
  // norms, and its own copies of table and head.
  void CountSkipped() {
    if (next_layers_ == 0) return;
    const int64_t before = shape_.ParametersCount();
    ModelShape kept = shape_;
    AddAttention(family_.latent ? LayerKind::kLatent : LayerKind::kFull);
    AddFeedForward(experts_ > 0);
    const int64_t layer = shape_.ParametersCount() - before;
    shape_ = std::move(kept);
    shape_.skipped_values = next_layers_ * (layer + 2 * hidden_ * hidden_ + 5 * hidden_ +
                                            2 * shape_.vocab_size * hidden_);
  }

  const Family& family_;
  ConfigReader& reader_;
  ModelShape shape_;
  int64_t hidden_ = 0;
  int64_t query_heads_ = 0;
  int64_t kv_heads_ = 0;
  int64_t head_dim_ = 0;
  int64_t window_ = 0;
  int64_t next_layers_ = 0;
  // MLA
  int64_t q_rank_ = 0;
  int64_t kv_rank_ = 0;
  int64_t nope_dim_ = 0;
  int64_t rope_dim_ = 0;
  int64_t value_dim_ = 0;
  int64_t index_heads_ = 0;
  int64_t index_dim_ = 0;
  int64_t index_top_ = 0;
  // linear layers
  int64_t linear_key_heads_ = 0;
  int64_t linear_value_heads_ = 0;
  int64_t linear_key_dim_ = 0;
  int64_t linear_value_dim_ = 0;
  int64_t conv_kernel_ = 0;
  // experts
  int64_t experts_ = 0;
  int64_t used_ = 0;
  int64_t expert_size_ = 0;
  int64_t shared_size_ = 0;
  int64_t dense_size_ = 0;
  int64_t first_dense_ = 0;
  int64_t sparse_step_ = 1;
  bool listed_ = false;
  std::vector<int64_t> listed_layers_;
  std::vector<bool> sparse_layers_;
};

}  // namespace

bool IsExpertsFamily(ConfigReader& reader) {
  const Family* family = FindFamily(reader);
  if (family == nullptr) return false;
  // GGUF calls both the dense models and Mixtral "llama".
  return !reader.is_gguf() || family->gguf != "llama" || reader.Int({{}, "expert_count"}, 0) > 0;
}

std::string ExpertsFamilyNames(bool gguf) {
  std::string names;
  for (const Family& family : kFamilies) {
    const std::string_view name = gguf ? family.gguf : family.hf[0];
    if (!name.empty() && name != "llama") names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

Result<ModelShape> ReadExpertsShape(ConfigReader& reader) {
  KVASIR_RETURN_IF_ERROR(reader.status());
  const Family* family = FindFamily(reader);
  KVASIR_CHECK(family != nullptr, "{}", reader.architecture());
  return ExpertsReader(*family, reader).Read();
}

}  // namespace kvasir::plan
