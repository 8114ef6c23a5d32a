// Text to token ids and back, as the model's own tokenizer files say it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "files/gguf.h"
#include "files/model_files.h"

namespace kvasir::text {

/// Stands inside what reads like an added token and is none, from Mark to Encode: U+10FFFF, which
/// Unicode has set aside for such use.
inline constexpr std::string_view kTokenBreak = "\xF4\x8F\xBF\xBF";

struct EncodeOptions {
  /// Adds what the tokenizer's post-processor (or GGUF's add_bos/add_eos flags) puts around a text.
  bool add_special_tokens = true;
  /// false: tokens marked special, written out in the text, are encoded as plain text. Added tokens
  /// that are not special (`<think>`) are matched all the same.
  bool parse_special = true;
  /// The text holds kTokenBreaks, which are taken out once added tokens are found.
  bool marked = false;
};

/// Immutable after load; every method may be called from any thread.
class Tokenizer {
 public:
  /// `tokenizer_json` is the text of tokenizer.json; `tokenizer_config` the parsed
  /// tokenizer_config.json, or null. Errors name the component that is broken or unknown.
  [[nodiscard]] static Result<std::unique_ptr<Tokenizer>> FromHuggingFace(
      std::string_view tokenizer_json, const nlohmann::json& tokenizer_config);
  /// From the keys tokenizer.ggml.*. Copies what it needs.
  [[nodiscard]] static Result<std::unique_ptr<Tokenizer>> FromGguf(
      const files::GgufMetadata& metadata);
  /// As the folder or file has it; ends of generation also from generation_config and config.
  [[nodiscard]] static Result<std::unique_ptr<Tokenizer>> FromModelFiles(
      const files::ModelFiles& files);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Never fails: bytes that are not UTF-8 are read as U+FFFD. At most 1 GiB of text. Time is
  /// linear in the length (n log n inside one word).
  [[nodiscard]] std::vector<int32_t> Encode(std::string_view text,
                                            const EncodeOptions& options = {}) const;

  /// `text`, to be put into a prompt by a template, with kTokenBreaks that keep special tokens (and
  /// added ones in angle brackets, such as `</think>`, unless `special_only`) written in it from
  /// being found. Those that were there before are dropped.
  [[nodiscard]] std::string Mark(std::string_view text, bool special_only) const;
  /// `text` without kTokenBreaks.
  [[nodiscard]] static std::string Unmark(std::string_view text);

  /// Valid UTF-8. Ids without a token are skipped. A leading space that the decoder strips is
  /// stripped, as `ids` are taken to begin the text; to decode a continuation use Detokenizer.
  [[nodiscard]] std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  /// As stored in the vocabulary (`Ġthe`, `▁the`, `<0x0A>`); empty where the id has no token.
  [[nodiscard]] std::string TokenPiece(int32_t id) const;
  /// The raw bytes that the token stands for inside a text (` the`, `\n`), maybe not whole UTF-8.
  [[nodiscard]] std::string TokenBytes(int32_t id) const;
  /// TokenBytes as valid UTF-8: what is not becomes U+FFFD.
  [[nodiscard]] std::string TokenText(int32_t id) const;
  /// By the piece as stored.
  [[nodiscard]] std::optional<int32_t> TokenId(std::string_view piece) const;
  /// Left out of the text when special tokens are skipped.
  [[nodiscard]] bool IsSpecial(int32_t id) const;

  /// One more than the largest id that has a token. The model's logits may have more rows.
  [[nodiscard]] int vocab_size() const;

  [[nodiscard]] std::optional<int32_t> bos_id() const;
  [[nodiscard]] std::optional<int32_t> eos_id() const;
  [[nodiscard]] std::optional<int32_t> unk_id() const;
  [[nodiscard]] std::optional<int32_t> pad_id() const;
  /// End of a turn (GGUF eot_token_id), where it is told apart from the end of the text.
  [[nodiscard]] std::optional<int32_t> eot_id() const;
  /// Every id that ends a generation unless the request ignores it: sorted, unique.
  [[nodiscard]] const std::vector<int32_t>& end_of_generation_ids() const;

  /// Empty where there is none.
  [[nodiscard]] const std::string& bos_token() const;
  [[nodiscard]] const std::string& eos_token() const;
  /// Named special tokens for chat templates: bos_token, eos_token, unk_token, pad_token, …
  [[nodiscard]] const std::map<std::string, std::string>& special_tokens() const;

  /// Whether Encode with add_special_tokens begins with bos_id().
  [[nodiscard]] bool adds_bos() const;

  /// `byte-level BPE`, `BPE with byte fallback`, `Unigram`, `WordPiece`, … for people.
  [[nodiscard]] const std::string& kind() const;

  struct Impl;
  /// The parts, for the detokenizer and the loaders of this room.
  [[nodiscard]] const Impl& impl() const { return *impl_; }
  explicit Tokenizer(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir::text
