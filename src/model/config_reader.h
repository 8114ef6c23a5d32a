// One view of a model's configuration, whether it is a config.json or a GGUF's metadata.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "files/weights.h"
#include "model/rope.h"

namespace kvasir::files {
struct ModelFiles;
}

namespace kvasir::model {

/// The names of one value in the two formats; empty where a format has no such value. GGUF's is
/// without the architecture before it.
struct Key {
  std::string_view hf;
  std::string_view gguf;
};

/// Reads typed values. The first thing found wrong is remembered and later reads give defaults, so
/// that a family reads all it needs and asks status() once. Not thread-safe.
class ConfigReader {
 public:
  /// `files` must hold weights and outlive the reader. `max_model_len` 0 = as long as the model
  /// allows.
  ConfigReader(const files::ModelFiles& files, int64_t max_model_len);

  [[nodiscard]] bool is_gguf() const { return is_gguf_; }
  /// architectures[0] (or model_type), or general.architecture; empty where neither is there.
  [[nodiscard]] const std::string& architecture() const { return architecture_; }
  [[nodiscard]] const files::Weights& weights() const { return weights_; }
  [[nodiscard]] int64_t max_model_len() const { return max_model_len_; }

  /// True where the key is there, even if it is null.
  [[nodiscard]] bool Has(const Key& key) const;
  /// 1 ... 2^31 - 1; an error where it is missing.
  int64_t RequiredInt(const Key& key);
  /// 0 ... 2^31 - 1. A GGUF array whose items are all equal counts as that number.
  int64_t Int(const Key& key, int64_t otherwise);
  double Float(const Key& key, double otherwise);
  double RequiredFloat(const Key& key);
  bool Bool(const Key& key, bool otherwise);
  std::string String(const Key& key, std::string_view otherwise);
  /// Null where it is absent, null or a GGUF.
  [[nodiscard]] const nlohmann::json* HfValue(std::string_view key) const;
  /// Integers or booleans of a list; empty where it is absent.
  std::vector<int64_t> Ints(const Key& key);

  /// Remembers an error about `key` unless there is one already.
  void Fail(const Key& key, std::string_view expected_and_came);
  void Fail(Error error);
  [[nodiscard]] Status status() const;
  /// The name of the config, for messages: ".../config.json" or the .gguf.
  [[nodiscard]] const std::string& source() const { return source_; }

 private:
  /// Of text_config, else of the config; null where neither has the key.
  [[nodiscard]] const nlohmann::json* FindHf(std::string_view key) const;
  std::optional<double> Number(const Key& key, bool integer);
  [[nodiscard]] std::string GgufKey(const Key& key) const;

  const files::ModelFiles& files_;
  const files::Weights& weights_;
  bool is_gguf_ = false;
  const nlohmann::json* config_ = nullptr;  ///< text_config where there is one
  std::string architecture_;
  std::string source_;
  int64_t max_model_len_ = 0;
  std::optional<Error> error_;
};

/// Base and scaling of one kind of layers.
struct RopeConfig {
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  RopeScaling scaling;
};

/// What a family's rope is where its config does not say.
struct RopeDefaults {
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
};

/// True where rope_parameters are nested by layer type and have one for `layer_type`.
[[nodiscard]] bool HasRopeOf(const ConfigReader& reader, std::string_view layer_type);

/// Reads rope_parameters (of `layer_type` where they are nested by it), or rope_theta and
/// rope_scaling, or GGUF's rope.*, rope_freqs and rope_factors_*.
RopeConfig ReadRope(ConfigReader& reader, const RopeDefaults& defaults = {},
                    std::string_view layer_type = {});

/// max_position_embeddings (context_length), stretched by linear, dynamic and yarn scaling, whose
/// configs name the length before scaling.
int64_t ReadMaxPositions(ConfigReader& reader, const RopeConfig& rope, int64_t otherwise);

}  // namespace kvasir::model
