// POST /tokenize and /detokenize, GET /tokenizer_info.
#include <fmt/format.h>

#include "server/chat_prompt.h"
#include "server/exchange.h"
#include "server/generation.h"
#include "server/routes.h"
#include "server/schema.h"

namespace kvasir::server {
namespace {

constexpr int64_t kDetokenizeMax = 4'000'000;

}  // namespace

void HandleTokenize(Context& context, const std::shared_ptr<Exchange>& exchange) {
  Json body;
  if (const auto error = ParseBody(exchange->request, body)) return exchange->Fail(*error);
  Problems problems;
  const Fields fields(body, "body", problems);
  if (const auto error = CheckModel(context, fields)) return exchange->Fail(*error);
  const bool token_strings = fields.Bool("return_token_strs").value_or(false);
  const text::Tokenizer& tokenizer = *context.model.tokenizer;
  std::vector<TokenId> ids;
  if (fields.Has("messages")) {
    ChatPrompt chat;
    if (const auto error = BuildChatPrompt(context, fields, std::nullopt, chat)) {
      return exchange->Fail(*error);
    }
    ids = std::move(chat.ids);
  } else {
    const std::optional<std::string> prompt = fields.String("prompt");
    if (!fields.Has("prompt")) fields.Problem("prompt", "field required (or `messages`)");
    const bool special = fields.Bool("add_special_tokens").value_or(true);
    if (const auto error = problems.ToError()) return exchange->Fail(*error);
    ids = tokenizer.Encode(*prompt, text::EncodeOptions{.add_special_tokens = special});
  }
  std::string out = fmt::format("{{\"count\":{},\"max_model_len\":{},\"tokens\":", ids.size(),
                                context.max_model_len());
  AppendTokenIds(ids, out);
  out += ",\"token_strs\":";
  if (token_strings) {
    out += '[';
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i > 0) out += ',';
      AppendJsonString(tokenizer.TokenPiece(ids[i]), out);
    }
    out += ']';
  } else {
    out += "null";
  }
  out += '}';
  exchange->RespondJson(std::move(out));
}

void HandleDetokenize(Context& context, const std::shared_ptr<Exchange>& exchange) {
  Json body;
  if (const auto error = ParseBody(exchange->request, body)) return exchange->Fail(*error);
  Problems problems;
  const Fields fields(body, "body", problems);
  if (const auto error = CheckModel(context, fields)) return exchange->Fail(*error);
  const auto tokens = fields.Ints("tokens", 0, context.model.vocab_size - 1, kDetokenizeMax);
  if (!fields.Has("tokens")) fields.Problem("tokens", "field required");
  const bool skip = fields.Bool("skip_special_tokens").value_or(false);
  if (const auto error = problems.ToError()) return exchange->Fail(*error);
  const std::vector<TokenId> ids(tokens->begin(), tokens->end());
  std::string out = "{\"prompt\":";
  AppendJsonString(context.model.tokenizer->Decode(ids, skip), out);
  out += '}';
  exchange->RespondJson(std::move(out));
}

void HandleTokenizerInfo(Context& context, const std::shared_ptr<Exchange>& exchange) {
  const text::Tokenizer& tokenizer = *context.model.tokenizer;
  Json info = {{"tokenizer_class", tokenizer.kind()},
               {"vocab_size", tokenizer.vocab_size()},
               {"model_max_length", context.max_model_len()},
               {"add_bos_token", tokenizer.adds_bos()}};
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    info[name] = nullptr;
  }
  for (const auto& [name, token] : tokenizer.special_tokens()) info[name] = token;
  info["chat_template"] = nullptr;
  if (context.model.chat_template != nullptr) {
    info["chat_template"] = context.model.chat_template->config().source;
  }
  exchange->RespondJson(info.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace kvasir::server
