// tokenizer.json (Hugging Face tokenizers), with the names that tokenizer_config.json gives.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "files/printable.h"
#include "text/bpe_model.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_json_reader.h"
#include "text/unigram_model.h"
#include "text/wordpiece_model.h"

namespace kvasir::text {
namespace {

using nlohmann::json;

constexpr size_t kFileBytesMax = size_t{512} << 20;
// Parsed, a component takes up to 30 times its size; vocabulary and merges are not parsed so.
constexpr size_t kComponentBytesMax = size_t{16} << 20;
constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                        "sep_token", "cls_token", "mask_token"};

/// The file, cut into its components; the large ones stay text.
struct Parts {
  json added_tokens;
  json normalizer;
  json pre_tokenizer;
  json post_processor;
  json decoder;
  json model;  ///< without vocab and merges
  std::string_view vocab;
  std::string_view merges;
};

Result<json> ParseComponent(std::string_view name, std::string_view text) {
  if (text.size() > kComponentBytesMax) {
    return MakeError(ErrorCode::kDataLoss, "{}: {} bytes, at most {} are allowed", name,
                     text.size(), kComponentBytesMax);
  }
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return MakeError(ErrorCode::kDataLoss, "{}: broken JSON", name);
  return parsed;
}

Status ReadModel(JsonReader& reader, Parts& parts) {
  std::string key;
  parts.model = json::object();
  for (bool more = reader.EnterObject(); more && reader.NextKey(key);) {
    const std::string_view value = reader.SkipValue();
    if (key == "vocab") {
      parts.vocab = value;
    } else if (key == "merges") {
      parts.merges = value;
    } else if (!reader.failed()) {
      KVASIR_ASSIGN_OR_RETURN(parts.model[key],
                              ParseComponent("model." + files::Printable(key, 40), value));
    }
  }
  return Status::Ok();
}

Result<Parts> CutFile(std::string_view text) {
  if (text.size() > kFileBytesMax) {
    return MakeError(ErrorCode::kDataLoss, "{} bytes, at most {} are allowed", text.size(),
                     kFileBytesMax);
  }
  if (text.empty()) return MakeError(ErrorCode::kDataLoss, "the file is empty");
  Parts parts;
  JsonReader reader(text);
  std::string key;
  for (bool more = reader.EnterObject(); more && reader.NextKey(key);) {
    json* target = key == "added_tokens"     ? &parts.added_tokens
                   : key == "normalizer"     ? &parts.normalizer
                   : key == "pre_tokenizer"  ? &parts.pre_tokenizer
                   : key == "post_processor" ? &parts.post_processor
                   : key == "decoder"        ? &parts.decoder
                                             : nullptr;
    if (key == "model" && reader.Peek() == '{') {
      KVASIR_RETURN_IF_ERROR(ReadModel(reader, parts));
      continue;
    }
    const std::string_view value = reader.SkipValue();
    if (target == nullptr || reader.failed()) continue;
    KVASIR_ASSIGN_OR_RETURN(*target, ParseComponent(key, value));
  }
  if (reader.failed()) return reader.error();
  if (parts.vocab.empty()) {
    return MakeError(ErrorCode::kDataLoss, "model.vocab is missing");
  }
  return parts;
}

size_t CountStrings(std::string_view text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '"')) / 2;
}

/// Real vocabularies have few gaps. A small file may not name an id that is as large as a list of
/// all ids of the largest vocabulary.
int64_t IdMax(size_t tokens_count) {
  constexpr int64_t kGapsMax = 1 << 16;
  return std::min<int64_t>(kTokenIdMax, kGapsMax + 2 * static_cast<int64_t>(tokens_count));
}

Status CheckPiece(int64_t id, std::string_view piece, int64_t id_max) {
  if (id < 0 || id > id_max) {
    return MakeError(ErrorCode::kDataLoss, "token id {}: expected 0 to {}", id, id_max);
  }
  if (piece.size() > kPieceBytesMax) {
    return MakeError(ErrorCode::kDataLoss, "token {}: {} bytes, at most {} are allowed", id,
                     piece.size(), kPieceBytesMax);
  }
  return Status::Ok();
}

