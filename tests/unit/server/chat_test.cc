// POST /v1/chat/completions, streamed and not.
#include <gtest/gtest.h>

#include <string>

#include "unit/server/server_fixture.h"

namespace kvasir::server::test {
namespace {

std::string StreamedContent(const Answer& answer, int64_t index = 0) {
  std::string text;
  for (const Json& chunk : answer.chunks()) {
    for (const Json& choice : chunk.at("choices")) {
      if (choice.at("index") == index) text += choice.at("delta").value("content", "");
    }
  }
  return text;
}

TEST(Chat, WholeAnswerHasEveryKey) {
  ServerFixture fixture;
  ASSERT_TRUE(fixture.status().ok()) << fixture.status().error().message;
  fixture.script.SetTokens(IdsThenEnd("Hello, wörld \xF0\x9F\x98\x80!"));
  const Answer answer =
      fixture.Post("/v1/chat/completions", ChatBody("Hi"), {"X-Request-Id: abc-1"});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  EXPECT_EQ(answer.headers.at("x-request-id"), "abc-1");
  const Json json = answer.json();
  EXPECT_EQ(json.at("id"), "chatcmpl-abc-1");
  EXPECT_EQ(json.at("object"), "chat.completion");
  EXPECT_EQ(json.at("model"), "tiny");
  const Json& choice = json.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_EQ(choice.at("message").at("content"), "Hello, wörld \xF0\x9F\x98\x80!");
  EXPECT_FALSE(choice.at("message").contains("tool_calls"));
  for (const char* key : {"refusal", "annotations", "audio", "function_call", "reasoning"}) {
    EXPECT_TRUE(choice.at("message").at(key).is_null()) << key;
  }
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_TRUE(choice.at("stop_reason").is_null());
  EXPECT_TRUE(choice.at("logprobs").is_null());
  EXPECT_TRUE(choice.at("token_ids").is_null());
  const std::string prompt = "<|bos|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  const auto prompt_tokens = static_cast<int64_t>(Ids(prompt).size());
  const auto tokens = static_cast<int64_t>(IdsThenEnd("Hello, wörld \xF0\x9F\x98\x80!").size());
  EXPECT_EQ(json.at("usage").at("prompt_tokens"), prompt_tokens);
  EXPECT_EQ(json.at("usage").at("completion_tokens"), tokens);
  EXPECT_EQ(json.at("usage").at("total_tokens"), prompt_tokens + tokens);
  EXPECT_EQ(json.at("usage").at("prompt_tokens_details").at("cached_tokens"), 0);
  for (const char* key : {"prompt_logprobs", "prompt_token_ids", "prompt_text", "service_tier",
                          "kv_transfer_params"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key;
  }
}

TEST(Chat, StreamIsTheWireOfVllm) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("abc"));
  Json body = ChatBody("Hi");
  body["stream"] = true;
  const Answer answer = fixture.Post("/v1/chat/completions", body, {"X-Request-Id: r"});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(answer.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(answer.headers.at("x-accel-buffering"), "no");
  const std::vector<std::string> events = answer.events();
  ASSERT_GE(events.size(), 4u);
  const Json first = Json::parse(events[0]);
  const std::string start =
      "{\"id\":\"chatcmpl-r\",\"object\":\"chat.completion.chunk\",\"created\":" +
      std::to_string(first.at("created").get<int64_t>()) +
      ",\"model\":\"tiny\",\"choices\":[{\"index\":0,\"delta\":";
  EXPECT_EQ(events[0],
            start +
                "{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                "\"finish_reason\":null}],\"prompt_token_ids\":null,\"prompt_text\":null}");
  EXPECT_EQ(events[1], start + "{\"content\":\"" + TestTokenizer().TokenText(Ids("abc")[0]) +
                           "\"},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}");
  EXPECT_EQ(
      events[events.size() - 2],
      start +
          "{\"content\":\"\"},\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null,"
          "\"token_ids\":null}],\"system_fingerprint\":\"kvasir-" KVASIR_VERSION "\"}");
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(StreamedContent(answer), "abc");
  // One chunk a token.
  EXPECT_EQ(events.size(), 1 + Ids("abc").size() + 1 + 1);
}

TEST(Chat, UsageInStreams) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("abcdef"));
  Json body = ChatBody("Hi");
  body["stream"] = true;
  // Without stream_options no usage at all.
  Answer answer = fixture.Post("/v1/chat/completions", body);
  EXPECT_EQ(answer.body.find("\"usage\""), std::string::npos);
  // include_usage: one chunk more, right before [DONE].
  body["stream_options"] = {{"include_usage", true}};
  answer = fixture.Post("/v1/chat/completions", body);
  std::vector<Json> chunks = answer.chunks();
  const auto tokens = static_cast<int64_t>(IdsThenEnd("abcdef").size());
  for (size_t i = 0; i + 1 < chunks.size(); ++i) EXPECT_FALSE(chunks[i].contains("usage"));
  EXPECT_EQ(chunks.back().at("choices"), Json::array());
  EXPECT_EQ(chunks.back().at("usage").at("completion_tokens"), tokens);
  EXPECT_TRUE(
      chunks.back().at("usage").at("prompt_tokens_details").at("cached_tokens").is_number());
  EXPECT_TRUE(chunks.back().contains("system_fingerprint"));
  EXPECT_FALSE(chunks[chunks.size() - 2].contains("system_fingerprint"));
  // continuous_usage_stats: on each, growing from 0.
  body["stream_options"]["continuous_usage_stats"] = true;
  answer = fixture.Post("/v1/chat/completions", body);
  chunks = answer.chunks();
  int64_t before = -1;
  for (const Json& chunk : chunks) {
    const int64_t now = chunk.at("usage").at("completion_tokens").get<int64_t>();
    EXPECT_GE(now, before);
    before = now;
  }
  EXPECT_EQ(chunks.front().at("usage").at("completion_tokens"), 0);
  EXPECT_EQ(before, tokens);
}

