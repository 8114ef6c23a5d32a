// POST /v1/completions: prompts of every kind, echo, logprobs as lm-eval reads them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "unit/server/server_fixture.h"

namespace kvasir::server::test {
namespace {

std::string StreamedText(const Answer& answer, int64_t index = 0) {
  std::string text;
  for (const Json& chunk : answer.chunks()) {
    for (const Json& choice : chunk.at("choices")) {
      if (choice.at("index") == index) text += choice.at("text").get<std::string>();
    }
  }
  return text;
}

TEST(Completions, WholeAnswerAndStream) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd(" there"));
  Json body = {{"prompt", "Hello"}, {"max_tokens", 50}};
  const Answer answer = fixture.Post("/v1/completions", body, {"X-Request-Id: q"});
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = answer.json();
  EXPECT_EQ(json.at("id"), "cmpl-q");
  EXPECT_EQ(json.at("object"), "text_completion");
  const Json& choice = json.at("choices").at(0);
  EXPECT_EQ(choice.at("text"), " there");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  for (const char* key :
       {"logprobs", "stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids"}) {
    EXPECT_TRUE(choice.at(key).is_null()) << key;
  }
  EXPECT_EQ(json.at("usage").at("prompt_tokens"), 1 + Ids("Hello").size());  // BOS
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const Answer streamed = fixture.Post("/v1/completions", body, {"X-Request-Id: q"});
  EXPECT_EQ(StreamedText(streamed), " there");
  EXPECT_EQ(streamed.events().back(), "[DONE]");
  const Json first = streamed.chunks().front();
  EXPECT_EQ(streamed.events()[0],
            "{\"id\":\"cmpl-q\",\"object\":\"text_completion\",\"created\":" +
                std::to_string(first.at("created").get<int64_t>()) +
                ",\"model\":\"tiny\",\"choices\":[{\"index\":0,\"text\":\"" +
                TestTokenizer().TokenText(Ids(" there")[0]) +
                "\",\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null,"
                "\"prompt_token_ids\":null,\"token_ids\":null}]}");
  EXPECT_EQ(streamed.chunks().back().at("choices"), Json::array());
}

TEST(Completions, PromptsOfEveryKind) {
  ServerFixture fixture;
  fixture.script.SetTokens(Ids("xyz"));
  const Json ids = Json(Ids("one two"));
  for (const auto& [prompt, count] : std::vector<std::pair<Json, size_t>>{
           {Json("one"), 1},
           {Json::array({"one", "two", "three"}), 3},
           {ids, 1},
           {Json::array({ids, ids}), 2},
       }) {
    Json body = {{"prompt", prompt}, {"max_tokens", 3}, {"n", 2}, {"seed", 1}};
    const Answer whole = fixture.Post("/v1/completions", body);
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json json = whole.json();
    ASSERT_EQ(json.at("choices").size(), 2 * count);
    for (size_t i = 0; i < 2 * count; ++i) {
      EXPECT_EQ(json.at("choices")[i].at("index"), i);
      EXPECT_EQ(json.at("choices")[i].at("text"), "xyz");
      EXPECT_EQ(json.at("choices")[i].at("finish_reason"), "length");
    }
    EXPECT_EQ(json.at("usage").at("completion_tokens"), 2 * count * 3);
    body["stream"] = true;
    const Answer streamed = fixture.Post("/v1/completions", body);
    for (size_t i = 0; i < 2 * count; ++i) {
      EXPECT_EQ(StreamedText(streamed, static_cast<int64_t>(i)), "xyz");
    }
  }
  // Token ids are taken as they are: no BOS.
  const Json usage =
      fixture.Post("/v1/completions", {{"prompt", ids}, {"max_tokens", 1}}).json().at("usage");
  EXPECT_EQ(usage.at("prompt_tokens"), ids.size());
}

