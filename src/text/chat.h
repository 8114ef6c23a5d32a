// Chat messages → prompt text: the model's Jinja template, and the preparation of messages that
// servers do before it. docs/chat-templates.md is the page for users.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja.h"

namespace kvasir::text {

/// In which form the template gets `message.content` (--chat-template-content-format).
enum class ContentFormat {
  kAuto,    ///< by what the template does
  kString,  ///< text parts joined with "\n"
  kOpenai,  ///< the list of parts
};

/// "auto", "string" or "openai".
[[nodiscard]] Result<ContentFormat> ParseContentFormat(std::string_view name);

/// The template(s) and tokens of one model.
struct ChatTemplateConfig {
  std::string source = {};  ///< the default template
  std::optional<std::string> tool_use_source =
      std::nullopt;                                     ///< used instead when a request has tools
  std::optional<std::string> bos_token = std::nullopt;  ///< nullopt: undefined in the template
  std::optional<std::string> eos_token = std::nullopt;
  std::map<std::string, std::string> other_tokens = {};  ///< e.g. "pad_token" → "<pad>"
  ContentFormat content_format = ContentFormat::kAuto;
};

/// What a chat request says that the template sees.
struct ChatRequest {
  nlohmann::ordered_json messages;   ///< array of objects
  nlohmann::ordered_json tools;      ///< array, or null
  nlohmann::ordered_json documents;  ///< array, or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;  ///< leave the last message open
  nlohmann::ordered_json template_kwargs = nlohmann::ordered_json::object();
};

enum class MessageMode {
  kRaw,       ///< messages go to the template as they came
  kPrepared,  ///< as the server does: see docs/chat-templates.md
};

class ChatTemplate {
 public:
  /// Parses the template(s). Errors: kInvalidArgument with the line.
  [[nodiscard]] static Result<std::unique_ptr<ChatTemplate>> Create(ChatTemplateConfig config);

  /// The prompt as text, special tokens written out; tokenize it without adding special tokens.
  /// Any thread may call. Errors (all are the request's fault, HTTP 400): kInvalidArgument = a
  /// wrong request, or the template's own raise_exception with its exact message; kUnsupported =
  /// the template cannot render these messages.
  [[nodiscard]] Result<std::string> Render(const ChatRequest& request, MessageMode mode,
                                           jinja::LocalTime now) const;

  /// kString or kOpenai: what kAuto came to for the default template.
  [[nodiscard]] ContentFormat content_format() const { return FormatOf(*default_); }

  /// Whether the default template (or the tool_use one) reads a variable such as "enable_thinking".
  [[nodiscard]] bool Reads(const std::string& variable) const;

  [[nodiscard]] const ChatTemplateConfig& config() const { return config_; }

 private:
  explicit ChatTemplate(ChatTemplateConfig config) : config_(std::move(config)) {}
  [[nodiscard]] ContentFormat FormatOf(const jinja::Template& source) const;
  [[nodiscard]] Result<nlohmann::ordered_json> Variables(const ChatRequest& request,
                                                         const jinja::Template& source) const;
  [[nodiscard]] Result<std::string> RenderMessages(const ChatRequest& request,
                                                   nlohmann::ordered_json messages,
                                                   const jinja::Template& source,
                                                   jinja::LocalTime now) const;

  ChatTemplateConfig config_;
  std::unique_ptr<jinja::Template> default_;
  std::unique_ptr<jinja::Template> tool_use_;  ///< null: none
};

}  // namespace kvasir::text
