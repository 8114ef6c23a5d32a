#include "model/model.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "model/binder.h"
#include "model/blueprint.h"

namespace kvasir::model {

Result<std::unique_ptr<Model>> Model::Load(const files::ModelFiles& files,
                                           kernels::Backend& backend, const LoadOptions& options) {
  if (files.weights() == nullptr) {
    return MakeError(ErrorCode::kNotFound, "{}: holds no weights (*.safetensors or .gguf)",
                     files.path.string());
  }
  ConfigReader reader(files, options.max_model_len);
  KVASIR_ASSIGN_OR_RETURN(Blueprint blueprint, MakeBlueprint(reader));
  KVASIR_ASSIGN_OR_RETURN(BoundWeights weights,
                          BindWeights(blueprint, *files.weights(), backend, options.progress));
  return std::unique_ptr<Model>(new Model(std::move(blueprint.spec), std::move(weights), backend));
}

Model::Model(ModelSpec spec, BoundWeights weights, kernels::Backend& backend)
    : spec_(std::move(spec)),
      weights_(std::move(weights)),
      backend_(backend),
      weights_bytes_(weights_.packed_bytes),
      group_of_layer_(spec_.layers.size()),
      sequences_(spec_.cache_groups.size()) {
  for (size_t group = 0; group < spec_.cache_groups.size(); ++group) {
    for (const int layer : spec_.cache_groups[group].layers) {
      group_of_layer_[static_cast<size_t>(layer)] = group;
    }
  }
  for (const RopeTableSpec& table : spec_.rope_tables) rope_tables_.emplace_back(table);
}

const float* Model::Forward(std::span<const ForwardSequence> batch,
                            std::span<const kernels::KvView> kv) {
  KVASIR_CHECK(kv.size() == spec_.layers.size(), "{} views for {} layers", kv.size(),
               spec_.layers.size());
  Embed(batch);
  for (size_t i = 0; i < spec_.layers.size(); ++i) RunLayer(i, kv[i]);
  float* hidden = workspace_.normed.Reserve(tokens_count_ * spec_.hidden_size);
  RunNorm(spec_.final_norm, weights_.final_norm, workspace_.residual.data(), hidden);
  return hidden;
}

void Model::Embed(std::span<const ForwardSequence> batch) {
  positions_.clear();
  for (auto& sequences : sequences_) sequences.clear();
  int64_t positions_end = 0;
  for (const ForwardSequence& sequence : batch) {
    KVASIR_CHECK(sequence.block_tables.size() == sequences_.size(), "{} block tables for {} groups",
                 sequence.block_tables.size(), sequences_.size());
    const auto rows = static_cast<int64_t>(sequence.tokens.size());
    const auto first_row = static_cast<int64_t>(positions_.size());
    for (size_t group = 0; group < sequences_.size(); ++group) {
      sequences_[group].push_back({first_row, rows, sequence.start, sequence.block_tables[group]});
    }
    for (int64_t i = 0; i < rows; ++i) positions_.push_back(sequence.start + i);
    positions_end = std::max(positions_end, sequence.start + rows);
  }
  tokens_count_ = static_cast<int64_t>(positions_.size());
  KVASIR_CHECK(!spec_.learned_positions || positions_end <= spec_.max_positions,
               "position {} of a model with {} learned positions", positions_end - 1,
               spec_.max_positions);
  for (RopeTable& table : rope_tables_) table.Grow(positions_end);

  const int64_t hidden_size = spec_.hidden_size;
  float* x = workspace_.residual.Reserve(tokens_count_ * hidden_size);
  const auto row_of = [&](int64_t row) {
    return std::span<float>(x + row * hidden_size, static_cast<size_t>(hidden_size));
  };
  tokens_.clear();
  for (const ForwardSequence& sequence : batch) {
    for (const int32_t token : sequence.tokens) {
      KVASIR_CHECK(token >= 0 && token < spec_.vocab_size, "token {} of a vocabulary of {}", token,
                   spec_.vocab_size);
      tokens_.push_back(token);
    }
  }
  if (weights_.embedding_in_head) {
    backend_.Gather({.weight = weights_.head.matrices.front().get(),
                     .rows = tokens_,
                     .y = x,
                     .ldy = hidden_size});
  } else {
    int64_t row = 0;
    for (const int32_t token : tokens_) DequantizeRow(weights_.embedding, token, row_of(row++));
  }
  if (spec_.embedding_scale != 1.0f) {
    backend_.Scale({.x = x,
                    .ldx = hidden_size,
                    .tokens_count = tokens_count_,
                    .cols = hidden_size,
                    .scale = spec_.embedding_scale});
  }
  if (spec_.learned_positions) {
    float* learned = workspace_.branch.Reserve(tokens_count_ * hidden_size);
    for (int64_t i = 0; i < tokens_count_; ++i) {
      DequantizeRow(weights_.positions, positions_[static_cast<size_t>(i)],
                    {learned + i * hidden_size, static_cast<size_t>(hidden_size)});
    }
    backend_.Add({.x = x,
                  .y = learned,
                  .ldx = hidden_size,
                  .ldy = hidden_size,
                  .tokens_count = tokens_count_,
                  .cols = hidden_size});
  }
}

void Model::RunNorm(const NormSpec& spec, const BoundNorm& norm, const float* x, float* y) {
  backend_.Norm({.kind = spec.kind,
                 .x = x,
                 .y = y,
                 .ldx = spec_.hidden_size,
                 .ldy = spec_.hidden_size,
                 .tokens_count = tokens_count_,
                 .cols = spec_.hidden_size,
                 .weight = norm.weight.data(),
                 .bias = norm.bias.empty() ? nullptr : norm.bias.data(),
                 .eps = spec.eps});
}

void Model::AddResidual(const float* y) {
  backend_.Add({.x = workspace_.residual.data(),
                .y = y,
                .ldx = spec_.hidden_size,
                .ldy = spec_.hidden_size,
                .tokens_count = tokens_count_,
                .cols = spec_.hidden_size,
                .scale = spec_.residual_multiplier});
}

void Model::RunLayer(size_t layer_index, const kernels::KvView& kv) {
  const LayerSpec& layer = spec_.layers[layer_index];
  const BoundLayer& bound = weights_.layers[layer_index];
  const int64_t size = tokens_count_ * spec_.hidden_size;
  const float* x = workspace_.residual.data();
  float* normed = workspace_.normed.Reserve(size);
  float* branch = workspace_.branch.Reserve(size);

  const auto pre_norm = [&](const std::optional<NormSpec>& spec, const BoundNorm& norm) {
    if (!spec) return x;
    RunNorm(*spec, norm, x, normed);
    return static_cast<const float*>(normed);
  };
  const auto post_norm = [&](const std::optional<NormSpec>& spec, const BoundNorm& norm, float* y) {
    if (spec) RunNorm(*spec, norm, y, y);
  };

  const float* attention_input = pre_norm(layer.attention_pre_norm, bound.attention_pre_norm);
  RunAttention(layer_index, kv, attention_input, branch);
  post_norm(layer.attention_post_norm, bound.attention_post_norm, branch);
  if (!layer.parallel) AddResidual(branch);

  float* ffn_branch = layer.parallel ? workspace_.second.Reserve(size) : branch;
  const float* ffn_input = layer.parallel && !layer.ffn_pre_norm
                               ? attention_input
                               : pre_norm(layer.ffn_pre_norm, bound.ffn_pre_norm);
  RunFfn(layer_index, ffn_input, ffn_branch);
  post_norm(layer.ffn_post_norm, bound.ffn_post_norm, ffn_branch);
  if (layer.parallel) AddResidual(branch);
  AddResidual(ffn_branch);
}

void Model::RunLinear(const BoundLinear& linear, const float* x, int64_t ldx, int64_t rows_count,
                      float* y) {
  matmul_outputs_.clear();
  int64_t column = 0;
  for (const auto& matrix : linear.matrices) {
    matmul_outputs_.push_back({.weight = matrix.get(),
                               .bias = linear.bias.empty() ? nullptr : linear.bias.data() + column,
                               .y = y + column,
                               .ldy = linear.cols});
    column += matrix->rows;
  }
  backend_.Matmul({.x = x, .ldx = ldx, .tokens_count = rows_count, .outputs = matmul_outputs_});
}

void Model::RunAttention(size_t layer_index, const kernels::KvView& kv, const float* x,
                         float* out) {
  const GroupedQueryAttention& attention = spec_.layers[layer_index].gqa();
  const BoundLayer& bound = weights_.layers[layer_index];
  KVASIR_CHECK(kv.kv_heads == attention.kv_heads && kv.head_dim == attention.head_dim,
               "layer {}: KV view of {} heads of {}", layer_index, kv.kv_heads, kv.head_dim);
  const int64_t query_cols = attention.QueryCols();
  const int64_t qk_cols = query_cols + attention.KvCols();
  const int64_t ld = bound.qkv.cols;
  float* qkv = workspace_.qkv.Reserve(tokens_count_ * ld);
  RunLinear(bound.qkv, x, spec_.hidden_size, tokens_count_, qkv);

  if (attention.qk_norm != QkNorm::kNone) {
    const bool per_head = attention.qk_norm == QkNorm::kPerHead;
    kernels::NormArgs norm{
        .kind = attention.qk_norm_spec.kind,
        .x = qkv,
        .y = qkv,
        .ldx = ld,
        .ldy = ld,
        .tokens_count = tokens_count_,
        .cols = per_head ? qk_cols : query_cols,
        .groups_count = per_head ? attention.query_heads + attention.kv_heads : 1,
        .weight_per_group = per_head,
        .weight = bound.q_norm.data(),
        .eps = attention.qk_norm_spec.eps};
    backend_.Norm(norm);
    if (!per_head) {
      norm.x = norm.y = qkv + query_cols;
      norm.cols = attention.KvCols();
      norm.weight = bound.k_norm.data();
      backend_.Norm(norm);
    }
  }
  if (attention.rope_table) {
    const RopeTable& table = rope_tables_[static_cast<size_t>(*attention.rope_table)];
    // q and k lie side by side, so they rotate as Hq + Hkv heads in one call.
    backend_.Rope({.kind = attention.rope_kind,
                   .x = qkv,
                   .ldx = ld,
                   .tokens_count = tokens_count_,
                   .heads_count = attention.query_heads + attention.kv_heads,
                   .head_dim = attention.head_dim,
                   .rotated_dims = table.rotated_dims(),
                   .positions = positions_.data(),
                   .cos = table.cos(),
                   .sin = table.sin()});
  }
  const auto& sequences = sequences_[group_of_layer_[layer_index]];
  backend_.StoreKv({.k = qkv + query_cols,
                    .v = qkv + qk_cols,
                    .ldk = ld,
                    .ldv = ld,
                    .kv = kv,
                    .sequences = sequences});
  float* heads = workspace_.attention.Reserve(tokens_count_ * query_cols);
  backend_.Attention({.q = qkv,
                      .ldq = ld,
                      .query_heads = attention.query_heads,
                      .kv = kv,
                      .sequences = sequences,
                      .scale = attention.scale,
                      .softcap = attention.softcap,
                      .window = attention.mask.window_tokens,
                      .out = heads,
                      .ldo = query_cols});
  RunLinear(bound.attention_output, heads, query_cols, tokens_count_, out);
}

void Model::RunFfn(size_t layer_index, const float* x, float* out) {
  const DenseFfn& ffn = spec_.layers[layer_index].dense_ffn();
  const BoundLayer& bound = weights_.layers[layer_index];
  const int64_t ld = bound.ffn_input.cols;
  float* hidden = workspace_.ffn.Reserve(tokens_count_ * ld);
  RunLinear(bound.ffn_input, x, spec_.hidden_size, tokens_count_, hidden);
  backend_.Activate({.kind = ffn.activation,
                     .gate = hidden,
                     .up = ffn.gated ? hidden + ffn.hidden_size : nullptr,
                     .y = hidden,
                     .ld_gate = ld,
                     .ld_up = ld,
                     .ldy = ld,
                     .tokens_count = tokens_count_,
                     .cols = ffn.hidden_size});
  RunLinear(bound.ffn_output, hidden, ld, tokens_count_, out);
}

void Model::Logits(std::span<const int64_t> rows, float* logits) {
  const auto count = static_cast<int64_t>(rows.size());
  if (count == 0) return;
  const int64_t hidden_size = spec_.hidden_size;
  float* gathered = workspace_.gathered.Reserve(count * hidden_size);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    KVASIR_CHECK(row >= 0 && row < tokens_count_, "row {} of {}", row, tokens_count_);
    std::copy_n(workspace_.normed.data() + row * hidden_size, hidden_size,
                gathered + i * hidden_size);
  }
  RunLinear(weights_.head, gathered, hidden_size, count, logits);
  if (spec_.logit_scale != 1.0f || spec_.logit_softcap != 0.0f) {
    backend_.Scale({.x = logits,
                    .ldx = spec_.vocab_size,
                    .tokens_count = count,
                    .cols = spec_.vocab_size,
                    .scale = spec_.logit_scale,
                    .softcap = spec_.logit_softcap});
  }
}

}  // namespace kvasir::model
