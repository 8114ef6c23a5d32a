// Rewrites a piece of text before it is cut into words.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir::text {

/// One element of a normalizer. Immutable; any thread.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  /// Returns `text` itself where nothing changes, else fills `out` (empty before) and returns it.
  /// `text` and `out` are valid UTF-8 and do not overlap.
  [[nodiscard]] virtual std::string_view Apply(std::string_view text, std::string& out) const = 0;
  /// Bytes that a byte of text may become; what is put before a text once is not counted.
  [[nodiscard]] virtual double Growth() const { return 1.0; }
};

/// Two buffers that take turns; reused from piece to piece.
struct NormalizerBuffers {
  std::string even;
  std::string odd;
};

class Normalizer {
 public:
  using Steps = std::vector<std::unique_ptr<NormalizerStep>>;
  Normalizer() = default;
  explicit Normalizer(Steps steps) : steps_(std::move(steps)) {}

  [[nodiscard]] bool empty() const { return steps_.empty(); }
  /// The result points into `text` or `buffers`.
  [[nodiscard]] std::string_view Apply(std::string_view text, NormalizerBuffers& buffers) const;

 private:
  Steps steps_;
};

/// tokenizer.json's "normalizer", or null. Refuses types that it does not know, by name, and steps
/// that together could make a text thousands of times as long.
[[nodiscard]] Result<Normalizer::Steps> ParseNormalizer(const nlohmann::json& json);

[[nodiscard]] std::unique_ptr<NormalizerStep> MakeNfc();
[[nodiscard]] std::unique_ptr<NormalizerStep> MakePrepend(std::string prefix);
[[nodiscard]] std::unique_ptr<NormalizerStep> MakeReplace(std::string from, std::string to);

/// BERT's cleaning, as BertNormalizer has it.
struct BertNormalization {
  bool clean_text = true;            ///< drops control characters, makes whitespace a space
  bool handle_chinese_chars = true;  ///< puts spaces around CJK ideographs
  bool strip_accents = true;
  bool lowercase = true;
};
[[nodiscard]] std::unique_ptr<NormalizerStep> MakeBert(const BertNormalization& options);

/// What SentencePiece does before its model, in its own order.
struct SentencePieceNormalization {
  std::string charsmap;  ///< precompiled_charsmap, may be empty; longest match at each character
  bool remove_extra_whitespaces = true;
  bool add_dummy_prefix = true;
};
[[nodiscard]] Result<std::unique_ptr<NormalizerStep>> MakeSentencePiece(
    SentencePieceNormalization options);

}  // namespace kvasir::text
