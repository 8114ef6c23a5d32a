// The chat layer: how messages are prepared, which template and variables are used.
#include "text/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace kvasir::text {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// Shows what the template gets. The second one goes over parts.
constexpr const char* kText = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}";
constexpr const char* kParts =
    "{% for m in messages %}{% for p in m.content %}{% endfor %}{{ m | tojson }}\n{% endfor %}";
constexpr const char* kBoth =
    "{% for m in messages %}{% if m.content is string %}{% else %}{% for p in m.content %}{% "
    "endfor %}"
    "{% endif %}{{ m | tojson }}\n{% endfor %}";

Result<std::string> Prompt(ChatTemplateConfig config, const ChatRequest& request,
                           MessageMode mode = MessageMode::kPrepared) {
  auto chat = ChatTemplate::Create(std::move(config));
  if (!chat.ok()) return chat.error();
  return (*chat)->Render(request, mode, jinja::ParseLocalTime("2026-11-29T12:34:56").value());
}

ChatRequest RequestOf(const std::string& messages) {
  ChatRequest request;
  request.messages = Json::parse(messages);
  return request;
}

std::string Prepared(const std::string& source, const std::string& messages) {
  const auto prompt = Prompt({.source = source}, RequestOf(messages));
  return prompt.ok() ? *prompt : "error: " + prompt.error().message;
}

TEST(Chat, PartsBecomeTextWhereTheTemplateWantsText) {
  const std::string parts =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, "b",
          {"type": "input_text", "text": "c", "x": 1}, {"type": "refusal", "refusal": "d"}]}])";
  EXPECT_EQ(Prepared(kText, parts), "{\"role\": \"user\", \"content\": \"a\\nb\\nc\\nd\"}\n");
  const std::string list =
      "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
      "\"text\", "
      "\"text\": \"b\"}, {\"type\": \"text\", \"text\": \"c\", \"x\": 1}, {\"type\": \"text\", "
      "\"text\": \"d\"}]}\n";
  EXPECT_EQ(Prepared(kParts, parts), list);
  EXPECT_EQ(Prepared(kBoth, parts), list);
}

TEST(Chat, StringsBecomePartsOnlyWhereTheTemplateKnowsNoStrings) {
  const std::string text = R"([{"role": "user", "content": "a"}])";
  EXPECT_EQ(Prepared(kText, text), "{\"role\": \"user\", \"content\": \"a\"}\n");
  EXPECT_EQ(Prepared(kBoth, text), "{\"role\": \"user\", \"content\": \"a\"}\n");
  EXPECT_EQ(Prepared(kParts, text),
            "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}\n");
}

TEST(Chat, MissingContentIsEmpty) {
  for (const char* const messages :
       {R"([{"role": "assistant", "content": null, "name": null}])", R"([{"role": "assistant"}])",
        R"([{"role": "assistant", "content": []}])"}) {
    EXPECT_EQ(Prepared(kText, messages), "{\"role\": \"assistant\", \"content\": \"\"}\n");
    EXPECT_EQ(Prepared(kParts, messages), "{\"role\": \"assistant\", \"content\": []}\n");
  }
}

TEST(Chat, TheContentFormatCanBeForced) {
  ChatTemplateConfig config{.source = kText};
  const ChatRequest request = RequestOf(R"([{"role": "user", "content": "a"}])");
  EXPECT_EQ((*ChatTemplate::Create(config))->content_format(), ContentFormat::kString);
  config.content_format = *ParseContentFormat("openai");
  EXPECT_EQ(*Prompt(config, request),
            "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}\n");
  config.source = kParts;
  config.content_format = *ParseContentFormat("string");
  EXPECT_EQ(*Prompt(config, request), "{\"role\": \"user\", \"content\": \"a\"}\n");
  EXPECT_FALSE(ParseContentFormat("json").ok());
}