TEST(Chat, StreamedEqualsWholeWithStopStringsAndSplitCharacters) {
  ServerFixture fixture;
  const std::string text = "The caf\xC3\xA9 \xE4\xBB\x8A\xE5\xA4\xA9 \xF0\x9F\x98\x80 STOPPED here";
  fixture.script.SetTokens(IdsThenEnd(text));
  for (const Json& stop : {Json(nullptr), Json("STOP"), Json::array({"\xF0\x9F\x98\x80", "here"}),
                           Json::array(), Json("never to be seen"), Json("T")}) {
    for (const bool include : {false, true}) {
      Json body = ChatBody("Hi");
      body["stop"] = stop;
      body["include_stop_str_in_output"] = include;
      const Answer whole = fixture.Post("/v1/chat/completions", body);
      ASSERT_EQ(whole.status, 200) << whole.body;
      body["stream"] = true;
      body["stream_options"] = {{"include_usage", true}};
      const Answer streamed = fixture.Post("/v1/chat/completions", body);
      const Json message = whole.json().at("choices").at(0);
      EXPECT_EQ(StreamedContent(streamed), message.at("message").at("content").get<std::string>());
      EXPECT_EQ(streamed.body.find("\xEF\xBF\xBD"), std::string::npos);
      const std::vector<Json> chunks = streamed.chunks();
      const Json& last = chunks[chunks.size() - 2].at("choices").at(0);
      EXPECT_EQ(last.at("finish_reason"), message.at("finish_reason"));
      EXPECT_EQ(last.at("stop_reason"), message.at("stop_reason"));
      EXPECT_EQ(chunks.back().at("usage").at("completion_tokens"),
                whole.json().at("usage").at("completion_tokens"));
    }
  }
}

TEST(Chat, StopStringEndsTheChoiceInTheEngineToo) {
  ServerFixture fixture;
  fixture.script.SetTokens(Ids("one two three four five six"));  // and its last token for ever
  // Enough steps to write it, and too few to reach max_tokens: the gate holds the engine there.
  fixture.script.SetAllowed(60);
  Json body = ChatBody("Hi");
  body["stop"] = {"three"};
  body["max_tokens"] = 400;
  const Answer answer = fixture.Post("/v1/chat/completions", body);
  const Json choice = answer.json().at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("content"), "one two ");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(choice.at("stop_reason"), "three");
  fixture.script.Allow(1);
  EXPECT_TRUE(Eventually([&] { return fixture.engine().Idle(); }));
  EXPECT_EQ(fixture.metrics().finished_stop.value(), 1);
}

