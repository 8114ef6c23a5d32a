#include "model/binder.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "base/check.h"
#include "files/printable.h"

namespace kvasir::model {
namespace {

std::string WithLayer(std::string_view pattern, size_t layer) {
  std::string name(pattern);
  if (const size_t at = name.find("{}"); at != std::string::npos) {
    name.replace(at, 2, std::to_string(layer));
  }
  return name;
}

/// Row `n` of the output comes from this row of the file: q, k, v of each head in turn become all
/// of q, all of k, all of v.
int64_t StoredRowOfPerHeadQkv(int64_t n, int64_t rows, int64_t head_dim) {
  const int64_t part_rows = rows / 3;
  const int64_t part = n / part_rows;
  const int64_t head = n % part_rows / head_dim;
  return (head * 3 + part) * head_dim + n % head_dim;
}

class Binder {
 public:
  Binder(const Blueprint& blueprint, const files::Weights& weights, kernels::Backend& backend,
         const std::function<void(int64_t, int64_t)>& progress)
      : spec_(blueprint.spec),
        names_(blueprint.names),
        weights_(weights),
        backend_(backend),
        progress_(progress) {
    for (const std::string& name : weights.names()) bytes_total_ += weights.Find(name)->bytes;
  }

  Result<BoundWeights> Bind() {
    KVASIR_ASSIGN_OR_RETURN(bound_.embedding, FindTable(names_.embedding, spec_.vocab_size));
    if (spec_.learned_positions) {
      KVASIR_ASSIGN_OR_RETURN(bound_.positions, FindTable(names_.positions, spec_.max_positions));
    }
    bound_.layers.resize(spec_.layers.size());
    for (size_t i = 0; i < spec_.layers.size(); ++i) KVASIR_RETURN_IF_ERROR(BindLayer(i));
    KVASIR_RETURN_IF_ERROR(
        BindNorm(names_.final_norm, spec_.final_norm, spec_.hidden_size, bound_.final_norm));
    KVASIR_RETURN_IF_ERROR(BindHead());
    KVASIR_RETURN_IF_ERROR(CheckNothingLeft());
    return std::move(bound_);
  }

 private:
  Error TensorError(const std::string& name, std::string_view expected_and_came) const {
    return MakeError(ErrorCode::kDataLoss, "{}: tensor {}: {}", weights_.FileOf(name),
                     files::Printable(name), expected_and_came);
  }

  Result<TensorView> Take(const std::string& name, const Shape& shape) {
    KVASIR_ASSIGN_OR_RETURN(const TensorView* view, weights_.Require(name));
    used_.insert(name);
    if (view->shape != shape) {
      return TensorError(
          name, fmt::format("expected shape {}, got {}", ToString(shape), ToString(view->shape)));
    }
    return *view;
  }

  /// A matrix whose rows are read one by one.
  Result<TensorView> FindTable(const std::string& name, int64_t rows) {
    KVASIR_ASSIGN_OR_RETURN(TensorView view, Take(name + ".weight", {rows, spec_.hidden_size}));
    KVASIR_RETURN_IF_ERROR(CheckMatrixType(name + ".weight", view));
    return view;
  }

  Status CheckMatrixType(const std::string& name, const TensorView& view) const {
    if (backend_.Supports(view.dtype)) return Status::Ok();
    return TensorError(name, fmt::format("the {} kernels do not take its type {}", backend_.name(),
                                         Info(view.dtype).name));
  }

  Result<std::vector<float>> TakeVector(const std::string& name, int64_t count) {
    KVASIR_ASSIGN_OR_RETURN(const TensorView view, Take(name, {count}));
    if (view.dtype != DType::kF32 && view.dtype != DType::kF16 && view.dtype != DType::kBF16) {
      return TensorError(
          name, fmt::format("expected type F32, F16 or BF16, got {}", Info(view.dtype).name));
    }
    Advance(view.bytes);
    return ToFloat(view);
  }

  Status BindNorm(const std::string& name, const NormSpec& norm, int64_t cols, BoundNorm& out) {
    KVASIR_ASSIGN_OR_RETURN(out.weight, TakeVector(name + ".weight", cols));
    if (norm.weight_plus_one) {
      for (float& w : out.weight) w += 1.0f;
    }
    if (norm.has_bias) {
      KVASIR_ASSIGN_OR_RETURN(out.bias, TakeVector(name + ".bias", cols));
    }
    return Status::Ok();
  }

  Status BindOptionalNorm(const std::string& pattern, size_t layer,
                          const std::optional<NormSpec>& norm, BoundNorm& out) {
    if (!norm) return Status::Ok();
    return BindNorm(WithLayer(pattern, layer), *norm, spec_.hidden_size, out);
  }

