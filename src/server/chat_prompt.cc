#include "server/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace kvasir::server {
namespace {

constexpr size_t kMessagesMax = 65'536;
constexpr std::array<std::string_view, 5> kTextParts = {"text", "input_text", "output_text",
                                                        "refusal", "thinking"};
constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium",
                                                      "high", "xhigh",   "max"};
// Names that belong to the server or to the template's own environment.
constexpr std::array<std::string_view, 12> kReservedKwargs = {
    "chat_template",          "tokenize",    "messages",  "tools",     "documents",
    "add_generation_prompt",  "bos_token",   "eos_token", "namespace", "raise_exception",
    "continue_final_message", "strftime_now"};

template <typename Names>
bool Contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void CheckPart(const Json& part, const std::string& path, Problems& problems) {
  if (part.is_string()) return;
  if (!part.is_object()) {
    problems.Add(path, fmt::format("expected a string or an object, got {}", TypeName(part)));
    return;
  }
  const Fields fields(part, path, problems);
  const std::optional<std::string> type = fields.String("type");
  if (!type) {
    if (!fields.Has("type")) problems.Add(path + ".type", "field required");
    return;
  }
  if (!Contains(kTextParts, *type)) {
    problems.AddSemantic(BadRequest(
        fmt::format("`{}.type` is not supported: this model reads text alone, got a part of type "
                    "'{}'",
                    path.substr(path.find('.') + 1), Shortened(*type, 64)),
        path.substr(path.find('.') + 1) + ".type"));
    return;
  }
  const std::string_view member = *type == "refusal"    ? "refusal"
                                  : *type == "thinking" ? "thinking"
                                                        : "text";
  if (!fields.Has(member)) {
    problems.Add(fields.PathOf(member), "field required");
  } else {
    (void)fields.String(member);
  }
}

void CheckToolCalls(const Json& calls, const std::string& path, Problems& problems) {
  if (!calls.is_array()) {
    problems.Add(path, fmt::format("expected a list, got {}", TypeName(calls)));
    return;
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (!calls[i].is_object()) {
      problems.Add(at, fmt::format("expected an object, got {}", TypeName(calls[i])));
      continue;
    }
    const Fields fields(calls[i], at, problems);
    const Json* function = fields.Object("function");
    if (function == nullptr) {
      if (!fields.Has("function")) problems.Add(at + ".function", "field required");
      continue;
    }
    const Fields inner(*function, at + ".function", problems);
    if (!inner.Has("name")) problems.Add(at + ".function.name", "field required");
    (void)inner.String("name");
  }
}

void CheckMessage(const Json& message, const std::string& path, Problems& problems) {
  if (!message.is_object()) {
    problems.Add(path, fmt::format("expected an object, got {}", TypeName(message)));
    return;
  }
  const Fields fields(message, path, problems);
  if (!fields.Has("role")) problems.Add(path + ".role", "field required");
  (void)fields.String("role");
  if (const Json* content = fields.Find("content"); content != nullptr && !content->is_string()) {
    if (!content->is_array()) {
      problems.Add(path + ".content",
                   fmt::format("expected a string or a list of parts, got {}", TypeName(*content)));
    } else {
      for (size_t i = 0; i < content->size(); ++i) {
        CheckPart((*content)[i], fmt::format("{}.content[{}]", path, i), problems);
      }
    }
  }
  if (const Json* calls = fields.Find("tool_calls")) {
    CheckToolCalls(*calls, path + ".tool_calls", problems);
  }
}

const Json* ReadMessages(const Fields& fields) {
  const Json* messages = fields.Array("messages");
  if (messages == nullptr) {
    if (!fields.Has("messages")) fields.Problem("messages", "field required");
    return nullptr;
  }
  if (messages->empty()) {
    fields.Semantic("messages", "messages must hold at least one message.");
    return nullptr;
  }
  if (messages->size() > kMessagesMax) {
    fields.Semantic("messages", fmt::format("messages can have at most {} entries, got {}.",
                                            kMessagesMax, messages->size()));
    return nullptr;
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    CheckMessage((*messages)[i], fmt::format("{}[{}]", fields.PathOf("messages"), i),
                 fields.problems());
  }
  return messages;
}