TEST(Chat, TimingsAreThereWhereAStopStringEndsIt) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("abcdef"));
  Json body = ChatBody("Hi");
  body["stop"] = "cd";
  body["timings"] = true;
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    const Answer answer = fixture.Post("/v1/chat/completions", body);
    const Json last = stream ? answer.chunks().back() : answer.json();
    for (const char* name : {"queue_ms", "prefill_ms", "decode_ms", "first_token_ms", "total_ms",
                             "prefill_tokens_per_second"}) {
      EXPECT_TRUE(last.at("timings").at(name).is_number()) << name << answer.body;
    }
    EXPECT_GT(last.at("timings").at("prefill_ms").get<double>(), 0.0);
  }
}

TEST(Chat, SeveralChoices) {
  ServerFixture fixture;
  fixture.script.SetTokens(Ids("abcdefghijklmnopqrstuvwxyz"));
  fixture.script.SetBySeed(true);
  Json body = ChatBody("Hi");
  body["n"] = 3;
  body["seed"] = 7;
  body["max_tokens"] = 5;
  const Json whole = fixture.Post("/v1/chat/completions", body).json();
  ASSERT_EQ(whole.at("choices").size(), 3u);
  EXPECT_EQ(whole.at("usage").at("completion_tokens"), 15);
  EXPECT_EQ(fixture.Post("/v1/chat/completions", body).json().at("choices"), whole.at("choices"));
  body["stream"] = true;
  const Answer streamed = fixture.Post("/v1/chat/completions", body);
  int finishes = 0;
  for (const Json& chunk : streamed.chunks()) {
    for (const Json& choice : chunk.at("choices")) {
      if (!choice.at("finish_reason").is_null()) ++finishes;
    }
  }
  EXPECT_EQ(finishes, 3);
  for (int64_t i = 0; i < 3; ++i) {
    const Json& choice = whole.at("choices").at(static_cast<size_t>(i));
    EXPECT_EQ(choice.at("index"), i);
    EXPECT_EQ(choice.at("finish_reason"), "length");
    EXPECT_EQ(StreamedContent(streamed, i), choice.at("message").at("content").get<std::string>());
  }
}

TEST(Chat, Logprobs) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("ab\xF0\x9F\x98\x80"));
  Json body = ChatBody("Hi");
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  const Json whole = fixture.Post("/v1/chat/completions", body).json();
  const Json& content = whole.at("choices").at(0).at("logprobs").at("content");
  const std::vector<TokenId> ids = IdsThenEnd("ab\xF0\x9F\x98\x80");
  ASSERT_EQ(content.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string bytes = TestTokenizer().TokenBytes(ids[i]);
    Json numbers = Json::array();
    for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
    EXPECT_EQ(content[i].at("bytes"), numbers);
    EXPECT_EQ(content[i].at("token"), TestTokenizer().TokenText(ids[i]));
    EXPECT_EQ(content[i].at("logprob").get<float>(), ScriptRunner::LogprobOf(ids[i]));
    ASSERT_EQ(content[i].at("top_logprobs").size(), 2u);
    EXPECT_EQ(content[i].at("top_logprobs")[0].at("logprob").get<float>(),
              ScriptRunner::LogprobOf(0));
  }
  // Held tokens' entries come with the chunk that releases them: none is lost.
  body["stream"] = true;
  body["stop"] = "zz";
  Json streamed = Json::array();
  for (const Json& chunk : fixture.Post("/v1/chat/completions", body).chunks()) {
    const Json& logprobs = chunk.at("choices").at(0).at("logprobs");
    if (logprobs.is_null()) continue;
    for (const Json& entry : logprobs.at("content")) streamed.push_back(entry);
  }
  EXPECT_EQ(streamed, content);
  // top_logprobs 0: none.
  body.erase("stream");
  body["top_logprobs"] = 0;
  EXPECT_EQ(fixture.Post("/v1/chat/completions", body)
                .json()["choices"][0]["logprobs"]["content"][0]["top_logprobs"],
            Json::array());
}