  Status BindQkNorms(size_t layer, BoundLayer& out) {
    const GroupedQueryAttention& attention = spec_.layers[layer].gqa();
    if (attention.qk_norm == QkNorm::kNone) return Status::Ok();
    const bool per_head = attention.qk_norm == QkNorm::kPerHead;
    BoundNorm q;
    BoundNorm k;
    KVASIR_RETURN_IF_ERROR(BindNorm(WithLayer(names_.layer.q_norm, layer), attention.qk_norm_spec,
                                    per_head ? attention.head_dim : attention.QueryCols(), q));
    KVASIR_RETURN_IF_ERROR(BindNorm(WithLayer(names_.layer.k_norm, layer), attention.qk_norm_spec,
                                    per_head ? attention.head_dim : attention.KvCols(), k));
    if (!per_head) {
      out.q_norm = std::move(q.weight);
      out.k_norm = std::move(k.weight);
      return Status::Ok();
    }
    for (int64_t head = 0; head < attention.query_heads + attention.kv_heads; ++head) {
      const std::vector<float>& weight = head < attention.query_heads ? q.weight : k.weight;
      out.q_norm.insert(out.q_norm.end(), weight.begin(), weight.end());
    }
    return Status::Ok();
  }

  Status BindLayer(size_t i) {
    const LayerSpec& spec = spec_.layers[i];
    const LayerNames& names = names_.layer;
    BoundLayer& out = bound_.layers[i];
    KVASIR_RETURN_IF_ERROR(BindOptionalNorm(names.attention_pre_norm, i, spec.attention_pre_norm,
                                            out.attention_pre_norm));
    KVASIR_RETURN_IF_ERROR(BindOptionalNorm(names.attention_post_norm, i, spec.attention_post_norm,
                                            out.attention_post_norm));
    KVASIR_RETURN_IF_ERROR(
        BindOptionalNorm(names.ffn_pre_norm, i, spec.ffn_pre_norm, out.ffn_pre_norm));
    KVASIR_RETURN_IF_ERROR(
        BindOptionalNorm(names.ffn_post_norm, i, spec.ffn_post_norm, out.ffn_post_norm));
    KVASIR_RETURN_IF_ERROR(BindQkNorms(i, out));
    KVASIR_RETURN_IF_ERROR(BindLinear(names.qkv, i, out.qkv));
    KVASIR_RETURN_IF_ERROR(BindLinear(names.attention_output, i, out.attention_output));
    KVASIR_RETURN_IF_ERROR(BindLinear(names.ffn_input, i, out.ffn_input));
    return BindLinear(names.ffn_output, i, out.ffn_output);
  }

  Status BindHead() {
    if (!spec_.tied_embeddings) {
      if (weights_.Find(names_.head + ".weight") == nullptr) {
        return MakeError(
            ErrorCode::kDataLoss,
            "{}: expected a tensor {}.weight, as the embedding table is not the head: is "
            "it missing, or is tie_word_embeddings false where it should be true?",
            weights_.FileOf(weights_.names().front()), names_.head);
      }
      LinearSource source;
      source.parts = {{names_.head, spec_.vocab_size}};
      source.cols = spec_.hidden_size;
      return BindLinear(source, 0, bound_.head);
    }
    // A head in the file of a tied model is the table once more.
    used_.insert(names_.head + ".weight");
    bound_.head.matrices.push_back(backend_.Pack({&bound_.embedding, 1}, ReleaseStored()));
    bound_.head.cols = spec_.vocab_size;
    bound_.packed_bytes += bound_.head.matrices.back()->bytes;
    // One copy of the table is enough: its rows are read from the packed head.
    bound_.embedding_in_head = bound_.head.matrices.back()->bytes != 0;
    Advance(bound_.embedding.bytes);
    return Status::Ok();
  }

  Status BindLinear(const LinearSource& source, size_t layer, BoundLinear& out) {
    std::vector<TensorView> parts;
    for (const LinearSource::Part& part : source.parts) {
      const std::string name = WithLayer(part.name, layer);
      const bool transposed = source.layout == LinearSource::Layout::kTransposed;
      const Shape shape =
          transposed ? Shape{source.cols, part.rows} : Shape{part.rows, source.cols};
      KVASIR_ASSIGN_OR_RETURN(const TensorView stored, Take(name + ".weight", shape));
      KVASIR_RETURN_IF_ERROR(CheckMatrixType(name + ".weight", stored));
      if (transposed && Info(stored.dtype).block_values != 1) {
        return TensorError(name + ".weight",
                           fmt::format("type {} cannot be transposed", Info(stored.dtype).name));
      }
      parts.push_back(source.layout == LinearSource::Layout::kRows
                          ? stored
                          : Rearrange(stored, source, part.rows, out));
      KVASIR_RETURN_IF_ERROR(BindBias(source, name, part.rows, out));
      out.cols += part.rows;
    }
    PackRuns(parts, source.layout == LinearSource::Layout::kRows, out);
    return Status::Ok();
  }

  kernels::BytesDone ReleaseStored() {
    return [this](std::span<const std::byte> stored) { weights_.Release(stored); };
  }

