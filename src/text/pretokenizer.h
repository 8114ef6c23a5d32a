// Cuts a piece of text into the words that the model encodes one by one.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir::text {

struct Span {
  uint32_t begin;
  uint32_t end;
};

/// The words of one piece while it is being cut; reused from piece to piece to save allocations.
/// Words are in order, do not overlap and are not empty.
struct Words {
  std::string_view text;    ///< what the spans point into: valid UTF-8
  std::vector<Span> spans;  ///< the words
  std::vector<Span> next;   ///< scratch of the steps
  std::string buffer;       ///< owns `text` once a step has rewritten it
};

/// One element of a pre-tokenizer. Immutable; any thread.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  /// Cuts each word further. `at_start`: the piece begins the whole input.
  virtual void Apply(Words& words, bool at_start) const = 0;
};

class PreTokenizer {
 public:
  using Steps = std::vector<std::unique_ptr<PreTokenizerStep>>;
  explicit PreTokenizer(Steps steps) : steps_(std::move(steps)) {}

  /// `piece` is valid UTF-8 of less than 2^31 bytes and must outlive the use of `words`.
  void Cut(std::string_view piece, bool at_start, Words& words) const;

 private:
  Steps steps_;
};

/// What tokenizer.json's "pre_tokenizer" describes.
struct PreTokenizerPlan {
  PreTokenizer::Steps steps;
  /// The last thing to do is to spell the bytes of each word in the byte alphabet. The steps leave
  /// that to the caller, whose model may work on the bytes themselves.
  bool ends_in_byte_level = false;
};
/// `json` is the component or null. Refuses types that it does not know, by name.
[[nodiscard]] Result<PreTokenizerPlan> ParsePreTokenizer(const nlohmann::json& json);

/// What a GGUF file's tokenizer.ggml.pre stands for.
struct GgufPreTokenizer {
  PreTokenizer::Steps steps;
  bool ignore_merges = false;  ///< a word that is a token is that token
  bool add_bos = false;        ///< where the file does not say
  bool nfc = false;            ///< the model's own tokenizer normalizes to NFC
};
[[nodiscard]] Result<GgufPreTokenizer> GgufPreTokenizerByName(std::string_view name);

/// A step that spells the bytes of the text in the byte alphabet.
[[nodiscard]] std::unique_ptr<PreTokenizerStep> MakeByteAlphabetStep();

}  // namespace kvasir::text
