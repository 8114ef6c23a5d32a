// The tokenizer of an opened model folder or file.
#include "files/printable.h"
#include "text/tokenizer_impl.h"

namespace kvasir::text {
namespace {

/// An integer or a list of them under `key` of `config`, as far as they are tokens.
std::vector<int32_t> IdsUnder(const nlohmann::json& config, const char* key,
                              const Vocabulary& vocabulary) {
  std::vector<int32_t> ids;
  const auto add = [&](const nlohmann::json& value) {
    if (!value.is_number_integer()) return;
    const auto id = value.get<int64_t>();
    if (id >= 0 && id < vocabulary.size() && vocabulary.Has(static_cast<int32_t>(id))) {
      ids.push_back(static_cast<int32_t>(id));
    }
  };
  if (!config.is_object() || !config.contains(key)) return ids;
  if (config[key].is_array()) {
    for (const nlohmann::json& value : config[key]) add(value);
  } else {
    add(config[key]);
  }
  return ids;
}

/// Takes the first id of the configuration where the tokenizer's own files name none.
void NameFromConfig(const nlohmann::json& config, const char* key, const char* name,
                    Tokenizer::Impl& impl, std::optional<int32_t>& id) {
  if (id.has_value()) return;
  const std::vector<int32_t> ids = IdsUnder(config, key, impl.vocabulary);
  if (ids.empty()) return;
  id = ids.front();
  impl.special_tokens[name] = impl.vocabulary.Piece(*id);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromModelFiles(const files::ModelFiles& files) {
  const auto named = [&](Error error) {
    error.message = files::PrintablePath(files.path) + ": " + error.message;
    return error;
  };
  if (files.kind == files::ModelFiles::Kind::kGguf) {
    Result<std::unique_ptr<Tokenizer>> tokenizer = FromGguf(files.gguf->metadata);
    if (!tokenizer.ok()) return named(std::move(tokenizer).error());
    return tokenizer;
  }
  if (files.tokenizer_json.empty()) {
    return named(MakeError(ErrorCode::kNotFound, "there is no tokenizer.json"));
  }
  Result<std::unique_ptr<Tokenizer>> tokenizer =
      FromHuggingFace(files.tokenizer_json, files.tokenizer_config);
  if (!tokenizer.ok()) return named(std::move(tokenizer).error());
  Impl& impl = *(*tokenizer)->impl_;
  for (const nlohmann::json* config : {&files.generation_config, &files.config}) {
    NameFromConfig(*config, "bos_token_id", "bos_token", impl, impl.bos_id);
    NameFromConfig(*config, "eos_token_id", "eos_token", impl, impl.eos_id);
    NameFromConfig(*config, "pad_token_id", "pad_token", impl, impl.pad_id);
    for (const int32_t id : IdsUnder(*config, "eos_token_id", impl.vocabulary)) {
      impl.end_of_generation_ids.push_back(id);
    }
  }
  impl.Finish();
  return tokenizer;
}

}  // namespace kvasir::text
