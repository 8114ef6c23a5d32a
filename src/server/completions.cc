// POST /v1/completions.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "server/generation.h"
#include "server/logprobs.h"
#include "server/routes.h"

namespace kvasir::server {
namespace {

constexpr int64_t kMaxTokensDefault = 16;
constexpr size_t kChoicesMax = 4096;  // prompts times n

class CompletionForm final : public GenerationForm {
 public:
  CompletionForm(const Context& context, const GenerationOptions& options, bool echo,
                 size_t choices_count)
      : echo_(echo),
        logprobs_(choices_count,
                  CompletionLogprobs(TokenNames{context.model.tokenizer, options.tokens_as_ids},
                                     options.logprobs, options.output.skip_special_tokens)) {}

  void AppendBegin(const GenerationView& view, std::string&) override { AppendStart(view, start_); }

  void AppendChunk(const GenerationView& view, const ChoiceState& choice, const Timings* timings,
                   std::string& out) override {
    const bool first = !choice.begun;
    out += "data: ";
    out += start_;
    out += ",\"choices\":[{\"index\":";
    AppendInt(static_cast<int64_t>(choice.index), out);
    out += ",\"text\":\"";
    if (first && echo_) AppendJsonEscaped(view.prompts[choice.prompt].text, out);
    AppendJsonEscaped(choice.text, out);
    out += "\",\"logprobs\":";
    AppendLogprobs(view, choice, first, out);
    AppendFinish(choice, out);
    out += ",\"prompt_token_ids\":";
    AppendPromptIds(view, choice, first, out);
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
    out += "}\n\n";
  }

  void AppendUsageChunk(const GenerationView& view, const Timings* timings,
                        std::string& out) override {
    out += "data: ";
    out += start_;
    out += ",\"choices\":[],";
    AppendUsage(view.context, view.usage, true, out);
    if (timings != nullptr) {
      out += ',';
      AppendTimings(view.usage, *timings, out);
    }
    out += "}\n\n";
  }

  std::string Whole(const GenerationView& view, std::span<const ChoiceState> choices,
                    const Timings* timings) override {
    std::string out;
    AppendStart(view, out);
    out += ",\"choices\":[";
    for (const ChoiceState& choice : choices) {
      if (choice.index > 0) out += ',';
      out += "{\"index\":";
      AppendInt(static_cast<int64_t>(choice.index), out);
      out += ",\"text\":\"";
      if (echo_) AppendJsonEscaped(view.prompts[choice.prompt].text, out);
      AppendJsonEscaped(choice.text, out);
      out += "\",\"logprobs\":";
      AppendLogprobs(view, choice, true, out);
      AppendFinish(choice, out);
      out += ",\"token_ids\":";
      AppendIds(view, choice, out);
      out += ",\"prompt_logprobs\":";
      if (view.options.prompt_logprobs >= 0) {
        AppendPromptLogprobs(TokenNames{view.context.model.tokenizer, view.options.tokens_as_ids},
                             view.prompt_logprobs[choice.prompt], view.options.prompt_logprobs,
                             out);
      } else {
        out += "null";
      }
      out += ",\"prompt_token_ids\":";
      AppendPromptIds(view, choice, true, out);
      out += '}';
    }
    out += "],\"service_tier\":null,\"system_fingerprint\":\"kvasir-" KVASIR_VERSION "\",";
    AppendUsage(view.context, view.usage, false, out);
    out += ",\"kv_transfer_params\":null";
    if (timings != nullptr) {
      out += ',';
      AppendTimings(view.usage, *timings, out);
    }
    out += '}';
    return out;
  }

 private:
  static void AppendStart(const GenerationView& view, std::string& out) {
    out += "{\"id\":";
    AppendJsonString(view.id, out);
    fmt::format_to(std::back_inserter(out),
                   ",\"object\":\"text_completion\",\"created\":{},\"model\":", view.created_s);
    AppendJsonString(view.context.model_name(), out);
  }

