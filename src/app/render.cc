// kvasir render: the prompt that the server would build from a chat request.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/commands.h"
#include "app/exit_codes.h"
#include "app/loaded_engine.h"
#include "app/model_path.h"
#include "app/read_file.h"
#include "files/model_files.h"
#include "server/json_text.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace kvasir::app {
namespace {

struct RenderFlags {
  std::string model;
  std::string chat_template;
  std::string content_format = "auto";
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::string now;
  bool raw = false;
};

Result<std::unique_ptr<text::ChatTemplate>> TemplateOfModel(const RenderFlags& flags) {
  KVASIR_ASSIGN_OR_RETURN(const std::filesystem::path path, ResolveModel(flags.model));
  KVASIR_ASSIGN_OR_RETURN(const files::ModelFiles files,
                          files::OpenModel(path, {.need_weights = false}));
  KVASIR_ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer,
                          text::Tokenizer::FromModelFiles(files));
  return MakeChatTemplate(files, *tokenizer, flags.chat_template, flags.content_format);
}

Result<std::unique_ptr<text::ChatTemplate>> TemplateOfFile(const RenderFlags& flags) {
  text::ChatTemplateConfig config;
  KVASIR_ASSIGN_OR_RETURN(config.source, ReadWholeFile(flags.chat_template));
  config.bos_token = flags.bos_token;
  config.eos_token = flags.eos_token;
  KVASIR_ASSIGN_OR_RETURN(config.content_format, text::ParseContentFormat(flags.content_format));
  return text::ChatTemplate::Create(std::move(config));
}

// The members of a /v1/chat/completions body that a template sees.
Result<text::ChatRequest> ReadChatRequest(const std::string& body) {
  using server::Json;
  Json json;
  if (const auto problem = server::ParseJson(body, json)) {
    return MakeError(ErrorCode::kInvalidArgument, "{}", problem->message);
  }
  const auto wrong = [](const char* name, const char* expected, const Json& value) {
    return MakeError(ErrorCode::kInvalidArgument, "{}: expected {}, got {}", name, expected,
                     value.type_name());
  };
  if (!json.is_object()) return wrong("request", "an object", json);
  text::ChatRequest request;
  request.messages = json.value("messages", Json());
  request.tools = json.value("tools", Json());
  request.documents = json.value("documents", Json());
  if (!request.messages.is_array()) return wrong("messages", "a list", request.messages);
  for (const auto& [name, list] :
       {std::pair{"tools", &request.tools}, std::pair{"documents", &request.documents}}) {
    if (!list->is_null() && !list->is_array()) return wrong(name, "a list", *list);
  }
  for (const auto& [name, flag] :
       {std::pair{"add_generation_prompt", &request.add_generation_prompt},
        std::pair{"continue_final_message", &request.continue_final_message}}) {
    const Json value = json.value(name, Json());
    if (value.is_null()) continue;
    if (!value.is_boolean()) return wrong(name, "true or false", value);
    *flag = value.get<bool>();
  }
  const Json kwargs = json.value("chat_template_kwargs", Json());
  if (!kwargs.is_null() && !kwargs.is_object()) {
    return wrong("chat_template_kwargs", "an object", kwargs);
  }
  if (kwargs.is_object()) request.template_kwargs = kwargs;
  return request;
}

int RunRender(const RenderFlags& flags) {
  if (flags.model.empty() && flags.chat_template.empty()) {
    std::fprintf(stderr, "kvasir: expected a model or --chat-template FILE\n");
    return kExitUsage;
  }
  text::jinja::LocalTime now = text::jinja::LocalTimeNow();
  if (!flags.now.empty()) {
    const auto parsed = text::jinja::ParseLocalTime(flags.now);
    if (!parsed.ok()) return Fail(parsed.error(), kExitUsage);
    now = *parsed;
  }
  const auto chat_template = flags.model.empty() ? TemplateOfFile(flags) : TemplateOfModel(flags);
  if (!chat_template.ok()) return Fail(chat_template.error(), kExitModel);
  if (*chat_template == nullptr) {
    return Fail(MakeError(ErrorCode::kUnsupported,
                          "{}: the model has no chat template; give one with --chat-template FILE",
                          flags.model),
                kExitModel);
  }
  const auto body = ReadWholeFile("-");
  if (!body.ok()) return Fail(body.error(), kExitFailed);
  const auto request = ReadChatRequest(*body);
  if (!request.ok()) return Fail(request.error(), kExitFailed);
  const auto prompt =
      (*chat_template)
          ->Render(*request, flags.raw ? text::MessageMode::kRaw : text::MessageMode::kPrepared,
                   now);
  if (!prompt.ok()) return Fail(prompt.error(), kExitFailed);
  std::fwrite(prompt->data(), 1, prompt->size(), stdout);
  return kExitOk;
}

}  // namespace

void AddRender(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<RenderFlags>();
  CLI::App* command = app.add_subcommand(
      "render", "Print the prompt that the server builds from a chat request on stdin");
  command->add_option("model", flags->model, "Model folder, .gguf, or 'default'");
  command->add_option("--chat-template", flags->chat_template,
                      "Jinja file to use instead of the model's own");
  command
      ->add_option("--chat-template-content-format", flags->content_format,
                   "auto, string or openai")
      ->check(CLI::IsMember({"auto", "string", "openai"}))
      ->capture_default_str();
  command->add_option("--bos-token", flags->bos_token, "bos_token where there is no model");
  command->add_option("--eos-token", flags->eos_token, "eos_token where there is no model");
  command->add_option("--now", flags->now,
                      "The template's clock, as 2026-11-29T12:34:56; default: the time it is");
  command->add_flag("--raw", flags->raw, "Hand the messages to the template as they came");
  command->callback([flags, &exit_code] { exit_code = RunRender(*flags); });
}

}  // namespace kvasir::app
