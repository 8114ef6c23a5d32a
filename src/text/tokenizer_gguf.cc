// The tokenizer that a GGUF file carries in its metadata: tokenizer.ggml.*.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/log.h"
#include "files/printable.h"
#include "text/bpe_model.h"
#include "text/tokenizer_impl.h"
#include "text/unicode_byte_alphabet.h"
#include "text/unicode_utf8.h"
#include "text/unigram_model.h"
#include "text/wordpiece_model.h"

namespace kvasir::text {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

// Values of tokenizer.ggml.token_type.
enum TokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByteType = 6,
};

// Tokens that end a generation wherever a vocabulary has them.
constexpr std::string_view kEndTokens[] = {"<|eot_id|>",
                                           "<|im_end|>",
                                           "<|end|>",
                                           "<|return|>",
                                           "<|call|>",
                                           "<|calls|>",
                                           "<|flush|>",
                                           "<end_of_turn>",
                                           "<|endoftext|>",
                                           "</s>",
                                           "<|eom_id|>",
                                           "<EOT>",
                                           "_<EOT>",
                                           "[EOT]",
                                           "[EOS]",
                                           "<|end_of_text|>",
                                           "<end_of_utterance>",
                                           "<eos>",
                                           "<turn|>",
                                           "<|tool_response>",
                                           "<｜end▁of▁sentence｜>",
                                           "[e~["};

std::string Key(std::string_view name) { return "tokenizer.ggml." + std::string(name); }

std::string ReplaceSpaceMarks(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(kSpaceMark)) {
      out += ' ';
      at += kSpaceMark.size();
    } else {
      out += text[at++];
    }
  }
  return out;
}

class Loader {
 public:
  explicit Loader(const files::GgufMetadata& metadata) : metadata_(metadata) {}

  Result<std::unique_ptr<Tokenizer::Impl>> Load() {
    const auto model = metadata_.String(Key("model"));
    if (!model.has_value()) {
      return MakeError(ErrorCode::kNotFound, "tokenizer.ggml.model is missing");
    }
    KVASIR_RETURN_IF_ERROR(ReadTokens());
    LoadNames();
    if (*model == "llama") {
      KVASIR_RETURN_IF_ERROR(LoadSentencePieceBpe());
    } else if (*model == "gpt2") {
      KVASIR_RETURN_IF_ERROR(LoadByteLevelBpe());
    } else if (*model == "gemma4") {
      KVASIR_RETURN_IF_ERROR(LoadEscapedBpe());
    } else if (*model == "t5") {
      KVASIR_RETURN_IF_ERROR(LoadUnigram());
    } else if (*model == "bert") {
      LoadWordPiece();
    } else {
      return MakeError(ErrorCode::kUnsupported, "tokenizer.ggml.model \"{}\" is not supported",
                       files::Printable(*model));
    }
    KVASIR_RETURN_IF_ERROR(AddTokens());
    AddEndsOfGeneration();
    impl_->Finish();
    return std::move(impl_);
  }

 private:
  Status ReadTokens() {
    const auto* tokens = metadata_.Strings(Key("tokens"));
    if (tokens == nullptr || tokens->empty()) {
      return MakeError(ErrorCode::kDataLoss, "tokenizer.ggml.tokens is missing or empty");
    }
    if (tokens->size() > static_cast<size_t>(kTokenIdMax)) {
      return MakeError(ErrorCode::kDataLoss, "tokenizer.ggml.tokens: {} tokens, at most {}",
                       tokens->size(), kTokenIdMax);
    }
    types_ = metadata_.Ints(Key("token_type"));
    scores_ = metadata_.Floats(Key("scores"));
    if (types_ != nullptr && types_->size() != tokens->size()) {
      return MakeError(ErrorCode::kDataLoss, "tokenizer.ggml.token_type: {} values for {} tokens",
                       types_->size(), tokens->size());
    }
    if (scores_ != nullptr && scores_->size() != tokens->size()) {
      return MakeError(ErrorCode::kDataLoss, "tokenizer.ggml.scores: {} values for {} tokens",
                       scores_->size(), tokens->size());
    }
    const size_t bytes =
        std::accumulate(tokens->begin(), tokens->end(), size_t{0},
                        [](size_t sum, std::string_view token) { return sum + token.size(); });
    impl_->vocabulary.Reserve(tokens->size(), bytes);
    impl_->bytes.Reserve(tokens->size(), bytes);
    impl_->flags.resize(tokens->size());
    std::string repaired;
    for (size_t i = 0; i < tokens->size(); ++i) {
      std::string_view piece = (*tokens)[i];
      if (piece.size() > kPieceBytesMax) {
        return MakeError(ErrorCode::kDataLoss, "tokenizer.ggml.tokens: token {} has {} bytes", i,
                         piece.size());
      }
      if (!IsValidUtf8(piece)) {
        repaired.clear();
        AppendLossy(piece, repaired);
        piece = repaired;
      }
      impl_->vocabulary.Add(static_cast<int32_t>(i), piece);
    }
    return Status::Ok();
  }