// Tools need a parser of their calls, which is not here; what asks for none is fine.
void RefuseTools(const Fields& fields) {
  if (const Json* tools = fields.Array("tools")) {
    if (tools->empty()) {
      fields.Semantic("tools", "tools cannot be an empty list.");
    } else {
      fields.problems().AddSemantic(Unsupported("tools", "tool calls are not available"));
    }
  }
  if (const Json* choice = fields.Find("tool_choice")) {
    const bool harmless =
        choice->is_string() && (*choice == Json("none") || *choice == Json("auto"));
    if (!harmless) {
      fields.problems().AddSemantic(Unsupported("tool_choice", "tool calls are not available"));
    }
  }
  for (const std::string_view name : {"functions", "function_call"}) {
    const Json* value = fields.Find(name);
    if (value != nullptr && *value != Json("none")) {
      fields.problems().AddSemantic(Unsupported(std::string(name), "tool calls are not available"));
    }
  }
}

void ReadKwargs(const Context& context, const Fields& fields, Json& kwargs) {
  kwargs = context.config.default_chat_template_kwargs;
  if (const Json* given = fields.Object("chat_template_kwargs")) {
    if (const std::optional<std::string> name = ReservedTemplateKwarg(*given)) {
      fields.Semantic("chat_template_kwargs",
                      fmt::format("chat_template_kwargs cannot set '{}'.", *name));
      return;
    }
    for (const auto& [key, value] : given->get_ref<const Json::object_t&>()) kwargs[key] = value;
  }
  if (const std::optional<std::string> effort = fields.String("reasoning_effort")) {
    if (!Contains(kEfforts, *effort)) {
      fields.Semantic(
          "reasoning_effort",
          fmt::format("reasoning_effort must be one of none, minimal, low, medium, high, "
                      "xhigh, max, got '{}'.",
                      Shortened(*effort, 32)));
      return;
    }
    kwargs["reasoning_effort"] = *effort;
    if (!kwargs.contains("enable_thinking")) kwargs["enable_thinking"] = *effort != "none";
  }
}

std::string TextOf(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) return text;
  for (const Json& part : content) {
    if (!text.empty()) text += '\n';
    if (part.is_string()) {
      text += part.get<std::string>();
    } else if (const auto found = part.find("text"); found != part.end() && found->is_string()) {
      text += found->get<std::string>();
    }
  }
  return text;
}

std::optional<ApiError> PickTemplate(const Context& context, const Fields& fields,
                                     std::unique_ptr<text::ChatTemplate>& own,
                                     const text::ChatTemplate*& chosen) {
  chosen = context.model.chat_template;
  const std::optional<std::string> source = fields.String("chat_template");
  if (source) {
    if (!context.config.trust_request_chat_template) {
      return Unsupported("chat_template",
                         "templates in requests are refused; the server's flag "
                         "--trust-request-chat-template allows them");
    }
    text::ChatTemplateConfig config;
    if (chosen != nullptr) {
      config = chosen->config();
      config.tool_use_source.reset();
    } else {
      const text::Tokenizer& tokenizer = *context.model.tokenizer;
      if (!tokenizer.bos_token().empty()) config.bos_token = tokenizer.bos_token();
      if (!tokenizer.eos_token().empty()) config.eos_token = tokenizer.eos_token();
    }
    config.source = *source;
    Result<std::unique_ptr<text::ChatTemplate>> made =
        text::ChatTemplate::Create(std::move(config));
    if (!made.ok()) return BadRequest(made.error().message, "chat_template");
    own = std::move(made).value();
    chosen = own.get();
  }
  if (chosen == nullptr && !context.model.chat_template_error.empty()) {
    return BadRequest(fmt::format("The model's chat template cannot be used: {}. Start the server "
                                  "with --chat-template FILE, or send a finished prompt to "
                                  "/v1/completions.",
                                  context.model.chat_template_error),
                      "messages");
  }
  if (chosen == nullptr) {
    return BadRequest(
        "This model has no chat template, so chat requests cannot be turned into a prompt. Start "
        "the server with --chat-template FILE, or send a finished prompt to /v1/completions.",
        "messages");
  }
  return std::nullopt;
}