  /// Packs neighbours of equal dtype as one matrix.
  void PackRuns(const std::vector<TensorView>& parts, bool in_file, BoundLinear& out) {
    bool copies_needed = false;
    for (size_t first = 0; first < parts.size();) {
      size_t end = first + 1;
      while (end < parts.size() && parts[end].dtype == parts[first].dtype) ++end;
      const std::span<const TensorView> run(parts.data() + first, end - first);
      out.matrices.push_back(backend_.Pack(run, in_file ? ReleaseStored() : nullptr));
      const kernels::PackedMatrix& packed = *out.matrices.back();
      bound_.packed_bytes += packed.bytes;
      copies_needed = copies_needed || packed.bytes == 0;
      for (const TensorView& view : run) Advance(view.bytes);
      first = end;
    }
    if (!copies_needed) out.copies.clear();
    if (!out.copies.empty()) {
      for (const TensorView& view : parts) bound_.packed_bytes += view.bytes;
    }
  }

  /// A copy with the rows where the outputs want them; `out` owns it.
  static TensorView Rearrange(const TensorView& stored, const LinearSource& source, int64_t rows,
                              BoundLinear& out) {
    out.copies.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(stored.bytes)));
    std::byte* copy = out.copies.back().get();
    TensorView view = stored;
    view.shape = {rows, source.cols};
    view.data = copy;
    if (source.layout == LinearSource::Layout::kTransposed) {
      const auto value_bytes = static_cast<size_t>(Info(stored.dtype).block_bytes);
      for (int64_t n = 0; n < rows; ++n) {
        for (int64_t k = 0; k < source.cols; ++k) {
          std::memcpy(copy + static_cast<size_t>(n * source.cols + k) * value_bytes,
                      stored.data + static_cast<size_t>(k * rows + n) * value_bytes, value_bytes);
        }
      }
      return view;
    }
    const int64_t row_bytes = RowBytes(stored.dtype, source.cols);
    for (int64_t n = 0; n < rows; ++n) {
      std::memcpy(copy + n * row_bytes,
                  stored.data + StoredRowOfPerHeadQkv(n, rows, source.head_dim) * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
    return view;
  }

  /// Appends the part's bias behind those of the parts before it (zeros where a part has none).
  Status BindBias(const LinearSource& source, const std::string& part, int64_t rows,
                  BoundLinear& out) {
    const std::string name = part + ".bias";
    const bool wanted =
        source.bias == LinearSource::Bias::kRequired ||
        (source.bias == LinearSource::Bias::kIfPresent && weights_.Find(name) != nullptr);
    if (!wanted) {
      if (!out.bias.empty()) out.bias.resize(static_cast<size_t>(out.cols + rows));
      return Status::Ok();
    }
    KVASIR_ASSIGN_OR_RETURN(const std::vector<float> stored, TakeVector(name, rows));
    out.bias.resize(static_cast<size_t>(out.cols + rows));
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t from = source.layout == LinearSource::Layout::kQkvPerHead
                               ? StoredRowOfPerHeadQkv(n, rows, source.head_dim)
                               : n;
      out.bias[static_cast<size_t>(out.cols + n)] = stored[static_cast<size_t>(from)];
    }
    return Status::Ok();
  }

  Status CheckNothingLeft() const {
    for (const std::string& name : weights_.names()) {
      const bool ignored =
          used_.contains(name) ||
          std::any_of(names_.ignored_prefixes.begin(), names_.ignored_prefixes.end(),
                      [&](const std::string& prefix) { return name.starts_with(prefix); }) ||
          std::any_of(names_.ignored_suffixes.begin(), names_.ignored_suffixes.end(),
                      [&](const std::string& suffix) { return name.ends_with(suffix); });
      if (!ignored) {
        return TensorError(
            name, fmt::format("not part of a {} model with {} layers as its "
                              "configuration describes it",
                              files::Printable(spec_.architecture, 60), spec_.layers.size()));
      }
    }
    return Status::Ok();
  }

  void Advance(int64_t bytes) {
    bytes_done_ += bytes;
    if (progress_) progress_(std::min(bytes_done_, bytes_total_), bytes_total_);
  }

  const ModelSpec& spec_;
  const TensorNames& names_;
  const files::Weights& weights_;
  kernels::Backend& backend_;
  const std::function<void(int64_t, int64_t)>& progress_;
  BoundWeights bound_;
  std::set<std::string, std::less<>> used_;
  int64_t bytes_done_ = 0;
  int64_t bytes_total_ = 0;
};

}  // namespace

Result<BoundWeights> BindWeights(const Blueprint& blueprint, const files::Weights& weights,
                                 kernels::Backend& backend,
                                 const std::function<void(int64_t, int64_t)>& progress) {
  return Binder(blueprint, weights, backend, progress).Bind();
}

}  // namespace kvasir::model
