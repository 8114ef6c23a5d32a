// Chat templates, and the preparation of the messages that they see.
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "fuzz/target.h"
#include "server/json_text.h"
#include "text/chat.h"
#include "text/chat_messages.h"
#include "text/jinja.h"

namespace kvasir::fuzz {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kRequest[] =
    R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":[{"type":"text",)"
    R"("text":"Hi <b>\u00e4"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":)"
    R"("function","function":{"name":"f","arguments":"{\"a\": [1, 2.5, null]}"}}]},)"
    R"({"role":"tool","tool_call_id":"1","content":"42"}],"tools":[{"type":"function","function":)"
    R"({"name":"f","parameters":{"type":"object"}}}],"bos_token":"<s>","add_generation_prompt":true})";

// A source, then, behind a zero byte, the variables as JSON.
KVASIR_FUZZ_TARGET(jinja) {
  std::string_view rest = input;
  const std::string_view source = TakeUntil('\0', rest);
  const auto parsed = text::jinja::Template::Parse(source);
  if (!parsed.ok()) return ExpectOneLine(parsed.error());
  Json variables;
  if (rest.empty() || server::ParseJson(rest, variables) || !variables.is_object()) {
    variables = Json::parse(kRequest);
  }
  text::jinja::RenderOptions options;
  options.now = text::jinja::ParseLocalTime("2026-11-29T12:34:56").value();
  // Lower than in production, so that an input takes milliseconds with sanitizers too.
  options.limits.steps = 200'000;
  options.limits.output_bytes = 1 << 20;
  options.limits.value_bytes = 1 << 20;
  options.limits.memory_bytes = 16 << 20;
  const auto rendered = (*parsed)->Render(variables, options);
  if (rendered.ok()) {
    ExpectUtf8(*rendered);
    KVASIR_CHECK(rendered->size() <= options.limits.output_bytes);
    const auto again = (*parsed)->Render(variables, options);
    KVASIR_CHECK(again.ok() && *again == *rendered, "not the same twice");
  } else if (rendered.error().code == ErrorCode::kUnsupported) {
    ExpectOneLine(rendered.error());
  } else {
    ExpectUtf8(rendered.error().message);  // the template's own words
  }
}

// The first byte says how messages are prepared; the rest is a request.
KVASIR_FUZZ_TARGET(chat_messages) {
  static const std::unique_ptr<text::ChatTemplate> made =
      text::ChatTemplate::Create(
          {.source = "{% for m in messages %}<|{{ m.role }}|>{% if m.content is string %}{{ "
                     "m.content | trim }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor "
                     "%}{% endif %}{{ m.tool_calls | tojson }}{% endfor %}{% if tools %}{{ tools | "
                     "tojson(indent=2) }}{% endif %}{% if add_generation_prompt %}<|assistant|>{% "
                     "endif %}"})
          .value();
  Numbers numbers(input);
  const uint8_t bits = numbers.Byte();
  Json json;
  if (server::ParseJson(numbers.rest(), json)) return;
  const auto list = [&](const char* name) {
    const auto found = json.is_object() ? json.find(name) : json.end();
    return json.is_object() && found != json.end() && found->is_array() ? *found : Json();
  };
  text::ChatRequest request;
  request.messages = json.is_array() ? json : list("messages");
  if (!request.messages.is_array()) return;
  request.tools = list("tools");
  request.documents = list("documents");
  request.add_generation_prompt = (bits & 1) != 0;
  request.continue_final_message = (bits & 2) != 0;
  const auto mode = (bits & 4) != 0 ? text::MessageMode::kRaw : text::MessageMode::kPrepared;
  const auto now = text::jinja::ParseLocalTime("2026-11-29T12:34:56").value();
  const auto rendered = made->Render(request, mode, now);
  if (rendered.ok()) {
    ExpectUtf8(*rendered);
  } else {
    ExpectUtf8(rendered.error().message);
  }
  for (const Json& message : request.messages) {
    if (!message.is_object()) return;
  }
  if (text::DeeperThan(request.messages, text::kRequestDepthMax)) return;
  text::MessageRules rules;
  rules.parts = (bits & 8) != 0;
  rules.keep_strings = (bits & 16) != 0;
  rules.developer_to_system = (bits & 32) != 0;
  rules.parse_arguments = (bits & 64) != 0;
  rules.merge_system_messages = (bits & 128) != 0;
  const auto prepared = text::PrepareMessages(request.messages, rules);
  if (prepared.ok()) {
    KVASIR_CHECK(prepared->messages.is_array());
  } else {
    ExpectUtf8(prepared.error().message);
  }
}

}  // namespace
}  // namespace kvasir::fuzz