/// {"piece": id, …}
Status ReadVocabulary(std::string_view text, Vocabulary& vocabulary) {
  vocabulary.Reserve(CountStrings(text), text.size());
  JsonReader reader(text);
  std::string piece;
  int64_t id = 0;
  const int64_t id_max = IdMax(CountStrings(text));
  for (bool more = reader.EnterObject(); more && reader.NextKey(piece);) {
    if (!reader.ReadInteger(id)) break;
    KVASIR_RETURN_IF_ERROR(CheckPiece(id, piece, id_max));
    vocabulary.Add(static_cast<int32_t>(id), piece);
  }
  if (reader.failed()) return reader.error();
  return Status::Ok();
}

/// [["piece", score], …]
Status ReadScoredVocabulary(std::string_view text, Vocabulary& vocabulary,
                            std::vector<double>& scores) {
  vocabulary.Reserve(CountStrings(text), text.size());
  JsonReader reader(text);
  std::string piece;
  double score = 0;
  for (bool more = reader.EnterArray(); more && reader.NextElement();) {
    if (!reader.EnterArray() || !reader.NextElement() || !reader.ReadString(piece) ||
        !reader.NextElement() || !reader.ReadNumber(score) || reader.NextElement()) {
      break;
    }
    const auto id = static_cast<int64_t>(scores.size());
    KVASIR_RETURN_IF_ERROR(CheckPiece(id, piece, kTokenIdMax));
    vocabulary.Add(static_cast<int32_t>(id), piece);
    scores.push_back(score);
  }
  if (reader.failed()) return reader.error();
  return Status::Ok();
}

/// "left right" or ["left", "right"]. The pairs point into `storage`.
Status ReadMerges(std::string_view text, std::string& storage,
                  std::vector<BpeModel::Pair>& merges) {
  if (text.empty()) return Status::Ok();
  storage.reserve(text.size());  // unescaped strings are no longer: views into it stay valid
  merges.reserve(CountStrings(text));
  const auto keep = [&](std::string_view part) {
    const size_t begin = storage.size();
    storage += part;
    return std::string_view(storage).substr(begin);
  };
  JsonReader reader(text);
  std::string part;
  for (bool more = reader.EnterArray(); more && reader.NextElement();) {
    if (reader.Peek() == '"') {
      if (!reader.ReadString(part)) break;
      const size_t space = part.find(' ', 1);
      if (space == std::string::npos || space + 1 == part.size()) {
        return MakeError(ErrorCode::kDataLoss, "merge {}: expected two parts, got \"{}\"",
                         merges.size(), files::Printable(part));
      }
      const std::string_view whole = keep(part);
      merges.push_back({whole.substr(0, space), whole.substr(space + 1)});
    } else {
      if (!reader.EnterArray() || !reader.NextElement() || !reader.ReadString(part)) break;
      const std::string_view left = keep(part);
      if (!reader.NextElement() || !reader.ReadString(part) || reader.NextElement()) break;
      merges.push_back({left, keep(part)});
    }
  }
  if (reader.failed()) return reader.error();
  return Status::Ok();
}

bool BoolOr(const json& object, const char* field, bool absent) {
  const auto found = object.find(field);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : absent;
}

std::string StringOr(const json& object, const char* field, const std::string& absent = "") {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : absent;
}

/// A string, or an object with a "content".
std::string TokenString(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_object() ? StringOr(value, "content") : "";
}

class Loader {
 public:
  Loader(Parts parts, const json& config) : parts_(std::move(parts)), config_(config) {}

