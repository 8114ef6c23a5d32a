// What is refused, with which status, type, field and words.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/server/server_fixture.h"

namespace kvasir::server::test {
namespace {

struct Case {
  Json fields;
  std::string param;
  std::string message;  ///< a part of it
};

void ExpectRefused(ServerFixture& fixture, const std::string& path, const Json& base,
                   const std::vector<Case>& cases) {
  for (const Case& wrong : cases) {
    Json body = base;
    for (const auto& [key, value] : wrong.fields.items()) body[key] = value;
    const Answer answer = fixture.Post(path, body);
    EXPECT_EQ(answer.status, 400) << wrong.fields << ": " << answer.body;
    if (answer.status != 400) continue;
    const Json error = answer.json().at("error");
    EXPECT_EQ(error.at("param"), wrong.param) << wrong.fields;
    EXPECT_NE(error.at("message").get<std::string>().find(wrong.message), std::string::npos)
        << wrong.fields << ": " << error.at("message");
    EXPECT_EQ(error.at("code"), 400);
    EXPECT_LT(answer.body.size(), 400u) << answer.body;
  }
}

TEST(Errors, ValuesOutOfRangeInTheWordsOfVllm) {
  ServerFixture fixture;
  const std::vector<Case> cases = {
      {{{"temperature", 2.5}}, "temperature", "temperature must be in [0, 2], got 2.5."},
      {{{"temperature", -1}}, "temperature", "temperature must be in [0, 2], got -1."},
      {{{"top_p", 0.0}}, "top_p", "top_p must be in (0, 1], got 0.0."},
      {{{"top_p", 1.1}}, "top_p", "top_p must be in (0, 1], got 1.1."},
      {{{"top_k", -5}}, "top_k", "top_k must be 0 (disable), or at least 1, got -5."},
      {{{"min_p", 2}}, "min_p", "min_p must be in [0, 1], got 2."},
      {{{"presence_penalty", 3}},
       "presence_penalty",
       "presence_penalty must be in [-2, 2], got 3."},
      {{{"frequency_penalty", -3}}, "frequency_penalty", "must be in [-2, 2], got -3."},
      {{{"repetition_penalty", 0}},
       "repetition_penalty",
       "repetition_penalty must be in [0.01, 100], got 0."},
      {{{"repetition_penalty", 1e308}}, "repetition_penalty", "in [0.01, 100], got 1e+308."},
      {{{"repetition_penalty", 1e-308}}, "repetition_penalty", "in [0.01, 100], got 1e-308."},
      {{{"max_tokens", 0}}, "max_tokens", "max_tokens must be at least 1, got 0."},
      {{{"max_tokens", -3}}, "max_tokens", "max_tokens must be at least 1, got -3."},
      {{{"max_tokens", 5}, {"min_tokens", 9}},
       "min_tokens",
       "min_tokens must be less than or equal to max_tokens=5, got 9."},
      {{{"stop", {""}}}, "stop", "stop cannot contain an empty string."},
      {{{"stop", ""}}, "stop", "stop cannot contain an empty string."},
      {{{"n", 0}}, "n", "got 0."},
      {{{"n", -1}}, "n", "got -1."},
      {{{"n", 129}}, "n", "got 129."},
      {{{"n", 5000000}}, "n", "got 5000000."},
      {{{"n", 2}, {"temperature", 0}}, "n", "n must be 1 when using greedy sampling, got 2."},
      {{{"logit_bias", {{"384", 1}}}}, "logit_bias", "outside of the vocabulary"},
      {{{"logit_bias", {{"-1", 5}}}}, "logit_bias", "outside of the vocabulary"},
      {{{"logit_bias", {{"abc", 1}}}}, "logit_bias", "is no token id"},
      {{{"logit_bias", {{"1", 1}, {"01", 2}}}}, "logit_bias", "'1' and '01' are one token id"},
      {{{"stop_token_ids", {999999}}}, "stop_token_ids", "must be in [0, 383]"},
      {{{"allowed_token_ids", Json::array()}}, "allowed_token_ids", "cannot be empty"},
      {{{"bad_words", {""}}}, "bad_words", "empty string"},
      {{{"cache_salt", ""}}, "cache_salt", "1 to 1024 bytes"},
      {{{"truncate_prompt_tokens", 0}}, "truncate_prompt_tokens", "-1 or at least 1"},
      {{{"truncation_side", "top"}}, "truncation_side", "'left' or 'right'"},
      {{{"prompt_logprobs", -1}}, "prompt_logprobs", "[0, 20]"},
      {{{"prompt_logprobs", 21}}, "prompt_logprobs", "[0, 20]"},
      {{{"prompt_logprobs", 1}, {"stream", true}}, "prompt_logprobs", "not available"},
      {{{"stream_options", {{"include_usage", true}}}},
       "stream_options",
       "Stream options can only be defined when `stream=True`."},
  };
  ExpectRefused(fixture, "/v1/chat/completions", ChatBody("Hi"), cases);
  ExpectRefused(fixture, "/v1/completions", {{"prompt", "Hi"}}, cases);
  // Above zero as a double, zero as a float: still a share to draw from.
  for (const char* name : {"top_p", "min_p", "temperature"}) {
    Json tiny = {{"prompt", "Hi"}, {"max_tokens", 1}, {"seed", 1}};
    tiny[name] = 1e-308;
    EXPECT_EQ(fixture.Post("/v1/completions", tiny).status, 200) << name;
  }
  // Sixteen stop strings are fine, seventeen are not; nor is one of 1 MB.
  Json body = ChatBody("Hi");
  body["max_tokens"] = 1;
  body["stop"] = Json::array();
  for (int i = 0; i < 16; ++i) body["stop"].push_back("stop" + std::to_string(i));
  EXPECT_EQ(fixture.Post("/v1/chat/completions", body).status, 200);
  body["stop"].push_back("more");
  EXPECT_EQ(fixture.Post("/v1/chat/completions", body).status, 400);
  body["stop"] = std::string(1'000'000, 'x');
  EXPECT_EQ(fixture.Post("/v1/chat/completions", body).status, 400);
}

TEST(Errors, WrongTypes) {
  ServerFixture fixture;
  const std::vector<Case> cases = {
      {{{"n", 1.5}}, "body.n", "expected a 64-bit integer, got 1.5"},
      {{{"n", "2"}}, "body.n", "expected an integer, got a string"},
      {{{"n", 18446744073709551615ull}}, "body.n", "expected a 64-bit integer"},
      {{{"temperature", "hot"}}, "body.temperature", "expected a number, got a string"},
      {{{"temperature", true}}, "body.temperature", "expected a number, got a boolean"},
      {{{"stream", "yes"}}, "body.stream", "expected a boolean, got a string"},
      {{{"stop", Json::array({nullptr})}}, "body.stop[0]", "expected a string, got null"},
      {{{"stop", 5}}, "body.stop", "expected a string or a list of strings"},
      {{{"logit_bias", Json::array()}}, "body.logit_bias", "expected an object, got a list"},
      {{{"logit_bias", {{"5", nullptr}}}}, "body.logit_bias.5", "expected a number, got null"},
      {{{"model", 3}}, "body.model", "expected a string, got an integer"},
      {{{"seed", 1e300}}, "body.seed", "expected a 64-bit integer"},
  };
  ExpectRefused(fixture, "/v1/chat/completions", ChatBody("Hi"), cases);
  ExpectRefused(fixture, "/v1/completions", {{"prompt", "Hi"}}, cases);
  // Several at once are all named.
  Json body = ChatBody("Hi");
  body["n"] = "x";
  body["top_p"] = "y";
  const Json error = fixture.Post("/v1/chat/completions", body).json().at("error");
  EXPECT_EQ(error.at("type"), "Bad Request");
  EXPECT_TRUE(error.at("message").get<std::string>().starts_with("2 validation errors:"));
}

TEST(Errors, FeaturesThatAreNotHereNameTheField) {
  ServerFixture fixture;
  const Json schema = {{"type", "object"}};
  const std::vector<Case> both = {
      {{{"response_format", {{"type", "json_object"}}}}, "response_format", "json_object"},
      {{{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}},
       "response_format",
       "json_schema"},
      {{{"structured_outputs", {{"regex", "a+"}}}}, "structured_outputs", "not supported"},
      {{{"guided_json", schema}}, "guided_json", "not supported"},
      {{{"guided_json", Json::object()}}, "guided_json", "not supported"},
      {{{"grammar", "root ::= \"a\""}}, "grammar", "not supported"},
      {{{"json_schema", schema}}, "json_schema", "not supported"},
      {{{"n_predict", 5}}, "n_predict", "max_tokens"},
      {{{"best_of", 3}}, "best_of", "not supported"},
      {{{"guided_regex", "a"}}, "guided_regex", "not supported"},
      {{{"guided_choice", {"a"}}}, "guided_choice", "not supported"},
      {{{"guided_choice", Json::array()}}, "guided_choice", "not supported"},
      {{{"structured_outputs", Json::object()}}, "structured_outputs", "not supported"},
      {{{"structural_tag", Json::object()}}, "structural_tag", "not supported"},
      {{{"best_of", 3}, {"n", 2}}, "best_of", "not supported"},
      {{{"best_of", 0}}, "best_of", "best_of must be at least 1, got 0."},
      {{{"vllm_xargs", {{"a", 1}}}}, "vllm_xargs", "not supported"},
      {{{"suffix", "x"}}, "suffix", "not supported"},
      {{{"suffix", ""}}, "suffix", "not supported"},
      {{{"guided_grammar", "root ::= \"a\""}}, "guided_grammar", "not supported"},
      {{{"use_beam_search", true}}, "use_beam_search", "not supported"},
      {{{"logits_processors", {"x"}}}, "logits_processors", "not supported"},
      {{{"thinking_token_budget", 5}}, "thinking_token_budget", "not supported"},
      {{{"prompt_embeds", "AAAA"}}, "prompt_embeds", "not supported"},
      {{{"stream_interval", 4}}, "stream_interval", "not supported"},
  };
  ExpectRefused(fixture, "/v1/chat/completions", ChatBody("Hi"), both);
  ExpectRefused(fixture, "/v1/completions", {{"prompt", "Hi"}}, both);
  const Json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
  ExpectRefused(
      fixture, "/v1/chat/completions", ChatBody("Hi"),
      {
          {{{"tools", {tool}}}, "tools", "not supported"},
          {{{"tools", Json::array()}}, "tools", "empty list"},
          {{{"tool_choice", "required"}}, "tool_choice", "not supported"},
          {{{"functions", {{{"name", "f"}}}}}, "functions", "not supported"},
          {{{"function_call", "auto"}}, "function_call", "not supported"},
          {{{"web_search_options", Json::object()}}, "web_search_options", "not supported"},
          {{{"max_tokens", 0}, {"echo", true}}, "max_tokens", "at least 1, got 0."},
          {{{"audio", {{"voice", "x"}}}}, "audio", "not supported"},
          {{{"modalities", {"text", "audio"}}}, "modalities", "not supported"},
          {{{"chat_template", "{{ 1 }}"}}, "chat_template", "--trust-request-chat-template"},
          {{{"chat_template_kwargs", {{"chat_template", "x"}}}},
           "chat_template_kwargs",
           "cannot set 'chat_template'"},
          {{{"chat_template_kwargs", {{"tokenize", true}}}}, "chat_template_kwargs", "tokenize"},
          {{{"chat_template_kwargs", {{"bos_token", "x"}}}}, "chat_template_kwargs", "bos_token"},
          {{{"reasoning_effort", "extreme"}}, "reasoning_effort", "must be one of"},
      });
  Json body = ChatBody("Hi");
  body["max_tokens"] = 1;
  body["tool_choice"] = "none";
  body["response_format"] = {{"type", "text"}};
  body["kv_transfer_params"] = {{"do_remote_decode", true}};
  EXPECT_EQ(fixture.Post("/v1/chat/completions", body).status, 200);
}

TEST(Errors, FieldsThatAskForNothingAreTaken) {
  ServerFixture fixture;
  const Json nothing = Json::array({
      {{"vllm_xargs", Json::object()}},
      {{"logits_processors", Json::array()}},
      {{"use_beam_search", false}},
      {{"best_of", 1}},
      {{"best_of", 2}, {"n", 2}},
      {{"prediction", {{"type", "content"}, {"content", "Hi"}}}},
      {{"parallel_tool_calls", false}},
      {{"parallel_tool_calls", true}},
      {{"tool_choice", "none"}},
      {{"modalities", {"text"}}},
      {{"structured_outputs", nullptr}},
      {{"guided_choice", nullptr}},
      {{"suffix", nullptr}},
      {{"tools", nullptr}},
      {{"web_search_options", nullptr}},
  });
  for (const auto& [path, base] : {std::pair{"/v1/chat/completions", ChatBody("Hi")},
                                   std::pair{"/v1/completions", Json{{"prompt", "Hi"}}}}) {
    for (const Json& fields : nothing) {
      Json body = base;
      body["max_tokens"] = 1;
      body.update(fields);
      const Answer answer = fixture.Post(path, body);
      EXPECT_EQ(answer.status, 200) << path << fields << answer.body;
    }
  }
}

TEST(Errors, Messages) {
  ServerFixture fixture;
  const auto with = [](const Json& messages) { return Case{{{"messages", messages}}, "", ""}; };
  for (const auto& [messages, param, message] :
       std::vector<std::tuple<Json, std::string, std::string>>{
           {Json(nullptr), "body.messages", "field required"},
           {Json("hi"), "body.messages", "expected a list, got a string"},
           {Json::array(), "messages", "at least one message"},
           {Json::array({"hi"}), "body.messages[0]", "expected an object"},
           {Json::array({Json::object()}), "body.messages[0].role", "field required"},
           {Json::array({Json{{"role", "user"}, {"content", 5}}}), "body.messages[0].content",
            "a string or a list of parts"},
           {Json::array({Json{{"role", "user"},
                              {"content", Json::array({Json{{"type", "image_url"},
                                                            {"image_url", {{"url", "x"}}}}})}}}),
            "messages[0].content[0].type", "not supported"},
       }) {
    Case wrong = with(messages);
    wrong.param = param;
    wrong.message = message;
    ExpectRefused(fixture, "/v1/chat/completions", Json::object(), {wrong});
  }
  // A completions body to the chat route: one short answer.
  const Answer answer =
      fixture.Post("/v1/chat/completions", {{"prompt", {{1, 2, 3}, {4, 5}}}, {"max_tokens", 1}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_LT(answer.body.size(), 300u);
}

TEST(Errors, Prompts) {
  ServerFixture fixture;
  for (const auto& [prompt, param] : std::vector<std::pair<Json, std::string>>{
           {Json(nullptr), "prompt"},
           {Json(""), "prompt"},
           {Json::array(), "prompt"},
           {Json::array({Json::array()}), "prompt"},
           {Json::array({999999999}), "prompt"},
           {Json::array({-1}), "prompt"},
           {Json::array({1.5}), "body.prompt[0]"},
           {Json::array({1, "a"}), "body.prompt[1]"},
           {Json::array({"a", 1}), "body.prompt[1]"},
           {Json(5), "body.prompt"},
           {Json(std::vector<std::string>(1025, "a")), "prompt"},
       }) {
    ExpectRefused(fixture, "/v1/completions", Json::object(), {{{{"prompt", prompt}}, param, ""}});
  }
  ExpectRefused(fixture, "/v1/completions", {{"prompt", "a"}},
                {{{{"prompt", ""}}, "prompt", "prompt must be provided and non-empty."},
                 {{{"logprobs", 1000000}}, "logprobs", "[0, 20]"},
                 {{{"logprobs", -1}}, "logprobs", "[0, 20]"}});
  Json chat = ChatBody("Hi");
  ExpectRefused(fixture, "/v1/chat/completions", chat,
                {{{{"logprobs", true}, {"top_logprobs", 21}}, "top_logprobs", "[0, 20]"},
                 {{{"logprobs", true}, {"top_logprobs", 1000000000}}, "top_logprobs", "[0, 20]"},
                 {{{"top_logprobs", 1}}, "top_logprobs", "must be set to true"}});
}

TEST(Errors, ContextOverflow) {
  ServerFixture fixture;  // a context of 512
  fixture.script.SetTokens(Ids("a"));
  const auto prompt = [](int count) {
    return Json(std::vector<TokenId>(static_cast<size_t>(count), 40));
  };
  Json error = fixture.Post("/v1/completions", {{"prompt", prompt(500)}, {"max_tokens", 100}})
                   .json()
                   .at("error");
  EXPECT_EQ(
      error.at("message"),
      "This model's maximum context length is 512 tokens. However, you requested 100 output "
      "tokens and your prompt contains at least 500 input tokens, for a total of at least 600 "
      "tokens. Please reduce the length of the input prompt or the number of requested output "
      "tokens. (parameter=input_tokens, value=500)");
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_EQ(error.at("param"), "input_tokens");
  for (const int count : {512, 600}) {
    error = fixture.Post("/v1/completions", {{"prompt", prompt(count)}}).json().at("error");
    EXPECT_EQ(error.at("code"), "context_length_exceeded");
    EXPECT_NE(error.at("message").get<std::string>().find("maximum context length"),
              std::string::npos);
    EXPECT_NE(error.at("message").get<std::string>().find(std::to_string(count)),
              std::string::npos);
  }
  error =
      fixture.Post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 65535}}).json().at("error");
  EXPECT_TRUE(error.at("message").get<std::string>().starts_with(
      "max_tokens=65535 cannot be greater than max_model_len=512. This model's maximum context "
      "length is 512 tokens."));
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_EQ(error.at("param"), "max_tokens");
  // What just fits is served; a default limit never overflows; prompts can be cut.
  EXPECT_EQ(fixture.Post("/v1/completions", {{"prompt", prompt(508)}, {"max_tokens", 4}}).status,
            200);
  EXPECT_EQ(fixture.Post("/v1/completions", {{"prompt", prompt(508)}})
                .json()["usage"]["completion_tokens"],
            4);
  const Json cut =
      fixture
          .Post("/v1/completions",
                {{"prompt", prompt(600)}, {"truncate_prompt_tokens", 100}, {"max_tokens", 1}})
          .json();
  EXPECT_EQ(cut.at("usage").at("prompt_tokens"), 100);
  // -1: as much as the context holds beside the answer.
  const auto usage = [&](Json body) {
    body["prompt"] = prompt(600);
    body["truncate_prompt_tokens"] = -1;
    return fixture.Post("/v1/completions", body).json().at("usage");
  };
  EXPECT_EQ(usage({{"max_tokens", 4}}).at("prompt_tokens"), 508);
  EXPECT_EQ(usage({{"max_tokens", 4}}).at("completion_tokens"), 4);
  EXPECT_EQ(usage(Json::object()).at("prompt_tokens"), 511);
  EXPECT_EQ(usage({{"max_tokens", 0}, {"echo", true}}).at("prompt_tokens"), 512);
}

TEST(Errors, ClampingIsAChoiceOfTheOperator) {
  FixtureOptions options;
  options.server.clamp_max_tokens = true;
  ServerFixture fixture(options);
  fixture.script.SetTokens(Ids("a"));
  const Json body = {{"prompt", Json(std::vector<TokenId>(500, 40))}, {"max_tokens", 65535}};
  EXPECT_EQ(fixture.Post("/v1/completions", body).json()["usage"]["completion_tokens"], 12);
}

TEST(Errors, ModelsAndTemplates) {
  FixtureOptions options;
  options.chat_template = false;
  ServerFixture fixture(options);
  Json body = {{"prompt", "a"}, {"model", "foo"}};
  Answer answer = fixture.Post("/v1/completions", body);
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(
      answer.body,
      "{\"error\":{\"message\":\"The model `foo` does not exist.\",\"type\":\"NotFoundError\","
      "\"param\":\"model\",\"code\":404}}");
  for (const char* name : {"tiny", "alias/two", ""}) {
    body["model"] = name;
    answer = fixture.Post("/v1/completions", body);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.json().at("model"), "tiny");
  }
  answer = fixture.Post("/v1/chat/completions", ChatBody("Hi"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("--chat-template"), std::string::npos);
}

TEST(Errors, Bodies) {
  ServerFixture fixture;
  const auto post = [&](const std::string& body) {
    return fixture.Call("POST", "/v1/chat/completions", body);
  };
  std::string deep = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"x\":";
  deep += std::string(10'000, '[') + std::string(10'000, ']') + "}";
  std::string keys = "{";
  for (int i = 0; i < 50'000; ++i) keys += "\"k" + std::to_string(i) + "\":[],";
  const std::string start = "{\"messages\":[{\"role\":\"user\",\"content\":\"";
  for (const auto& [body, message] : std::vector<std::pair<std::string, std::string>>{
           {"{", "unexpected end at byte 2"},
           {"{\"n\":1,}", "syntax error at byte 8"},
           {"[1,2]", "expected an object"},
           {"\"text\"", "expected an object"},
           {"null", "expected an object"},
           {"{\"n\":1}x", "JSON decode error"},
           {"\xEF\xBB\xBF{}", "byte order mark at byte 1"},
           {"{\"n\":1,\"n\":2}", "comes twice"},
           {"{\"x\":1e999}", "beyond the range of a double"},
           {start + "\\ud800\"}]}", "lone surrogate"},
           {start + "\xff\"}]}", fmt::format("invalid UTF-8 at byte {}", start.size() + 1)},
           {start + "a\nb\"}]}", "control character"},
           {std::string("{\"n\":1\0}", 8), "JSON decode error"},
           {deep, "nested deeper than 100 levels"},
           {keys + "\"k0\":1}", "comes twice"},
       }) {
    const Answer answer = post(body);
    EXPECT_EQ(answer.status, 400);
    EXPECT_NE(answer.body.find(message), std::string::npos) << answer.body;
    EXPECT_LT(answer.body.size(), 400u);
    EXPECT_EQ(answer.json().at("error").at("type"), "Bad Request");
  }
  // A NUL escaped in a text is text.
  Json body = ChatBody(std::string("a\0b", 3));
  body["max_tokens"] = 1;
  EXPECT_EQ(fixture.Post("/v1/chat/completions", body).status, 200);
  Client client(fixture.port());
  ASSERT_TRUE(
      client.Send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\n"
                  "Content-Length: 2\r\n\r\n{}"));
  const std::optional<Answer> answer = client.ReadAnswer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 400);
  EXPECT_NE(answer->body.find("Only 'application/json' is allowed, got 'text/plain'"),
            std::string::npos);
  EXPECT_EQ(answer->body.find("Unsupported Media Type"), std::string::npos);  // that is a 415
}

TEST(Errors, StepsThatFail) {
  ServerFixture fixture;
  fixture.script.SetTokens(Ids("abcdefgh"));
  Json body = {{"prompt", "x"}, {"max_tokens", 8}};
  // Before the first token: the real status, streamed or not.
  fixture.script.FailAt(0);
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    const Answer answer = fixture.Post("/v1/completions", body);
    EXPECT_EQ(answer.status, 500);
    EXPECT_EQ(answer.json().at("error").at("type"), "InternalServerError");
    EXPECT_EQ(answer.body.find("a step that fails"), std::string::npos);
  }
  // After it: an event, then the end, and no finish_reason; the connection is closed.
  fixture.script.FailAt(3);
  Client client(fixture.port());
  const std::optional<Answer> answer = client.Post("/v1/completions", body);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  const std::vector<std::string> events = answer->events();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_TRUE(Json::parse(events[3]).contains("error"));
  EXPECT_EQ(events[4], "[DONE]");
  EXPECT_EQ(answer->body.find("\"finish_reason\":\""), std::string::npos);
  EXPECT_TRUE(client.AtEnd());
  fixture.script.FailAt(-1);
  EXPECT_EQ(fixture.Post("/v1/completions", body).status, 200);
}

}  // namespace
}  // namespace kvasir::server::test