// Every text in `value`, names of members too.
Json Marked(const text::Tokenizer& tokenizer, const Json& value, bool special_only) {
  if (value.is_string()) {
    return tokenizer.Mark(value.get_ref<const std::string&>(), special_only);
  }
  if (value.is_array()) {
    Json marked = Json::array();
    for (const Json& item : value) marked.push_back(Marked(tokenizer, item, special_only));
    return marked;
  }
  if (value.is_object()) {
    Json marked = Json::object();
    for (const auto& [name, member] : value.get_ref<const Json::object_t&>()) {
      marked[tokenizer.Mark(name, special_only)] = Marked(tokenizer, member, special_only);
    }
    return marked;
  }
  return value;
}

// What users write becomes text that no template and no tokenizer takes for a token. Templates cut
// an assistant's turns at `</think>`, so there only special tokens are marked.
void MarkRequest(const text::Tokenizer& tokenizer, text::ChatRequest& request) {
  for (Json& message : request.messages) {
    const auto role = message.find("role");
    const bool assistant = role != message.end() && *role == Json("assistant");
    message = Marked(tokenizer, message, assistant);
  }
  request.documents = Marked(tokenizer, request.documents, false);
  request.template_kwargs = Marked(tokenizer, request.template_kwargs, false);
}

}  // namespace

std::optional<std::string> ReservedTemplateKwarg(const Json& kwargs) {
  for (const auto& [key, value] : kwargs.get_ref<const Json::object_t&>()) {
    if (Contains(kReservedKwargs, key)) return key;
  }
  return std::nullopt;
}

std::optional<ApiError> BuildChatPrompt(const Context& context, const Fields& fields,
                                        std::optional<size_t> text_bytes_max, ChatPrompt& prompt) {
  const Json* messages = ReadMessages(fields);
  RefuseTools(fields);
  text::ChatRequest request;
  const std::optional<bool> generation_prompt = fields.Bool("add_generation_prompt");
  request.add_generation_prompt = generation_prompt.value_or(true);
  request.continue_final_message = fields.Bool("continue_final_message").value_or(false);
  // Both are true only where both were asked for: continuing means no new turn.
  if (request.continue_final_message) {
    if (generation_prompt.value_or(false)) {
      fields.Semantic("continue_final_message",
                      "Cannot set both `continue_final_message` and `add_generation_prompt` to "
                      "True.");
    }
    request.add_generation_prompt = false;
  }
  ReadKwargs(context, fields, request.template_kwargs);
  if (const Json* documents = fields.Array("documents")) {
    for (size_t i = 0; i < documents->size(); ++i) {
      if (!(*documents)[i].is_object()) {
        fields.Problem(fmt::format("documents[{}]", i),
                       fmt::format("expected an object, got {}", TypeName((*documents)[i])));
      }
    }
    request.documents = *documents;
  }
  const bool add_special_tokens = fields.Bool("add_special_tokens").value_or(false);
  if (std::optional<ApiError> error = fields.problems().ToError()) return error;

  std::unique_ptr<text::ChatTemplate> own;
  const text::ChatTemplate* chosen = nullptr;
  if (std::optional<ApiError> error = PickTemplate(context, fields, own, chosen)) return error;
  request.messages = *messages;
  const text::Tokenizer& tokenizer = *context.model.tokenizer;
  if (context.config.plain_messages) MarkRequest(tokenizer, request);
  Result<std::string> rendered =
      chosen->Render(request, text::MessageMode::kPrepared, text::jinja::LocalTimeNow());
  if (!rendered.ok()) {
    ApiError error = FromError(rendered.error());
    if (!error.param) error.param = "messages";
    return error;
  }
  prompt.text = std::move(rendered).value();
  if (text_bytes_max && prompt.text.size() > *text_bytes_max) {
    return TextTooLong(context, prompt.text.size(), "messages");
  }
  prompt.ids =
      tokenizer.Encode(prompt.text, text::EncodeOptions{.add_special_tokens = add_special_tokens,
                                                        .marked = context.config.plain_messages});
  if (context.config.plain_messages) prompt.text = text::Tokenizer::Unmark(prompt.text);
  if (prompt.ids.empty()) {
    return BadRequest("The chat template made an empty prompt of these messages.", "messages");
  }

  const Json& last = messages->back();
  const std::string last_role = last.at("role").get<std::string>();
  prompt.role = request.continue_final_message ? last_role : context.config.response_role;
  if (last_role == prompt.role) {
    if (const auto content = last.find("content"); content != last.end()) {
      prompt.echo_text = TextOf(*content);
    }
  }
  return std::nullopt;
}

}  // namespace kvasir::server
