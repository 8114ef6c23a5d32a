// POST /v1/chat/completions.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "server/chat_prompt.h"
#include "server/generation.h"
#include "server/logprobs.h"
#include "server/routes.h"

namespace kvasir::server {
namespace {

constexpr std::string_view kFingerprint = "kvasir-" KVASIR_VERSION;

class ChatForm final : public GenerationForm {
 public:
  ChatForm(std::string role, std::string echo_text, bool return_prompt_text)
      : role_(std::move(role)),
        echo_text_(std::move(echo_text)),
        return_prompt_text_(return_prompt_text) {}

  void AppendBegin(const GenerationView& view, std::string& out) override {
    AppendStart(view, "chat.completion.chunk", start_);
    for (int32_t i = 0; i < view.options.request.n; ++i) {
      out += "data: ";
      out += start_;
      fmt::format_to(std::back_inserter(out),
                     ",\"choices\":[{{\"index\":{},\"delta\":{{\"role\":", i);
      AppendJsonString(role_, out);
      out += ",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]";
      AppendPromptParts(view, out);
      if (view.options.continuous_usage) {
        Usage first = view.usage;
        first.completion_tokens = 0;
        out += ',';
        AppendUsage(view.context, first, true, out);
      }
      out += "}\n\n";
      if (!echo_text_.empty()) {
        out += "data: ";
        out += start_;
        fmt::format_to(std::back_inserter(out),
                       ",\"choices\":[{{\"index\":{},\"delta\":{{\"content\":", i);
        AppendJsonString(echo_text_, out);
        out += "},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}\n\n";
      }
    }
  }

  void AppendChunk(const GenerationView& view, const ChoiceState& choice, const Timings* timings,
                   std::string& out) override {
    out += "data: ";
    out += start_;
    out += ",\"choices\":[{\"index\":";
    AppendInt(static_cast<int64_t>(choice.index), out);
    out += ",\"delta\":{\"content\":";
    AppendJsonString(choice.text, out);
    out += "},\"logprobs\":";
    AppendLogprobs(view, choice, out);
    out += ",\"finish_reason\":";
    AppendFinish(choice, out);
    out += ",\"token_ids\":";
    AppendIds(view, choice, out);
    out += "}]";
    if (view.options.continuous_usage) {
      out += ',';
      AppendUsage(view.context, view.usage, true, out);
    }
    if (timings != nullptr) {
      out += ',';
      AppendTimings(view.usage, *timings, out);
    }
    if (choice.finish && !view.options.include_usage) AppendFingerprint(out);
    out += "}\n\n";
  }

  void AppendUsageChunk(const GenerationView& view, const Timings* timings,
                        std::string& out) override {
    out += "data: ";
    out += start_;
    out += ",\"choices\":[],";
    AppendUsage(view.context, view.usage, true, out);
    AppendFingerprint(out);
    if (timings != nullptr) {
      out += ',';
      AppendTimings(view.usage, *timings, out);
    }
    out += "}\n\n";
  }

  std::string Whole(const GenerationView& view, std::span<const ChoiceState> choices,
                    const Timings* timings) override {
    std::string out;
    AppendStart(view, "chat.completion", out);
    out += ",\"choices\":[";
    for (const ChoiceState& choice : choices) {
      if (choice.index > 0) out += ',';
      out += "{\"index\":";
      AppendInt(static_cast<int64_t>(choice.index), out);
      out += ",\"message\":{\"role\":";
      AppendJsonString(role_, out);
      out += ",\"content\":";
      AppendJsonString(echo_text_ + choice.text, out);
      out +=
          ",\"refusal\":null,\"annotations\":null,\"audio\":null,\"function_call\":null,"
          "\"reasoning\":null},\"logprobs\":";
      AppendLogprobs(view, choice, out);
      out += ",\"finish_reason\":";
      AppendFinish(choice, out);
      out += ",\"token_ids\":";
      AppendIds(view, choice, out);
      out += '}';
    }
    out += "],\"service_tier\":null";
    AppendFingerprint(out);
    out += ',';
    AppendUsage(view.context, view.usage, false, out);
    out += ",\"prompt_logprobs\":";
    if (view.options.prompt_logprobs >= 0) {
      AppendPromptLogprobs(Names(view), view.prompt_logprobs[0], view.options.prompt_logprobs, out);
    } else {
      out += "null";
    }
    AppendPromptParts(view, out);
    out += ",\"kv_transfer_params\":null";
    if (timings != nullptr) {
      out += ',';
      AppendTimings(view.usage, *timings, out);
    }
    out += '}';
    return out;
  }

 private:
  static TokenNames Names(const GenerationView& view) {
    return TokenNames{view.context.model.tokenizer, view.options.tokens_as_ids};
  }

  static void AppendStart(const GenerationView& view, std::string_view object, std::string& out) {
    out += "{\"id\":";
    AppendJsonString(view.id, out);
    fmt::format_to(std::back_inserter(out), ",\"object\":\"{}\",\"created\":{},\"model\":", object,
                   view.created_s);
    AppendJsonString(view.context.model_name(), out);
  }

  static void AppendFingerprint(std::string& out) {
    out += ",\"system_fingerprint\":\"";
    out += kFingerprint;
    out += '"';
  }

