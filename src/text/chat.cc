#include "text/chat.h"

#include <algorithm>
#include <utility>

#include "text/chat_messages.h"
#include "text/jinja/unicode.h"

namespace kvasir::text {
namespace {

using Json = nlohmann::ordered_json;

// As Hugging Face does it: the tag goes behind the content of the last message, and the render is
// cut where the tag comes out. The space shows whether the template trimmed the content.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::string_view kContinueTagTrimmed = kContinueTag.substr(0, kContinueTag.size() - 1);

template <typename... Args>
Error Wrong(std::string param, fmt::format_string<Args...> format, Args&&... args) {
  return MakeParamError(ErrorCode::kInvalidArgument, std::move(param), format,
                        std::forward<Args>(args)...);
}

Status CheckRequest(const ChatRequest& request) {
  if (!request.messages.is_array() || request.messages.empty()) {
    return Wrong("messages", "messages: expected a list with at least one message, got {}",
                 request.messages.is_array() ? "an empty list" : request.messages.type_name());
  }
  for (std::size_t i = 0; i < request.messages.size(); ++i) {
    if (!request.messages[i].is_object()) {
      return Wrong("messages", "messages[{}]: expected an object, got {}", i,
                   request.messages[i].type_name());
    }
  }
  for (const auto& [name, value] : {std::pair<const char*, const Json&>("tools", request.tools),
                                    {"documents", request.documents}}) {
    if (!value.is_null() && !value.is_array()) {
      return Wrong(name, "{}: expected a list, got {}", name, value.type_name());
    }
  }
  if (!request.template_kwargs.is_null() && !request.template_kwargs.is_object()) {
    return Wrong("chat_template_kwargs", "chat_template_kwargs: expected an object, got {}",
                 request.template_kwargs.type_name());
  }
  for (const auto& [name, value] :
       {std::pair<const char*, const Json&>("messages", request.messages),
        {"tools", request.tools},
        {"documents", request.documents},
        {"chat_template_kwargs", request.template_kwargs}}) {
    if (DeeperThan(value, kRequestDepthMax)) {
      return Wrong(name, "{}: nested deeper than {} levels", name, kRequestDepthMax);
    }
  }
  if (request.add_generation_prompt && request.continue_final_message) {
    return Wrong("continue_final_message",
                 "continue_final_message and add_generation_prompt cannot both be true");
  }
  return Status::Ok();
}

// Puts the tag behind the text that is to be continued, and returns that text.
Result<std::string> TagFinalMessage(Json& messages) {
  Json& message = messages.back();
  const auto content = message.find("content");
  const auto fail = [] {
    return Wrong("messages", "continue_final_message: the last message has no text to continue");
  };
  if (content == message.end()) return fail();
  Json* text = content->is_string() ? &*content : nullptr;
  if (content->is_array()) {
    for (auto part = content->rbegin(); part != content->rend() && text == nullptr; ++part) {
      if (!part->is_object()) continue;
      const auto found = part->find("text");
      if (found != part->end() && found->is_string()) text = &*found;
    }
  }
  if (text == nullptr) return fail();
  auto original = text->get<std::string>();
  *text = original + std::string(kContinueTag);
  return original;
}

Result<std::string> CutAtTag(std::string prompt, std::string_view final_text) {
  const std::size_t at = prompt.rfind(kContinueTagTrimmed);
  if (at == std::string::npos || prompt.find(jinja::Trim(final_text)) == std::string::npos) {
    return Wrong("messages",
                 "continue_final_message: the final message does not appear in the chat after "
                 "applying the chat template");
  }
  const bool kept_space = std::string_view(prompt).substr(at).starts_with(kContinueTag);
  prompt.resize(at);
  if (!kept_space) prompt.resize(jinja::TrimRight(prompt).size());
  return prompt;
}

}  // namespace

Result<ContentFormat> ParseContentFormat(std::string_view name) {
  if (name == "auto") return ContentFormat::kAuto;
  if (name == "string") return ContentFormat::kString;
  if (name == "openai") return ContentFormat::kOpenai;
  return MakeError(ErrorCode::kInvalidArgument,
                   "'{}' is no content format; expected auto, string or openai", name);
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(ChatTemplateConfig config) {
  std::unique_ptr<ChatTemplate> chat(new ChatTemplate(std::move(config)));
  KVASIR_ASSIGN_OR_RETURN(chat->default_, jinja::Template::Parse(chat->config_.source));
  if (chat->config_.tool_use_source) {
    KVASIR_ASSIGN_OR_RETURN(chat->tool_use_,
                            jinja::Template::Parse(*chat->config_.tool_use_source));
  }
  return chat;
}

ContentFormat ChatTemplate::FormatOf(const jinja::Template& source) const {
  if (config_.content_format != ContentFormat::kAuto) return config_.content_format;
  return source.facts().content_form == jinja::ContentForm::kParts ? ContentFormat::kOpenai
                                                                   : ContentFormat::kString;
}

bool ChatTemplate::Reads(const std::string& variable) const {
  return default_->facts().free_variables.contains(variable) ||
         (tool_use_ != nullptr && tool_use_->facts().free_variables.contains(variable));
}

Result<Json> ChatTemplate::Variables(const ChatRequest& request,
                                     const jinja::Template& source) const {
  Json variables = Json::object();
  for (const auto& [name, token] : config_.other_tokens) variables[name] = token;
  if (config_.bos_token) variables["bos_token"] = *config_.bos_token;
  if (config_.eos_token) variables["eos_token"] = *config_.eos_token;
  const Json tokens = variables;
  variables["tools"] = request.tools;
  variables["documents"] = request.documents;
  variables["add_generation_prompt"] = request.add_generation_prompt;
  if (request.template_kwargs.is_null()) return variables;
  for (const auto& [name, value] : request.template_kwargs.items()) {
    for (const char* reserved : {"messages", "tools", "chat_template", "tokenize"}) {
      if (name == reserved) {
        return Wrong("chat_template_kwargs", "chat_template_kwargs: '{}' cannot be set here", name);
      }
    }
    if (tokens.contains(name)) {
      return Wrong("chat_template_kwargs",
                   "chat_template_kwargs: '{}' is a special token of the model", name);
    }
    if (source.facts().free_variables.contains(name)) variables[name] = value;
  }
  return variables;
}

Result<std::string> ChatTemplate::RenderMessages(const ChatRequest& request, Json messages,
                                                 const jinja::Template& source,
                                                 jinja::LocalTime now) const {
  std::string final_text;
  if (request.continue_final_message) {
    if (!source.facts().mentions_content) {
      return Wrong(
          "continue_final_message",
          "continue_final_message: the chat template does not read the content of messages");
    }
    KVASIR_ASSIGN_OR_RETURN(final_text, TagFinalMessage(messages));
  }
  KVASIR_ASSIGN_OR_RETURN(Json variables, Variables(request, source));
  variables["messages"] = std::move(messages);
  jinja::RenderOptions options;
  options.now = now;
  Result<std::string> prompt = source.Render(variables, options);
  if (!prompt.ok()) {
    Error error = std::move(prompt).error();
    error.param = "messages";
    if (error.code == ErrorCode::kUnsupported) {
      error.message = "the chat template failed with these messages: " + error.message;
    }
    return error;
  }
  if (!request.continue_final_message) return prompt;
  return CutAtTag(std::move(prompt).value(), final_text);
}

Result<std::string> ChatTemplate::Render(const ChatRequest& request, MessageMode mode,
                                         jinja::LocalTime now) const {
  KVASIR_RETURN_IF_ERROR(CheckRequest(request));
  const bool has_tools = request.tools.is_array() && !request.tools.empty();
  const jinja::Template& source = has_tools && tool_use_ != nullptr ? *tool_use_ : *default_;
  if (mode == MessageMode::kRaw) return RenderMessages(request, request.messages, source, now);

  const jinja::TemplateFacts& facts = source.facts();
  MessageRules rules;
  rules.parts = FormatOf(source) == ContentFormat::kOpenai;
  rules.keep_strings = facts.tests_for_string;
  rules.developer_to_system = !facts.mentions_developer;
  KVASIR_ASSIGN_OR_RETURN(PreparedMessages prepared, PrepareMessages(request.messages, rules));
  Result<std::string> prompt = RenderMessages(request, std::move(prepared.messages), source, now);
  if (prompt.ok()) return prompt;
  // Some templates only take arguments as text, some only one system message.
  const bool raised = prompt.error().code == ErrorCode::kInvalidArgument;
  rules.parse_arguments = raised || !prepared.parsed_arguments;
  rules.merge_system_messages = raised && prepared.system_messages > 1;
  if (rules.parse_arguments && !rules.merge_system_messages) return prompt;
  KVASIR_ASSIGN_OR_RETURN(prepared, PrepareMessages(request.messages, rules));
  Result<std::string> retried = RenderMessages(request, std::move(prepared.messages), source, now);
  return retried.ok() ? std::move(retried) : std::move(prompt);
}

}  // namespace kvasir::text