  [[nodiscard]] int32_t size() const { return impl_->vocabulary.size(); }
  [[nodiscard]] int64_t Type(int32_t id) const {
    return types_ == nullptr ? int64_t{kNormal} : (*types_)[static_cast<size_t>(id)];
  }
  [[nodiscard]] std::optional<int32_t> Id(std::string_view name) const {
    const auto id = metadata_.Int(Key(name));
    if (!id.has_value() || *id < 0 || *id >= size()) return std::nullopt;
    return static_cast<int32_t>(*id);
  }
  [[nodiscard]] bool Flag(std::string_view name, bool absent) const {
    return metadata_.Bool(Key(name)).value_or(absent);
  }

  void LoadNames() {
    Tokenizer::Impl& impl = *impl_;
    impl.bos_id = Id("bos_token_id");
    impl.eos_id = Id("eos_token_id");
    impl.unk_id = Id("unknown_token_id");
    impl.pad_id = Id("padding_token_id");
    impl.eot_id = Id("eot_token_id");
    const auto name = [&](const char* as, std::optional<int32_t> id) {
      if (id.has_value()) impl.special_tokens[as] = impl.vocabulary.Piece(*id);
    };
    name("bos_token", impl.bos_id);
    name("eos_token", impl.eos_id);
    name("unk_token", impl.unk_id);
    name("pad_token", impl.pad_id);
    name("sep_token", Id("seperator_token_id"));  // spelled so in the files
    name("cls_token", Id("cls_token_id"));
    name("mask_token", Id("mask_token_id"));
  }

  void AddBosAndEos(bool bos_absent, bool eos_absent) {
    if (Flag("add_bos_token", bos_absent) && impl_->bos_id.has_value()) {
      impl_->prefix_ids.push_back(*impl_->bos_id);
    }
    if (Flag("add_eos_token", eos_absent) && impl_->eos_id.has_value()) {
      impl_->suffix_ids.push_back(*impl_->eos_id);
    }
  }

  /// Pieces with `▁` for spaces and `<0xXX>` for bytes.
  void DecodeEscaped(bool strip_first_space) {
    DecoderRules& rules = impl_->decoder;
    rules.steps.push_back(
        {.kind = DecoderRules::Kind::kReplace, .from = std::string(kSpaceMark), .to = " "});
    rules.byte_fallback = true;
    if (strip_first_space) {
      rules.strip_content = " ";
      rules.strip_start = 1;
    }
    for (int32_t id = 0; id < size(); ++id) {
      const std::string_view piece = impl_->vocabulary.Piece(id);
      const auto byte =
          Type(id) == kByteType || types_ == nullptr ? ParseByteToken(piece) : std::nullopt;
      if (byte.has_value()) {
        const char raw = static_cast<char>(*byte);
        impl_->SetFlag(id, Tokenizer::Impl::kByte);
        impl_->bytes.Set(id, {&raw, 1});
      } else if (piece.find(kSpaceMark) == std::string_view::npos) {
        impl_->bytes.Set(id, piece);
      } else {
        impl_->bytes.Set(id, ReplaceSpaceMarks(piece));
      }
    }
  }