TEST(Chat, ToolCallArgumentsBecomeObjects) {
  const auto arguments = [](const std::string& given) {
    return Prepared(
        "{{ messages[0].tool_calls[0].function.arguments | tojson }}",
        R"([{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f")" +
            given + "}}]}]");
  };
  EXPECT_EQ(arguments(R"(, "arguments": "{\"b\": 1.0, \"a\": [2]}")"), "{\"b\": 1.0, \"a\": [2]}");
  EXPECT_EQ(arguments(R"(, "arguments": {"a": 1})"), "{\"a\": 1}");
  EXPECT_EQ(arguments(R"(, "arguments": "")"), "{}");
  EXPECT_EQ(arguments(R"(, "arguments": null)"), "{}");
  EXPECT_EQ(arguments(""), "{}");
  EXPECT_EQ(arguments(R"(, "arguments": "{broken")"), "\"{broken\"");
  EXPECT_EQ(arguments(R"(, "arguments": "7")"), "\"7\"");
  const std::string deep = std::string(100'000, '[');
  EXPECT_EQ(arguments(", \"arguments\": \"" + deep + "\"").size(), deep.size() + 2);
}

TEST(Chat, ArgumentsStayTextForATemplateThatAddsThem) {
  const std::string source = "{{ 'call ' + messages[0].tool_calls[0].function.arguments }}";
  EXPECT_EQ(
      Prepared(
          source,
          R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{\"a\":1}"}}]}])"),
      "call {\"a\":1}");
}

TEST(Chat, EmptyToolCallsAreDropped) {
  EXPECT_EQ(Prepared(kText, R"([{"role": "assistant", "content": "a", "tool_calls": []}])"),
            "{\"role\": \"assistant\", \"content\": \"a\"}\n");
}

TEST(Chat, ReasoningHasEveryNameThatTemplatesRead) {
  EXPECT_EQ(Prepared("{{ messages[0].reasoning }}{{ messages[0].reasoning_content }}"
                     "{{ messages[0].thinking }}",
                     R"([{"role": "assistant", "content": "a", "reasoning": "r"}])"),
            "rrr");
  EXPECT_EQ(Prepared("{{ messages[0].reasoning }}{{ messages[0].reasoning_content }}",
                     R"([{"role": "assistant", "content": "a", "reasoning_content": "c"}])"),
            "cc");
}

TEST(Chat, DeveloperIsSystemWhereTheTemplateDoesNotKnowIt) {
  const std::string messages = R"([{"role": "developer", "content": "a"}])";
  EXPECT_EQ(Prepared("{{ messages[0].role }}", messages), "system");
  EXPECT_EQ(Prepared("{{ messages[0].role }}{{ 'developer' == 1 }}", messages), "developerFalse");
}

TEST(Chat, SystemMessagesAreMergedWhereTheTemplateRefusesSeveral) {
  const std::string strict =
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
      "{{ raise_exception('system first') }}{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}";
  EXPECT_EQ(
      Prepared(strict, R"([{"role": "system", "content": "a"}, {"role": "user", "content": "u"},
                                 {"role": "developer", "content": "b"}])"),
      "system:a\n\nb;user:u;");
  // With one system message there is nothing to merge: the template has its say.
  EXPECT_EQ(
      Prepared(strict, R"([{"role": "user", "content": "u"}, {"role": "system", "content": "b"}])"),
      "error: system first");
}

TEST(Chat, RawMessagesAreNotTouched) {
  const ChatRequest request =
      RequestOf(R"([{"role": "developer", "content": null, "tool_calls": []}])");
  EXPECT_EQ(*Prompt({.source = kText}, request, MessageMode::kRaw),
            "{\"role\": \"developer\", \"content\": null, \"tool_calls\": []}\n");
}

TEST(Chat, TheToolTemplateIsUsedWithTools) {
  ChatRequest request = RequestOf(R"([{"role": "user", "content": "a"}])");
  const ChatTemplateConfig config{.source = "plain",
                                  .tool_use_source = "tools {{ tools | length }}"};
  EXPECT_EQ(*Prompt(config, request), "plain");
  request.tools = Json::array();
  EXPECT_EQ(*Prompt(config, request), "plain");
  request.tools = Json::array({Json::object()});
  EXPECT_EQ(*Prompt(config, request), "tools 1");
}