TEST(Completions, EchoWithLogprobsAsLmEvalReadsThem) {
  ServerFixture fixture;
  for (const std::vector<TokenId>& written : {Ids("!"), std::vector<TokenId>{kEos}}) {
    fixture.script.SetTokens(written);
    const std::vector<TokenId> prompt = Ids("The capital of");
    Json body = {{"model", "tiny"},  {"prompt", Json::array({Json(prompt)})},
                 {"temperature", 0}, {"max_tokens", 1},
                 {"logprobs", 1},    {"seed", 1234},
                 {"echo", true}};
    const Answer answer = fixture.Post("/v1/completions", body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json choice = answer.json().at("choices").at(0);
    const Json& logprobs = choice.at("logprobs");
    const size_t count = prompt.size() + 1;
    for (const char* key : {"text_offset", "token_logprobs", "tokens", "top_logprobs"}) {
      ASSERT_EQ(logprobs.at(key).size(), count) << key;
    }
    EXPECT_TRUE(logprobs.at("token_logprobs")[0].is_null());
    EXPECT_TRUE(logprobs.at("top_logprobs")[0].is_null());
    std::string joined;
    for (size_t i = 0; i < count; ++i) {
      const TokenId id = i < prompt.size() ? prompt[i] : written[0];
      EXPECT_EQ(logprobs.at("tokens")[i], TestTokenizer().TokenText(id));
      if (i < prompt.size()) {
        EXPECT_EQ(logprobs.at("text_offset")[i], joined.size());
        joined += TestTokenizer().TokenText(id);
      }
      if (i == 0) continue;
      const double own = logprobs.at("token_logprobs")[i].get<double>();
      EXPECT_EQ(static_cast<float>(own), ScriptRunner::LogprobOf(id));
      const Json& top = logprobs.at("top_logprobs")[i];
      ASSERT_EQ(top.size(), id == 0 ? 1u : 2u);
      // The same double in both places.
      EXPECT_EQ(top.at(TestTokenizer().TokenText(id)).get<double>(), own);
    }
    EXPECT_EQ(joined, "The capital of");
    EXPECT_TRUE(choice.at("text").get<std::string>().starts_with("The capital of"));
    // The first chunk of the stream carries the prompt's arrays.
    body["stream"] = true;
    Json tokens = Json::array();
    for (const Json& chunk : fixture.Post("/v1/completions", body).chunks()) {
      const Json& piece = chunk.at("choices")[0].at("logprobs");
      if (!piece.is_null()) {
        for (const Json& token : piece.at("tokens")) tokens.push_back(token);
      }
    }
    EXPECT_EQ(tokens, logprobs.at("tokens"));
  }
}

TEST(Completions, EchoAlone) {
  ServerFixture fixture;
  fixture.script.SetTokens(Ids("abc"));
  // max_tokens 0 gives the prompt back and draws nothing.
  Json body = {{"prompt", "Hello"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 2}};
  const Answer answer = fixture.Post("/v1/completions", body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = answer.json();
  EXPECT_EQ(json.at("choices")[0].at("text"), "Hello");
  EXPECT_EQ(json.at("choices")[0].at("finish_reason"), "length");
  EXPECT_EQ(json.at("usage").at("completion_tokens"), 0);
  EXPECT_EQ(json.at("choices")[0].at("logprobs").at("tokens").size(), 1 + Ids("Hello").size());
  // A stop string never matches inside the echoed prompt.
  body = {{"prompt", "Hello"}, {"max_tokens", 3}, {"echo", true}, {"stop", {"ell", "b"}}};
  EXPECT_EQ(fixture.Post("/v1/completions", body).json()["choices"][0]["text"], "Helloa");
  body["stream"] = true;
  EXPECT_EQ(StreamedText(fixture.Post("/v1/completions", body)), "Helloa");
  // A long prompt with logprobs goes over the workers: same answer.
  const std::string text(400, 'x');
  body = {{"prompt", Json(Ids(text))}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 0}};
  const Json longer = fixture.Post("/v1/completions", body).json();
  EXPECT_EQ(longer.at("choices")[0].at("text"), text + "a");
  EXPECT_EQ(longer.at("choices")[0].at("logprobs").at("tokens").size(), Ids(text).size() + 1);
}

TEST(Completions, PromptLogprobs) {
  ServerFixture fixture;
  fixture.script.SetTokens(Ids("!"));
  const std::vector<TokenId> prompt = Ids("abc");
  const Json body = {{"prompt", Json(prompt)}, {"max_tokens", 1}, {"prompt_logprobs", 1}};
  const Json logprobs =
      fixture.Post("/v1/completions", body).json().at("choices")[0].at("prompt_logprobs");
  ASSERT_EQ(logprobs.size(), prompt.size());
  EXPECT_TRUE(logprobs[0].is_null());
  for (size_t i = 1; i < prompt.size(); ++i) {
    const Json& own = logprobs[i].at(std::to_string(prompt[i]));
    EXPECT_EQ(own.at("logprob").get<float>(), ScriptRunner::LogprobOf(prompt[i]));
    EXPECT_EQ(own.at("rank"), prompt[i] + 1);
    EXPECT_EQ(own.at("decoded_token"), TestTokenizer().TokenText(prompt[i]));
    EXPECT_EQ(logprobs[i].at("0").at("rank"), 1);
  }
}

TEST(Completions, StopTokensAndMinTokens) {
  ServerFixture fixture;
  std::vector<TokenId> written;
  for (const char* letter : {"a", "b", "c", "d", "e"}) written.push_back(Ids(letter).at(0));
  fixture.script.SetTokens(written);
  Json body = {{"prompt", "x"}, {"max_tokens", 5}, {"stop_token_ids", {written[2]}}};
  Json choice = fixture.Post("/v1/completions", body).json().at("choices")[0];
  EXPECT_EQ(choice.at("text"), "ab");
  EXPECT_EQ(choice.at("stop_reason"), written[2]);
  body["include_stop_str_in_output"] = true;
  choice = fixture.Post("/v1/completions", body).json().at("choices")[0];
  EXPECT_EQ(choice.at("text"), "abc");
  // Stop strings are not looked for in the first min_tokens tokens.
  body = {{"prompt", "x"}, {"max_tokens", 5}, {"stop", "b"}, {"min_tokens", 2}};
  EXPECT_EQ(fixture.Post("/v1/completions", body).json()["choices"][0]["text"], "abcde");
  body["min_tokens"] = 1;
  EXPECT_EQ(fixture.Post("/v1/completions", body).json()["choices"][0]["text"], "a");
  // The end of the text, unless it is ignored.
  fixture.script.SetTokens(IdsThenEnd("ab"));
  body = {{"prompt", "x"}, {"max_tokens", 5}};
  EXPECT_EQ(fixture.Post("/v1/completions", body).json()["usage"]["completion_tokens"], 3);
  body["ignore_eos"] = true;
  EXPECT_EQ(fixture.Post("/v1/completions", body).json()["usage"]["completion_tokens"], 5);
}

TEST(Completions, TokensAsIds) {
  ServerFixture fixture;
  fixture.script.SetTokens(Ids("a"));
  const Json body = {
      {"prompt", "x"}, {"max_tokens", 1}, {"logprobs", 1}, {"return_tokens_as_token_ids", true}};
  const Json logprobs = fixture.Post("/v1/completions", body).json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs.at("tokens")[0], "token_id:" + std::to_string(Ids("a")[0]));
  EXPECT_TRUE(logprobs.at("top_logprobs")[0].contains("token_id:0"));
}