  Status LoadSentencePieceBpe() {
    impl_->kind = "SentencePiece BPE";
    if (scores_ == nullptr) {
      return MakeError(ErrorCode::kDataLoss, "tokenizer.ggml.scores is missing");
    }
    if (!impl_->unk_id.has_value() && Type(0) == kUnknown) impl_->unk_id = 0;
    // Dense ranks: the highest score is joined first; equal scores share a rank.
    std::vector<int32_t> order;
    for (int32_t id = 0; id < size(); ++id) {
      if (!std::isfinite(Score(id))) {
        return MakeError(ErrorCode::kDataLoss, "tokenizer.ggml.scores: token {} has {}", id,
                         Score(id));
      }
      const int64_t type = Type(id);
      if (type != kUnknown && type != kControl && type != kByteType) order.push_back(id);
    }
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return Score(a) != Score(b) ? Score(a) > Score(b) : a < b;
    });
    std::vector<uint32_t> ranks(static_cast<size_t>(size()), Merge::kNone);
    uint32_t rank = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0 && Score(order[i]) != Score(order[i - 1])) ++rank;
      ranks[static_cast<size_t>(order[i])] = rank;
    }
    BpeOptions options;
    options.byte_fallback = true;
    options.unk_id = impl_->unk_id.value_or(-1);
    impl_->model = BpeModel::FromRanks(impl_->vocabulary, std::move(options), std::move(ranks));
    const bool prefix = Flag("add_space_prefix", true);
    EscapeSpaces(prefix);
    DecodeEscaped(prefix);
    AddBosAndEos(true, false);
    return Status::Ok();
  }

  [[nodiscard]] double Score(int32_t id) const { return (*scores_)[static_cast<size_t>(id)]; }

  void EscapeSpaces(bool prefix) {
    Normalizer::Steps steps;
    if (prefix) steps.push_back(MakePrepend(std::string(kSpaceMark)));
    steps.push_back(MakeReplace(" ", std::string(kSpaceMark)));
    impl_->normalizer = Normalizer(std::move(steps));
  }

  Status LoadMerges(BpeOptions options) {
    const auto* lines = metadata_.Strings(Key("merges"));
    if (lines == nullptr) {
      return MakeError(ErrorCode::kDataLoss, "tokenizer.ggml.merges is missing");
    }
    std::vector<BpeModel::Pair> merges;
    merges.reserve(lines->size());
    for (const std::string_view line : *lines) {
      const size_t space = line.find(' ', 1);
      if (space == std::string_view::npos || !IsValidUtf8(line)) {
        return MakeError(ErrorCode::kDataLoss,
                         "tokenizer.ggml.merges: merge {}: expected two parts, got \"{}\"",
                         merges.size(), files::Printable(line));
      }
      merges.push_back({line.substr(0, space), line.substr(space + 1)});
    }
    Result<std::unique_ptr<BpeModel>> model =
        BpeModel::FromMerges(impl_->vocabulary, std::move(options), merges);
    if (!model.ok()) {
      Error error = std::move(model).error();
      error.message = "tokenizer.ggml.merges: " + error.message;
      return error;
    }
    impl_->model = std::move(model).value();
    return Status::Ok();
  }

  Result<GgufPreTokenizer> PreTokenizerOfFile() const {
    const auto name = metadata_.String(Key("pre"));
    if (!name.has_value()) {
      LogWarning("tokenizer.ggml.pre is missing: \"default\" is used, which may cut words wrongly");
    }
    return GgufPreTokenizerByName(name.value_or("default"));
  }

  Status LoadByteLevelBpe() {
    impl_->kind = "byte-level BPE";
    KVASIR_ASSIGN_OR_RETURN(GgufPreTokenizer pre, PreTokenizerOfFile());
    BpeOptions options;
    options.ignore_merges = pre.ignore_merges;
    options.raw_bytes = HasByteAlphabet(impl_->vocabulary);
    options.unk_id = impl_->unk_id.value_or(-1);
    if (!options.raw_bytes) pre.steps.push_back(MakeByteAlphabetStep());
    KVASIR_RETURN_IF_ERROR(LoadMerges(std::move(options)));
    impl_->pretokenizer = PreTokenizer(std::move(pre.steps));
    if (pre.nfc) {
      Normalizer::Steps steps;
      steps.push_back(MakeNfc());
      impl_->normalizer = Normalizer(std::move(steps));
    }
    std::string bytes;
    for (int32_t id = 0; id < size(); ++id) {
      const std::string_view piece = impl_->vocabulary.Piece(id);
      bytes.clear();
      const bool mapped = Type(id) == kNormal && AppendUnmapped(piece, bytes);
      impl_->bytes.Set(id, mapped ? std::string_view(bytes) : piece);
    }
    AddBosAndEos(pre.add_bos, false);
    return Status::Ok();
  }

  /// Gemma 4: merges over text with `▁` for spaces.
  Status LoadEscapedBpe() {
    impl_->kind = "BPE with byte fallback";
    const auto name = metadata_.String(Key("pre")).value_or("gemma4");
    KVASIR_ASSIGN_OR_RETURN(GgufPreTokenizer pre, GgufPreTokenizerByName(name));
    impl_->pretokenizer = PreTokenizer(std::move(pre.steps));
    BpeOptions options;
    options.byte_fallback = true;
    options.fuse_unk = true;
    options.unk_id = impl_->unk_id.value_or(-1);
    KVASIR_RETURN_IF_ERROR(LoadMerges(std::move(options)));
    EscapeSpaces(Flag("add_space_prefix", false));
    DecodeEscaped(Flag("add_space_prefix", false));
    AddBosAndEos(true, false);
    return Status::Ok();
  }

  Status LoadUnigram() {
    impl_->kind = "Unigram";
    if (scores_ == nullptr) {
      return MakeError(ErrorCode::kDataLoss, "tokenizer.ggml.scores is missing");
    }
    SentencePieceNormalization normalization;
    KVASIR_RETURN_IF_ERROR(ReadCharsmap(normalization.charsmap));
    normalization.remove_extra_whitespaces = Flag("remove_extra_whitespaces", true);
    normalization.add_dummy_prefix = Flag("add_space_prefix", true);
    const bool prefix = normalization.add_dummy_prefix;
    Normalizer::Steps steps;
    KVASIR_ASSIGN_OR_RETURN(std::unique_ptr<NormalizerStep> step,
                            MakeSentencePiece(std::move(normalization)));
    steps.push_back(std::move(step));
    impl_->normalizer = Normalizer(std::move(steps));
    UnigramOptions options;
    options.scores = *scores_;
    options.unk_id = impl_->unk_id.value_or(-1);
    for (int32_t id = 0; id < size(); ++id) {
      const int64_t type = Type(id);
      options.matches_text.push_back(type != kUnknown && type != kControl && type != kByteType);
      options.byte_fallback = options.byte_fallback || type == kByteType;
    }
    KVASIR_ASSIGN_OR_RETURN(impl_->model,
                            UnigramModel::Create(impl_->vocabulary, std::move(options)));
    DecodeEscaped(prefix);
    AddBosAndEos(false, true);
    return Status::Ok();
  }

  Status ReadCharsmap(std::string& charsmap) const {
    const files::GgufValue* value = metadata_.Find(Key("precompiled_charsmap"));
    if (value == nullptr) return Status::Ok();
    const auto* bytes = std::get_if<std::vector<int64_t>>(value);
    if (bytes == nullptr) {
      return MakeError(ErrorCode::kDataLoss,
                       "tokenizer.ggml.precompiled_charsmap: expected an array of bytes");
    }
    for (const int64_t byte : *bytes) charsmap.push_back(static_cast<char>(byte & 0xFF));
    return Status::Ok();
  }

  void LoadWordPiece() {
    impl_->kind = "WordPiece";
    Normalizer::Steps normalizer;
    BertNormalization bert;
    bert.lowercase = Flag("normalizer.lowercase", true);
    bert.strip_accents = Flag("normalizer.strip_accents", bert.lowercase);
    normalizer.push_back(MakeBert(bert));
    impl_->normalizer = Normalizer(std::move(normalizer));
    Result<PreTokenizerPlan> plan = ParsePreTokenizer(nlohmann::json{{"type", "BertPreTokenizer"}});
    impl_->pretokenizer = PreTokenizer(std::move(plan).value().steps);
    // Files mark the begin of a word, where BERT marks what goes on.
    WordPieceOptions options;
    options.first_prefix = kSpaceMark;
    options.continuing_prefix.clear();
    options.unk_id = impl_->unk_id.value_or(-1);
    impl_->model = std::make_unique<WordPieceModel>(impl_->vocabulary, std::move(options));
    DecodeEscaped(/*strip_first_space=*/true);
    const auto cls = Id("cls_token_id").has_value() ? Id("cls_token_id") : impl_->bos_id;
    const auto sep =
        Id("seperator_token_id").has_value() ? Id("seperator_token_id") : impl_->eos_id;
    if (Flag("add_bos_token", true) && cls.has_value()) impl_->prefix_ids.push_back(*cls);
    if (sep.has_value()) impl_->suffix_ids.push_back(*sep);
  }

  /// Tokens that are matched as they are written.
  Status AddTokens() {
    const bool phi3 = IsPhi3();
    for (int32_t id = 0; id < size(); ++id) {
      const int64_t type = Type(id);
      AddedToken token;
      token.id = id;
      token.special = type == kControl || type == kUnknown;
      if (token.special) impl_->SetFlag(id, Tokenizer::Impl::kSpecial);
      if (!token.special && type != kUserDefined) continue;
      const std::string_view piece = impl_->vocabulary.Piece(id);
      if (piece.empty()) continue;
      token.rstrip =
          phi3 &&
          ((token.special && piece != "<unk>" && piece != "<s>" && piece != "<|endoftext|>") ||
           piece == "</s>");
      KVASIR_RETURN_IF_ERROR(impl_->raw_tokens.Add(piece, token));
      // Spaces inside user-defined pieces are escaped by some converters and left by others.
      if (!token.special && piece.find(kSpaceMark) != std::string_view::npos) {
        KVASIR_RETURN_IF_ERROR(impl_->raw_tokens.Add(ReplaceSpaceMarks(piece), token));
      }
    }
    return Status::Ok();
  }

  /// Phi-3's special tokens take the whitespace behind them, which files do not tell.
  [[nodiscard]] bool IsPhi3() const {
    std::string name(metadata_.String("general.name").value_or(""));
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    });
    return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
  }

  void AddEndsOfGeneration() {
    std::vector<int32_t>& ends = impl_->end_of_generation_ids;
    for (const char* name : {"eot_token_id", "eom_token_id", "fim_pad_token_id", "fim_rep_token_id",
                             "fim_sep_token_id"}) {
      if (const auto id = Id(name)) ends.push_back(*id);
    }
    const auto find = [&](std::string_view piece) { return impl_->vocabulary.Find(piece); };
    // gpt-oss ends a message, not the answer, with <|end|>.
    const bool harmony = find("<|return|>") >= 0 && find("<|call|>") >= 0;
    for (const std::string_view piece : kEndTokens) {
      const int32_t id = find(piece);
      if (id < 0 || (harmony && piece == "<|end|>")) continue;
      ends.push_back(id);
    }
    if (!impl_->eot_id.has_value()) {
      for (const std::string_view piece :
           {"<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>"}) {
        const int32_t id = find(piece);
        if (id < 0 || (harmony && piece == "<|end|>")) continue;
        impl_->eot_id = id;
        break;
      }
    }
  }

  const files::GgufMetadata& metadata_;
  const std::vector<int64_t>* types_ = nullptr;
  const std::vector<double>* scores_ = nullptr;
  std::unique_ptr<Tokenizer::Impl> impl_ = std::make_unique<Tokenizer::Impl>();
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromGguf(const files::GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl, Loader(metadata).Load());
  return std::make_unique<Tokenizer>(std::move(impl));
}

}  // namespace kvasir::text
