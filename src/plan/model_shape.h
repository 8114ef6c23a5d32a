// What of a model decides how much memory and time it takes: its matrices, and what its layers keep
// of the past. Read from a model's files, a config.json or the catalogue.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/number_format.h"

namespace kvasir::plan {

enum class Part : uint8_t {
  kEmbedding,
  kAttention,
  kFfn,           ///< dense feed-forward layers
  kExperts,       ///< routed ones
  kSharedExpert,  ///< computed for every token
  kRouter,
  kNorms,  ///< norms, biases of all kinds and other vectors
  kHead,   ///< where it is not the embedding table
};
inline constexpr size_t kPartCount = 8;
/// "embedding", "attention", "feed-forward", "experts", ...
[[nodiscard]] std::string_view PartName(Part part);

/// `count` equal matrices [rows, cols]; a vector is one row of Part::kNorms.
struct WeightShape {
  Part part = Part::kFfn;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t count = 1;
};

/// What a layer keeps of the past.
enum class LayerKind : uint8_t {
  kFull,    ///< keys and values of every position
  kWindow,  ///< of the last window_tokens positions (chunked attention: of at most a chunk)
  kLatent,  ///< MLA: one latent and one rotated key a position, shared by all heads
  kLinear,  ///< a state of fixed size a sequence
};
/// "full attention", "sliding window", "MLA latent", "linear state".
[[nodiscard]] std::string_view LayerKindName(LayerKind kind);

/// Layers that are alike in their attention.
struct LayerShape {
  LayerKind kind = LayerKind::kFull;
  int64_t layers_count = 0;
  int64_t query_heads = 0;    ///< Hq
  int64_t kv_heads = 0;       ///< Hkv; 1 for a latent
  int64_t key_dim = 0;        ///< of a query's dot product with a key
  int64_t value_dim = 0;      ///< of what a head sums up
  int64_t window_tokens = 0;  ///< for kWindow; the token itself included
  /// Positions that a query reads at most, by an index over all (DeepSeek-V3.2); 0: all.
  int64_t attended_tokens = 0;
  int64_t cached_values = 0;  ///< that a token leaves in one layer
  /// For kLatent, the other way to compute it: keys and values of all heads made from the latents
  /// first. Dims of key and value together, and weights that a position's latent goes through.
  int64_t expanded_dims = 0;
  int64_t expanding_values = 0;
  /// For kLinear: bytes that a sequence holds in one layer, of the state in F32 and of the
  /// convolution's last inputs in 2 bytes each.
  int64_t state_bytes = 0;

  bool operator==(const LayerShape&) const = default;
};

/// Layers that share a block table, as in model/spec.h.
struct CacheGroupShape {
  int64_t layers_count = 0;
  int64_t window_tokens = 0;  ///< 0: all positions
};

struct ExpertsShape {
  int64_t experts_count = 0;  ///< E; 0: none
  int64_t used_count = 0;     ///< a token
  int64_t layers_count = 0;   ///< that have experts
};

/// How each part is stored.
using WeightFormats = std::array<NumberFormat, kPartCount>;

/// What the server's weights take in memory with one backend.
struct LoadedWeights {
  std::string kernels;       ///< "avx2", "avx512", "ref"
  int64_t packed_bytes = 0;  ///< what the server prints at start
  int64_t mapped_bytes = 0;  ///< of the files, read where they lie
};

/// Bytes as they lie in files, where there are files.
struct StoredWeights {
  int64_t bytes = 0;
  /// Of what serving loads; the rest of `bytes` are other modalities, layers for multi-token
  /// prediction and tensors that are worked out anew.
  std::array<int64_t, kPartCount> part_bytes = {};
  std::array<std::string, kPartCount> part_formats;  ///< "Q4_K, Q6_K", most bytes first
  std::vector<LoadedWeights> loaded;                 ///< empty where the server cannot load them
};

struct ModelShape {
  std::string name;
  std::string architecture;
  std::string source;  ///< of the numbers
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers_count = 0;
  int64_t max_positions = 0;
  bool tied_embeddings = false;
  std::vector<WeightShape> weights;
  /// Values of layers that serving does not load (multi-token prediction).
  int64_t skipped_values = 0;
  std::vector<LayerShape> layers;
  ExpertsShape experts;

  /// Groups of the paged cache; each holds layers_per_group slots of cached_values a token.
  std::vector<CacheGroupShape> cache_groups;
  int64_t layers_per_group = 0;
  int64_t cached_values_per_slot = 0;

  WeightFormats shipped;  ///< as the files or the published checkpoint have it
  /// What `shipped` is not known by: how the checkpoint is quantized.
  std::optional<Error> shipped_unknown;
  std::optional<StoredWeights> stored;  ///< of files on disk; wins over `shipped` for the bytes
  NumberFormat kv_format;               ///< what the server would choose for the cache

  [[nodiscard]] int64_t ParametersCount() const;
  [[nodiscard]] int64_t ParametersCount(Part part) const;
  /// That a token is multiplied with: of the experts those that it uses; the embedding table only
  /// where it is the head too.
  [[nodiscard]] int64_t ActiveParametersCount() const;
};

/// Fails where the weights can only be planned in a format that is chosen.
[[nodiscard]] Status CheckShipped(const ModelShape& shape);

/// Bytes of all weights of `part`.
[[nodiscard]] int64_t PartBytes(const ModelShape& shape, Part part, const WeightFormats& formats);

/// All of `format`; where that is quantized, norms, vectors and routers stay BF16 (F32 beside a
/// GGUF type), and so do the embedding table and the head unless it is a GGUF type.
[[nodiscard]] WeightFormats FormatsWith(const ModelShape& shape, const NumberFormat& format);

/// Names in the catalogue, sorted, with what a list shows of them.
struct ModelListing {
  std::string name;
  std::string title;
  std::string source;
};
[[nodiscard]] const std::vector<ModelListing>& ModelCatalogue();

/// A model folder, a .gguf, a config.json, or a catalogue name. Errors are one line that names the
/// file and the field, or the nearest names.
[[nodiscard]] Result<ModelShape> FindModelShape(std::string_view model);

}  // namespace kvasir::plan