TEST(Chat, TokensAndVariables) {
  ChatTemplateConfig config{
      .source =
          "{{ bos_token }}|{{ eos_token is defined }}|{{ pad_token }}|{{ tools is none }}|"
          "{{ documents is none }}|{{ add_generation_prompt }}|{{ enable_thinking }}",
      .bos_token = "<s>",
      .other_tokens = {{"pad_token", "<pad>"}}};
  ChatRequest request = RequestOf(R"([{"role": "user", "content": "a"}])");
  request.template_kwargs = {{"enable_thinking", false}, {"unread", 1}};
  EXPECT_EQ(*Prompt(config, request), "<s>|False|<pad>|True|True|True|False");
  const auto chat = ChatTemplate::Create(config);
  EXPECT_TRUE((*chat)->Reads("enable_thinking"));
  EXPECT_FALSE((*chat)->Reads("unread"));
}

TEST(Chat, ReservedVariablesCannotBeSet) {
  for (const char* const name : {"messages", "tools", "chat_template", "tokenize", "bos_token"}) {
    ChatRequest request = RequestOf(R"([{"role": "user", "content": "a"}])");
    request.template_kwargs[name] = "x";
    const auto prompt = Prompt({.source = "{{ messages }}", .bos_token = "<s>"}, request);
    ASSERT_FALSE(prompt.ok()) << name;
    EXPECT_EQ(prompt.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(prompt.error().param, "chat_template_kwargs");
    EXPECT_THAT(prompt.error().message, HasSubstr(name));
  }
}

TEST(Chat, ContinueFinalMessageCutsBehindItsText) {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if "
      "add_generation_prompt %}"
      "<assistant>{% endif %}";
  ChatRequest request = RequestOf(R"([{"role": "user", "content": "q"},
                                      {"role": "assistant", "content": "so far "}])");
  request.add_generation_prompt = false;
  request.continue_final_message = true;
  EXPECT_EQ(*Prompt({.source = source}, request), "<user>q</><assistant>so far ");
  const std::string trimming = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
  EXPECT_EQ(*Prompt({.source = trimming}, request), "<q><so far");
  const auto gone = Prompt({.source = "{{ messages[0].content }}"}, request);
  EXPECT_THAT(gone.error().message, HasSubstr("does not appear in the chat"));
  request.add_generation_prompt = true;
  EXPECT_EQ(Prompt({.source = source}, request).error().param, "continue_final_message");
  request.add_generation_prompt = false;
  request.messages.back()["content"] = nullptr;
  EXPECT_FALSE(Prompt({.source = "{{ content }}"}, request, MessageMode::kRaw).ok());
}

TEST(Chat, WrongRequestsSayWhere) {
  const auto wrong = [](const std::string& messages, const std::string& part) {
    EXPECT_THAT(Prepared(kText, messages), HasSubstr(part)) << messages;
  };
  wrong("[]", "at least one message");
  wrong("{}", "expected a list");
  wrong("[7]", "messages[0]: expected an object, got number");
  wrong(R"([{"content": "a"}])", "messages[0].role: expected a string, got nothing");
  wrong(R"([{"role": "user", "content": 7}])", "messages[0].content: expected a string or a list");
  wrong(R"([{"role": "user", "content": [7]}])", "messages[0].content[0]: a content part must be");
  wrong(R"([{"role": "user", "content": [{"type": "image_url"}]}])", "'image_url'");
  wrong(R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text");
  wrong(R"([{"role": "assistant", "tool_calls": {}}])", "messages[0].tool_calls: expected a list");
  wrong(R"([{"role": "assistant", "tool_calls": [{}]}])", "messages[0].tool_calls[0]");
  Json deep = Json::array();
  for (int i = 0; i < 300; ++i) deep = Json::array({std::move(deep)});
  ChatRequest request = RequestOf(R"([{"role": "user", "content": "a"}])");
  request.tools = deep;
  EXPECT_THAT(Prompt({.source = kText}, request).error().message, HasSubstr("nested deeper"));
}

TEST(Chat, AFailingTemplateSaysWhichLine) {
  const auto failed = Prompt({.source = "\n{{ nothing.x }}"}, RequestOf(R"([{"role": "user"}])"));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(failed.error().message,
            "the chat template failed with these messages: line 2: 'nothing' is undefined");
  EXPECT_EQ(ChatTemplate::Create({.source = "{% if %}"}).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvasir::text