  Result<std::unique_ptr<Tokenizer::Impl>> Load() {
    KVASIR_ASSIGN_OR_RETURN(Normalizer::Steps normalizer, ParseNormalizer(parts_.normalizer));
    impl_->normalizer = Normalizer(std::move(normalizer));
    KVASIR_ASSIGN_OR_RETURN(PreTokenizerPlan plan, ParsePreTokenizer(parts_.pre_tokenizer));
    const std::string type = ModelType();
    if (type == "Unigram") {
      KVASIR_RETURN_IF_ERROR(
          ReadScoredVocabulary(parts_.vocab, impl_->vocabulary, unigram_.scores));
    } else {
      KVASIR_RETURN_IF_ERROR(ReadVocabulary(parts_.vocab, impl_->vocabulary));
    }
    model_size_ = impl_->vocabulary.size();
    KVASIR_RETURN_IF_ERROR(AddTokens());
    KVASIR_RETURN_IF_ERROR(LoadModel(type, plan));
    impl_->pretokenizer = PreTokenizer(std::move(plan.steps));
    KVASIR_RETURN_IF_ERROR(LoadPostProcessor(parts_.post_processor, 0));
    KVASIR_RETURN_IF_ERROR(LoadDecoder());
    LoadNames();
    impl_->Finish();
    return std::move(impl_);
  }

 private:
  [[nodiscard]] std::string ModelType() const {
    std::string type = StringOr(parts_.model, "type");
    if (!type.empty()) return type;
    if (!parts_.merges.empty()) return "BPE";  // files of before the field
    return !parts_.vocab.empty() && parts_.vocab[0] == '[' ? "Unigram" : "WordPiece";
  }

  Status AddTokens() {
    std::vector<AddedToken> tokens;
    if (!parts_.added_tokens.is_null() && !parts_.added_tokens.is_array()) {
      return MakeError(ErrorCode::kDataLoss, "added_tokens must be an array");
    }
    for (const json& entry : parts_.added_tokens) {
      if (!entry.is_object() || !entry.contains("id") || !entry["id"].is_number_integer()) {
        return MakeError(ErrorCode::kDataLoss, "added_tokens: expected objects with an id");
      }
      tokens.push_back(ToAddedToken(entry, entry["id"].get<int64_t>()));
    }
    AppendTokensOfConfig(tokens);
    const int64_t id_max = IdMax(static_cast<size_t>(impl_->vocabulary.size()) + tokens.size());
    for (AddedToken& token : tokens) KVASIR_RETURN_IF_ERROR(AddToken(token, id_max));
    return Status::Ok();
  }

  static AddedToken ToAddedToken(const json& entry, int64_t id) {
    AddedToken token;
    token.content = StringOr(entry, "content");
    token.id = static_cast<int32_t>(std::clamp<int64_t>(id, -1, kTokenIdMax + 1));
    token.single_word = BoolOr(entry, "single_word", false);
    token.lstrip = BoolOr(entry, "lstrip", false);
    token.rstrip = BoolOr(entry, "rstrip", false);
    token.special = BoolOr(entry, "special", false);
    token.normalized = BoolOr(entry, "normalized", !token.special);
    return token;
  }

  /// tokenizer_config.json may list tokens that tokenizer.json lacks.
  void AppendTokensOfConfig(std::vector<AddedToken>& tokens) const {
    const auto found = config_.find("added_tokens_decoder");
    if (!config_.is_object() || found == config_.end() || !found->is_object()) return;
    std::vector<std::string> known;
    known.reserve(tokens.size());
    for (const AddedToken& token : tokens) known.push_back(token.content);
    std::sort(known.begin(), known.end());
    for (const auto& [key, entry] : found->items()) {
      int64_t id = -1;
      JsonReader reader(key);
      if (!entry.is_object() || !reader.ReadInteger(id)) continue;
      AddedToken token = ToAddedToken(entry, id);
      const bool is_new = !token.content.empty() &&
                          !std::binary_search(known.begin(), known.end(), token.content) &&
                          !impl_->vocabulary.Has(token.id);
      if (is_new) tokens.push_back(std::move(token));
    }
  }