TEST(Chat, TokenIdsPromptTextAndTimings) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("abc"));
  Json body = ChatBody("Hi");
  body["return_token_ids"] = true;
  body["return_prompt_text"] = true;
  body["timings"] = true;
  const Json whole = fixture.Post("/v1/chat/completions", body).json();
  EXPECT_EQ(whole.at("choices")[0].at("token_ids"), Json(IdsThenEnd("abc")));
  const std::string prompt = whole.at("prompt_text").get<std::string>();
  EXPECT_EQ(prompt, "<|bos|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(whole.at("prompt_token_ids"), Json(Ids(prompt)));
  EXPECT_GE(whole.at("timings").at("queue_ms").get<double>(), 0.0);
  EXPECT_GT(whole.at("timings").at("total_ms").get<double>(), 0.0);
  body["stream"] = true;
  Json ids = Json::array();
  for (const Json& chunk : fixture.Post("/v1/chat/completions", body).chunks()) {
    for (const Json& id : chunk.at("choices")[0].value("token_ids", Json::array())) {
      ids.push_back(id);
    }
  }
  EXPECT_EQ(ids, Json(IdsThenEnd("abc")));
}

TEST(Chat, EchoAndContinue) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd(" world"));
  Json body = ChatBody("Hi");
  body["messages"].push_back(Json{{"role", "assistant"}, {"content", "Hello"}});
  body["continue_final_message"] = true;
  body["add_generation_prompt"] = false;
  body["echo"] = true;
  body["return_prompt_text"] = true;
  const Json whole = fixture.Post("/v1/chat/completions", body).json();
  EXPECT_EQ(whole.at("choices")[0].at("message").at("content"), "Hello world");
  const std::string prompt = whole.at("prompt_text").get<std::string>();
  EXPECT_TRUE(prompt.ends_with("assistant\nHello")) << prompt;
  body["stream"] = true;
  EXPECT_EQ(StreamedContent(fixture.Post("/v1/chat/completions", body)), "Hello world");
}

TEST(Chat, CachedTokensAreReported) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("ok"));
  const Json body = ChatBody("A prompt long enough to fill several blocks of sixteen tokens each.");
  fixture.Post("/v1/chat/completions", body);
  const Json usage = fixture.Post("/v1/chat/completions", body).json().at("usage");
  EXPECT_GE(usage.at("prompt_tokens_details").at("cached_tokens").get<int64_t>(), 16);
  // Another salt shares nothing.
  Json salted = body;
  salted["cache_salt"] = "other";
  EXPECT_EQ(fixture.Post("/v1/chat/completions", salted)
                .json()["usage"]["prompt_tokens_details"]["cached_tokens"],
            0);
}

TEST(Chat, LineSeparatorsAreEscapedInStreams) {
  ServerFixture fixture;
  const std::string text =
      "a\xE2\x80\xA8"
      "b\xE2\x80\xA9"
      "c\xC2\x85"
      "d";
  fixture.script.SetTokens(IdsThenEnd(text));
  Json body = ChatBody("Hi");
  body["stream"] = true;
  const Answer answer = fixture.Post("/v1/chat/completions", body);
  EXPECT_EQ(answer.body.find("\xE2\x80\xA8"), std::string::npos);
  EXPECT_NE(answer.body.find("\\u2028"), std::string::npos);
  EXPECT_EQ(StreamedContent(answer), text);
}

TEST(Chat, NullFieldsAreAbsentFields) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("ok"));
  Json body = ChatBody("Hi");
  for (const char* field : {"model",
                            "max_tokens",
                            "max_completion_tokens",
                            "n",
                            "temperature",
                            "top_p",
                            "top_k",
                            "min_p",
                            "presence_penalty",
                            "frequency_penalty",
                            "repetition_penalty",
                            "logit_bias",
                            "seed",
                            "stop",
                            "stop_token_ids",
                            "ignore_eos",
                            "min_tokens",
                            "stream",
                            "stream_options",
                            "logprobs",
                            "top_logprobs",
                            "prompt_logprobs",
                            "tools",
                            "tool_choice",
                            "response_format",
                            "structured_outputs",
                            "guided_json",
                            "reasoning_effort",
                            "chat_template",
                            "chat_template_kwargs",
                            "echo",
                            "documents",
                            "truncate_prompt_tokens",
                            "allowed_token_ids",
                            "bad_words",
                            "priority",
                            "cache_salt",
                            "user",
                            "metadata",
                            "functions",
                            "function_call"}) {
    body[field] = nullptr;
  }
  const Answer answer = fixture.Post("/v1/chat/completions", body);
  EXPECT_EQ(answer.status, 200) << answer.body;
}

}  // namespace
}  // namespace kvasir::server::test