  void AppendLogprobs(const GenerationView& view, const ChoiceState& choice, bool first,
                      std::string& out) {
    if (view.options.logprobs < 0) {
      out += "null";
      return;
    }
    CompletionLogprobs& logprobs = logprobs_[choice.index];
    if (first && echo_) {
      logprobs.AddUnknown(view.prompts[choice.prompt].ids.front());
      for (const TokenLogprobs& token : view.prompt_logprobs[choice.prompt]) logprobs.Add(token);
    }
    for (const TokenLogprobs& token : choice.logprobs) logprobs.Add(token);
    if (logprobs.empty() && view.options.stream) {
      out += "null";
      return;
    }
    logprobs.Take(out);
  }

  static void AppendFinish(const ChoiceState& choice, std::string& out) {
    if (!choice.finish) {
      out += ",\"finish_reason\":null,\"stop_reason\":null";
      return;
    }
    out += ",\"finish_reason\":\"";
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

  static void AppendPromptIds(const GenerationView& view, const ChoiceState& choice, bool first,
                              std::string& out) {
    if (view.options.return_token_ids && first) {
      AppendTokenIds(view.prompts[choice.prompt].ids, out);
    } else {
      out += "null";
    }
  }

  bool echo_;
  std::vector<CompletionLogprobs> logprobs_;  ///< by choice
  std::string start_;                         ///< what every chunk begins with
};

constexpr std::string_view kNoPrompt = "prompt must be provided and non-empty.";

// One prompt of ids; false where a problem was noted.
bool ReadIds(const Context& context, const Fields& fields, const Json& list,
             const std::string& path, Prompt& prompt) {
  if (list.empty()) {
    fields.Semantic("prompt", std::string(kNoPrompt));
    return false;
  }
  prompt.ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<int64_t> id = AsInt(list[i]);
    if (!id) {
      fields.problems().Add(fmt::format("{}[{}]", path, i),
                            fmt::format("expected a token id, got {}", ValueText(list[i])));
      return false;
    }
    if (*id < 0 || *id >= context.model.vocab_size) {
      fields.Semantic(
          "prompt", fmt::format("prompt: token id {} is outside of the vocabulary (0 to {}).", *id,
                                context.model.vocab_size - 1));
      return false;
    }
    prompt.ids.push_back(static_cast<TokenId>(*id));
  }
  return true;
}

bool ReadText(const Fields& fields, const Json& text, std::vector<Prompt>& prompts) {
  Prompt& prompt = prompts.emplace_back();
  prompt.text = text.get<std::string>();
  if (prompt.text.empty()) {
    fields.Semantic("prompt", std::string(kNoPrompt));
    return false;
  }
  return true;
}

// A string, a list of strings, a list of ids, or a list of lists of ids.
void ReadPrompts(const Context& context, const Fields& fields, std::vector<Prompt>& prompts) {
  const Json* value = fields.Find("prompt");
  const std::string path = fields.PathOf("prompt");
  if (value == nullptr || (value->is_array() && value->empty())) {
    fields.Semantic("prompt", std::string(kNoPrompt));
    return;
  }
  if (value->is_string()) {
    ReadText(fields, *value, prompts);
    return;
  }
  if (!value->is_array()) {
    fields.Problem("prompt",
                   fmt::format("expected a string, a list of strings, a list of token ids "
                               "or a list of such lists, got {}",
                               TypeName(*value)));
    return;
  }
  if (value->front().is_number()) {
    if (!ReadIds(context, fields, *value, path, prompts.emplace_back())) prompts.clear();
    return;
  }
  if (static_cast<int64_t>(value->size()) > context.config.max_prompts) {
    fields.Semantic("prompt", fmt::format("prompt can hold at most {} prompts, got {}.",
                                          context.config.max_prompts, value->size()));
    return;
  }
  for (size_t i = 0; i < value->size(); ++i) {
    const Json& item = (*value)[i];
    const std::string at = fmt::format("{}[{}]", path, i);
    if (item.is_string()) {
      if (!ReadText(fields, item, prompts)) return;
    } else if (item.is_array()) {
      if (!ReadIds(context, fields, item, at, prompts.emplace_back())) return;
    } else {
      fields.problems().Add(
          at, fmt::format("expected a string or a list of token ids, got {}", TypeName(item)));
      return;
    }
  }
}

void ReadLogprobs(const Context& context, const Fields& fields, GenerationOptions& options) {
  const int64_t max = context.config.max_logprobs;
  const std::optional<int64_t> asked = fields.Int("logprobs");
  if (asked && (*asked < 0 || *asked > max)) {
    fields.Semantic("logprobs", fmt::format("logprobs must be in [0, {}], got {}.", max, *asked));
    return;
  }
  if (asked) options.logprobs = static_cast<int32_t>(*asked);
  if (!options.request.sampling.logprob_token_ids.empty() && !asked) {
    fields.Semantic("logprob_token_ids", "when using `logprob_token_ids`, `logprobs` must be set.");
  }
}

void ReadMaxTokens(const Fields& fields, bool echo, GenerationOptions& options) {
  const int64_t least = echo ? 0 : 1;
  options.max_tokens = fields.IntIn("max_tokens", fmt::format("at least {}", least),
                                    [&](int64_t v) { return v >= least; });
  const std::optional<int64_t> other =
      fields.IntIn("max_completion_tokens", fmt::format("at least {}", least),
                   [&](int64_t v) { return v >= least; });
  if (!options.max_tokens && other) {
    options.max_tokens = other;
    options.max_tokens_field = "max_completion_tokens";
  }
}

}  // namespace

void HandleCompletions(Context& context, const std::shared_ptr<Exchange>& exchange) {
  Json body;
  if (const auto error = ParseBody(exchange->request, body)) return exchange->Fail(*error);
  exchange->request.body = {};
  Problems problems;
  const Fields fields(body, "body", problems);
  if (const auto error = CheckModel(context, fields)) return exchange->Fail(*error);

  GenerationOptions options;
  ReadGenerationOptions(context, *exchange, fields, options);
  ReadLogprobs(context, fields, options);
  const bool echo = fields.Bool("echo").value_or(false);
  ReadMaxTokens(fields, echo, options);
  const bool add_special_tokens = fields.Bool("add_special_tokens").value_or(true);
  std::vector<Prompt> prompts;
  ReadPrompts(context, fields, prompts);
  const size_t choices_count = prompts.size() * static_cast<size_t>(options.request.n);
  if (choices_count > kChoicesMax) {
    fields.Semantic("n", fmt::format("{} prompts with n={} are more than {} choices.",
                                     prompts.size(), options.request.n, kChoicesMax));
  }
  if (const auto error = problems.ToError()) return exchange->Fail(*error);
  body = Json();

  const std::optional<size_t> text_bytes_max = TextBytesMax(context, options);
  for (Prompt& prompt : prompts) {
    const bool from_text = prompt.ids.empty();
    if (from_text) {
      if (text_bytes_max && prompt.text.size() > *text_bytes_max) {
        return exchange->Fail(TextTooLong(context, prompt.text.size(), "prompt"));
      }
      prompt.ids = context.model.tokenizer->Encode(
          prompt.text, text::EncodeOptions{.add_special_tokens = add_special_tokens});
      if (prompt.ids.empty()) {
        return exchange->Fail(BadRequest("The prompt has no tokens.", "prompt"));
      }
    }
    const size_t count = prompt.ids.size();
    TruncatePrompt(context, options, prompt.ids);
    if (echo && (!from_text || prompt.ids.size() < count)) {
      prompt.text = context.model.tokenizer->Decode(prompt.ids, options.output.skip_special_tokens);
    }
    if (const auto error =
            ResolveMaxTokens(context, options, static_cast<int64_t>(prompt.ids.size()),
                             kMaxTokensDefault, prompt.max_tokens)) {
      return exchange->Fail(*error);
    }
  }
  options.request.sampling.logprobs = options.logprobs;
  options.request.prompt_logprobs = std::max(options.prompt_logprobs, echo ? options.logprobs : -1);

  auto form = std::make_unique<CompletionForm>(context, options, echo, choices_count);
  std::make_shared<Generation>(context, exchange, std::move(options), std::move(prompts),
                               "cmpl-" + exchange->id, std::move(form))
      ->Start();
}

}  // namespace kvasir::server