TEST(Completions, DefaultsOfTheModel) {
  FixtureOptions options;
  options.defaults.max_new_tokens = 4;
  ServerFixture fixture(options);
  fixture.script.SetTokens(Ids("a"));
  EXPECT_EQ(
      fixture.Post("/v1/chat/completions", ChatBody("x")).json()["usage"]["completion_tokens"], 4);
  EXPECT_EQ(fixture.Post("/v1/completions", {{"prompt", "x"}}).json()["usage"]["completion_tokens"],
            4);
}

TEST(Completions, BodiesThatBenchmarksSend) {
  ServerFixture fixture;
  fixture.script.SetTokens(Ids("abc"));
  const Json guidellm = {
      {"model", "tiny"},
      {"prompt", "Test connection"},
      {"stream", true},
      {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}},
      {"max_tokens", 2},
      {"max_completion_tokens", 1},
      {"stop", nullptr},
      {"ignore_eos", true}};
  const Answer answer = fixture.Post("/v1/completions", guidellm);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.chunks().back().at("usage").at("completion_tokens"), 2);
  const Json bench = {{"model", "tiny"},     {"prompt", "x"},
                      {"max_tokens", 3},     {"repetition_penalty", 1.0},
                      {"logprobs", nullptr}, {"stream", true},
                      {"ignore_eos", true},  {"stream_options", {{"include_usage", true}}}};
  EXPECT_EQ(fixture.Post("/v1/completions", bench).chunks().size(), 4u);
}

}  // namespace
}  // namespace kvasir::server::test