  Status AddToken(AddedToken& token, int64_t id_max) {
    if (token.content.empty()) return Status::Ok();  // as Hugging Face: it can never match
    KVASIR_RETURN_IF_ERROR(CheckPiece(token.id, token.content, id_max));
    const int32_t known = impl_->vocabulary.Find(token.content);
    if (known >= 0) {
      token.id = known;
    } else {
      if (impl_->vocabulary.Has(token.id)) token.id = impl_->vocabulary.size();
      KVASIR_RETURN_IF_ERROR(CheckPiece(token.id, token.content, id_max));
      impl_->vocabulary.Add(token.id, token.content);
    }
    if (token.special) impl_->SetFlag(token.id, Tokenizer::Impl::kSpecial);
    if (!token.normalized) return impl_->raw_tokens.Add(token.content, token);
    NormalizerBuffers buffers;
    const std::string_view content = impl_->normalizer.Apply(token.content, buffers);
    return content.empty() ? Status::Ok() : impl_->normalized_tokens.Add(content, token);
  }

  [[nodiscard]] int32_t UnknownId() const {
    const std::string unknown = StringOr(parts_.model, "unk_token");
    return unknown.empty() ? -1 : impl_->vocabulary.Find(unknown);
  }

  Status LoadModel(const std::string& type, PreTokenizerPlan& plan) {
    if (type == "BPE") return LoadBpe(plan);
    if (plan.ends_in_byte_level) plan.steps.push_back(MakeByteAlphabetStep());
    const Vocabulary& vocabulary = impl_->vocabulary;
    impl_->kind = type;
    if (type == "Unigram") return LoadUnigram();
    if (type == "WordPiece") {
      WordPieceOptions options;
      options.continuing_prefix = StringOr(parts_.model, "continuing_subword_prefix", "##");
      options.unk_id = vocabulary.Find(StringOr(parts_.model, "unk_token", "[UNK]"));
      const auto found = parts_.model.find("max_input_chars_per_word");
      if (found != parts_.model.end() && found->is_number_integer()) {
        options.word_characters_max = found->get<int64_t>();
      }
      impl_->model = std::make_unique<WordPieceModel>(vocabulary, std::move(options));
      return Status::Ok();
    }
    if (type == "WordLevel") {
      impl_->model = std::make_unique<WordLevelModel>(
          vocabulary, vocabulary.Find(StringOr(parts_.model, "unk_token", "<unk>")));
      return Status::Ok();
    }
    return MakeError(ErrorCode::kUnsupported, "model {} is not supported", files::Printable(type));
  }

  Status LoadBpe(PreTokenizerPlan& plan) {
    BpeOptions options;
    options.ignore_merges = BoolOr(parts_.model, "ignore_merges", false);
    options.byte_fallback = BoolOr(parts_.model, "byte_fallback", false);
    options.fuse_unk = BoolOr(parts_.model, "fuse_unk", false);
    options.unk_id = UnknownId();
    options.continuing_subword_prefix = StringOr(parts_.model, "continuing_subword_prefix");
    options.end_of_word_suffix = StringOr(parts_.model, "end_of_word_suffix");
    options.raw_bytes = plan.ends_in_byte_level && options.continuing_subword_prefix.empty() &&
                        options.end_of_word_suffix.empty() && HasByteAlphabet(impl_->vocabulary);
    if (plan.ends_in_byte_level && !options.raw_bytes) {
      plan.steps.push_back(MakeByteAlphabetStep());
    }
    impl_->kind = options.raw_bytes       ? "byte-level BPE"
                  : options.byte_fallback ? "BPE with byte fallback"
                                          : "BPE";
    std::string storage;
    std::vector<BpeModel::Pair> merges;
    KVASIR_RETURN_IF_ERROR(ReadMerges(parts_.merges, storage, merges));
    KVASIR_ASSIGN_OR_RETURN(impl_->model,
                            BpeModel::FromMerges(impl_->vocabulary, std::move(options), merges));
    return Status::Ok();
  }