  static void AppendLogprobs(const GenerationView& view, const ChoiceState& choice,
                             std::string& out) {
    if (view.options.logprobs < 0) {
      out += "null";
      return;
    }
    out += "{\"content\":[";
    AppendChatLogprobs(Names(view), choice.logprobs, view.options.logprobs, out);
    out += "]}";
  }

  // "stop_reason" stands beside a finish_reason, and beside null in no chunk.
  static void AppendFinish(const ChoiceState& choice, std::string& out) {
    if (!choice.finish) {
      out += "null";
      return;
    }
    out += '"';
    out += choice.finish->reason;
    out += "\",\"stop_reason\":";
    AppendStopReason(choice.finish->stop_reason, out);
  }

  static void AppendIds(const GenerationView& view, const ChoiceState& choice, std::string& out) {
    if (view.options.return_token_ids) {
      AppendTokenIds(choice.token_ids, out);
    } else {
      out += "null";
    }
  }

  void AppendPromptParts(const GenerationView& view, std::string& out) const {
    out += ",\"prompt_token_ids\":";
    if (view.options.return_token_ids) {
      AppendTokenIds(view.prompts[0].ids, out);
    } else {
      out += "null";
    }
    out += ",\"prompt_text\":";
    if (return_prompt_text_) {
      AppendJsonString(view.prompts[0].text, out);
    } else {
      out += "null";
    }
  }

  std::string role_;
  std::string echo_text_;
  bool return_prompt_text_;
  std::string start_;  ///< what every chunk begins with
};

// `logprobs` is a switch here, `top_logprobs` the number.
void ReadLogprobs(const Context& context, const Fields& fields, GenerationOptions& options) {
  const bool wanted = fields.Bool("logprobs").value_or(false);
  const int64_t max = context.config.max_logprobs;
  const std::optional<int64_t> top = fields.Int("top_logprobs");
  if (top && (*top < 0 || *top > max)) {
    fields.Semantic("top_logprobs",
                    fmt::format("top_logprobs must be in [0, {}], got {}.", max, *top));
    return;
  }
  if (top && *top > 0 && !wanted) {
    fields.Semantic("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.");
    return;
  }
  if (!options.request.sampling.logprob_token_ids.empty() && !wanted) {
    fields.Semantic("logprob_token_ids",
                    "when using `logprob_token_ids`, `logprobs` must be set to true.");
    return;
  }
  if (wanted) options.logprobs = static_cast<int32_t>(top.value_or(0));
}

void RefuseMedia(const Fields& fields) {
  if (fields.Has("audio")) {
    fields.problems().AddSemantic(Unsupported("audio", "this model writes text alone"));
  }
  if (const auto modalities = fields.Strings("modalities", 16)) {
    for (const std::string& modality : *modalities) {
      if (modality != "text") {
        fields.problems().AddSemantic(Unsupported("modalities", "this model writes text alone"));
      }
    }
  }
  if (fields.Has("web_search_options")) {
    fields.problems().AddSemantic(Unsupported("web_search_options", "there is no web search"));
  }
}

}  // namespace

void HandleChatCompletions(Context& context, const std::shared_ptr<Exchange>& exchange) {
  Json body;
  if (const auto error = ParseBody(exchange->request, body)) return exchange->Fail(*error);
  exchange->request.body = {};
  Problems problems;
  const Fields fields(body, "body", problems);
  if (const auto error = CheckModel(context, fields)) return exchange->Fail(*error);

  GenerationOptions options;
  ReadGenerationOptions(context, *exchange, fields, options);
  ReadLogprobs(context, fields, options);
  RefuseMedia(fields);
  const auto positive = [](int64_t v) { return v >= 1; };
  options.max_tokens = fields.IntIn("max_completion_tokens", "at least 1", positive);
  if (options.max_tokens) {
    options.max_tokens_field = "max_completion_tokens";
  } else {
    options.max_tokens = fields.IntIn("max_tokens", "at least 1", positive);
  }
  const bool echo = fields.Bool("echo").value_or(false);
  const bool return_prompt_text = fields.Bool("return_prompt_text").value_or(false);

  ChatPrompt chat;
  if (const auto error = BuildChatPrompt(context, fields, TextBytesMax(context, options), chat)) {
    return exchange->Fail(*error);
  }
  body = Json();
  TruncatePrompt(context, options, chat.ids);
  Prompt prompt;
  if (const auto error = ResolveMaxTokens(context, options, static_cast<int64_t>(chat.ids.size()),
                                          std::nullopt, prompt.max_tokens)) {
    return exchange->Fail(*error);
  }
  prompt.ids = std::move(chat.ids);
  prompt.text = std::move(chat.text);
  options.request.sampling.logprobs = options.logprobs;
  options.request.prompt_logprobs = options.prompt_logprobs;

  auto form = std::make_unique<ChatForm>(std::move(chat.role), echo ? chat.echo_text : "",
                                         return_prompt_text);
  std::vector<Prompt> prompts;
  prompts.push_back(std::move(prompt));
  std::make_shared<Generation>(context, exchange, std::move(options), std::move(prompts),
                               "chatcmpl-" + exchange->id, std::move(form))
      ->Start();
}

}  // namespace kvasir::server