  Status LoadUnigram() {
    const Vocabulary& vocabulary = impl_->vocabulary;
    const auto size = static_cast<size_t>(vocabulary.size());
    unigram_.scores.resize(size, 0.0);
    unigram_.matches_text.assign(size, true);
    unigram_.byte_fallback = BoolOr(parts_.model, "byte_fallback", false);
    const auto found = parts_.model.find("unk_id");
    if (found != parts_.model.end() && found->is_number_integer()) {
      const auto id = found->get<int64_t>();
      if (id < 0 || id >= model_size_) {
        return MakeError(ErrorCode::kDataLoss, "model.unk_id {}: expected less than {}", id,
                         model_size_);
      }
      unigram_.unk_id = static_cast<int32_t>(id);
    }
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      // Text that is spelled like a control token is text all the same.
      if (impl_->Flag(id, Tokenizer::Impl::kSpecial) || id >= model_size_ ||
          (unigram_.byte_fallback && ParseByteToken(vocabulary.Piece(id)).has_value())) {
        unigram_.matches_text[static_cast<size_t>(id)] = false;
      }
    }
    KVASIR_ASSIGN_OR_RETURN(impl_->model, UnigramModel::Create(vocabulary, std::move(unigram_)));
    return Status::Ok();
  }

  Status LoadPostProcessor(const json& component, int depth) {
    constexpr int kDepthMax = 8;
    if (component.is_null()) return Status::Ok();
    const std::string type = component.is_object() ? StringOr(component, "type") : "";
    if (type.empty() || depth > kDepthMax) {
      return MakeError(ErrorCode::kDataLoss, "post_processor: expected an object with a type");
    }
    if (type == "ByteLevel") return Status::Ok();  // about offsets only
    if (type == "Sequence") {
      const auto list = component.find("processors");
      if (list == component.end() || !list->is_array()) {
        return MakeError(ErrorCode::kDataLoss,
                         "post_processor Sequence: processors must be an array");
      }
      for (const json& element : *list) {
        KVASIR_RETURN_IF_ERROR(LoadPostProcessor(element, depth + 1));
      }
      return Status::Ok();
    }
    std::vector<int32_t> prefix;
    std::vector<int32_t> suffix;
    if (type == "TemplateProcessing") {
      KVASIR_RETURN_IF_ERROR(ReadTemplate(component, prefix, suffix));
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      KVASIR_RETURN_IF_ERROR(ReadNamedId(component, "cls", prefix));
      KVASIR_RETURN_IF_ERROR(ReadNamedId(component, "sep", suffix));
    } else {
      return MakeError(ErrorCode::kUnsupported, "post_processor {} is not supported",
                       files::Printable(type));
    }
    impl_->prefix_ids.insert(impl_->prefix_ids.begin(), prefix.begin(), prefix.end());
    impl_->suffix_ids.insert(impl_->suffix_ids.end(), suffix.begin(), suffix.end());
    return Status::Ok();
  }

  Status AppendId(const json& value, std::vector<int32_t>& out) const {
    constexpr size_t kAddedIdsMax = 64;
    const int64_t id = value.is_number_integer() ? value.get<int64_t>() : -1;
    if (id < 0 || id > kTokenIdMax || out.size() >= kAddedIdsMax) {
      return MakeError(ErrorCode::kDataLoss, "post_processor: expected at most {} token ids",
                       kAddedIdsMax);
    }
    out.push_back(static_cast<int32_t>(id));
    return Status::Ok();
  }

  /// "cls": ["<s>", 0]
  Status ReadNamedId(const json& component, const char* field, std::vector<int32_t>& out) const {
    const auto found = component.find(field);
    if (found == component.end() || !found->is_array() || found->size() != 2) {
      return MakeError(ErrorCode::kDataLoss, "post_processor: {} must be [token, id]", field);
    }
    return AppendId((*found)[1], out);
  }

  Status ReadTemplate(const json& component, std::vector<int32_t>& prefix,
                      std::vector<int32_t>& suffix) const {
    const Error broken =
        MakeError(ErrorCode::kDataLoss,
                  "post_processor TemplateProcessing: expected special tokens around one sequence");
    const json single = component.value("single", json());
    const json tokens = component.value("special_tokens", json());
    if (!single.is_array()) return broken;
    bool behind = false;
    for (const json& item : single) {
      if (item.is_object() && item.contains("Sequence")) {
        if (behind) return broken;
        behind = true;
        continue;
      }
      if (!item.is_object() || !item.contains("SpecialToken") ||
          !item["SpecialToken"].is_object()) {
        return broken;
      }
      const std::string name = StringOr(item["SpecialToken"], "id");
      if (!tokens.is_object() || !tokens.contains(name) || !tokens[name].is_object() ||
          !tokens[name].contains("ids") || !tokens[name]["ids"].is_array()) {
        return broken;
      }
      for (const json& id : tokens[name]["ids"]) {
        KVASIR_RETURN_IF_ERROR(AppendId(id, behind ? suffix : prefix));
      }
    }
    return behind ? Status::Ok() : Status(broken);
  }

  Status LoadDecoder() {
    KVASIR_ASSIGN_OR_RETURN(impl_->decoder, ParseDecoder(parts_.decoder));
    const Vocabulary& vocabulary = impl_->vocabulary;
    impl_->bytes.Reserve(static_cast<size_t>(vocabulary.size()), parts_.vocab.size() / 2);
    std::string text;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if (!vocabulary.Has(id)) continue;
      const std::string_view piece = vocabulary.Piece(id);
      const auto byte = impl_->decoder.byte_fallback ? ParseByteToken(piece) : std::nullopt;
      if (byte.has_value()) {
        impl_->SetFlag(id, Tokenizer::Impl::kByte);
        const char raw = static_cast<char>(*byte);
        impl_->bytes.Set(id, {&raw, 1});
      } else {
        impl_->bytes.Set(id, impl_->decoder.Apply(piece, /*first=*/false));
      }
    }
    return Status::Ok();
  }

  void LoadNames() {
    if (!config_.is_object()) return;
    for (const char* name : kNamedTokens) {
      const auto found = config_.find(name);
      const std::string token = found == config_.end() ? "" : TokenString(*found);
      if (!token.empty()) impl_->special_tokens[name] = token;
    }
    const auto extra = config_.find("extra_special_tokens");
    if (extra != config_.end() && extra->is_object()) {
      for (const auto& [name, value] : extra->items()) {
        const std::string token = TokenString(value);
        if (!token.empty()) impl_->special_tokens[name] = token;
      }
    }
    const auto id_of = [&](const char* name) -> std::optional<int32_t> {
      const auto found = impl_->special_tokens.find(name);
      const int32_t id =
          found == impl_->special_tokens.end() ? -1 : impl_->vocabulary.Find(found->second);
      return id >= 0 ? std::optional(id) : std::nullopt;
    };
    impl_->bos_id = id_of("bos_token");
    impl_->eos_id = id_of("eos_token");
    impl_->unk_id = id_of("unk_token");
    impl_->pad_id = id_of("pad_token");
  }

  Parts parts_;
  const json& config_;
  UnigramOptions unigram_;
  int32_t model_size_ = 0;  ///< ids from here on were added
  std::unique_ptr<Tokenizer::Impl> impl_ = std::make_unique<Tokenizer::Impl>();
};

Error InFile(const char* file, Error error) {
  error.message = std::string(file) + ": " + error.message;
  return error;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromHuggingFace(std::string_view tokenizer_json,
                                                              const json& tokenizer_config) {
  Result<Parts> parts = CutFile(tokenizer_json);
  if (!parts.ok()) return InFile("tokenizer.json", std::move(parts).error());
  Result<std::unique_ptr<Impl>> impl = Loader(std::move(parts).value(), tokenizer_config).Load();
  if (!impl.ok()) return InFile("tokenizer.json", std::move(impl).error());
  return std::make_unique<Tokenizer>(std::move(impl).value());
}

}  // namespace kvasir::text
