// What docs/security.md promises of the server's face.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "server/auth.h"
#include "server/routes.h"
#include "unit/server/server_fixture.h"

namespace kvasir::server::test {
namespace {

HttpRequest WithKey(const std::string& key) {
  HttpRequest request;
  request.headers = {{"authorization", "Bearer " + key}};
  return request;
}

TEST(Security, TheTimeOfAKeyCheckDoesNotTellHowMuchWasRight) {
  // Keys so long that a comparison which ends at the first difference would be seen at once: it
  // takes nanoseconds where the first byte differs and microseconds where the last one does.
  const std::string key(64 * 1024, 'k');
  const Auth auth({key});
  std::string first = key;
  first.front() = 'x';
  std::string last = key;
  last.back() = 'x';
  const auto time_of = [&](const HttpRequest& request) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(auth.Check(request).has_value());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  // The least of many turns is what nobody else's work lengthens.
  double first_s = 1;
  double last_s = 1;
  const HttpRequest with_first = WithKey(first);
  const HttpRequest with_last = WithKey(last);
  for (int turn = 0; turn < 40; ++turn) {
    first_s = std::min(first_s, time_of(with_first));
    last_s = std::min(last_s, time_of(with_last));
  }
  EXPECT_LT(first_s, last_s * 1.3);
  EXPECT_LT(last_s, first_s * 1.3);
  EXPECT_EQ(auth.Check(WithKey(key)), 0U);
}

TEST(Security, KeysAreComparedWhole) {
  const Auth auth({"correct-key", "other"});
  for (const std::string& wrong :
       {std::string(), std::string("c"), std::string("correct-ke"), std::string("correct-keyy"),
        std::string("Correct-key"), std::string(" correct-key"), std::string("correct-key "),
        std::string("correct-key\0", 12), std::string("correct-key,other"), std::string("*")}) {
    EXPECT_FALSE(auth.Check(WithKey(wrong))) << wrong;
  }
  EXPECT_EQ(auth.Check(WithKey("other")), 1U);
  EXPECT_FALSE(Auth({"a"}).open());
  EXPECT_TRUE(Auth({}).open());
}

TEST(Security, EveryRouteButHealthAndReadyNeedsAKey) {
  FixtureOptions options;
  options.server.api_keys = {"the-key"};
  ServerFixture fixture(options);
  fixture.script.SetTokens(IdsThenEnd("ok"));
  Client client(fixture.port());
  std::vector<std::string> paths = {
      "/nope",    "/v1",        "/invocations",  "/v1/../metrics", "/%2e%2e/metrics",
      "/admin",   "/docs",      "/openapi.json", "/v1/embeddings", "/health/../metrics",
      "/healthz", "/health%2fx"};
  for (const Route& route : Routes()) {
    const std::string path(route.path);
    paths.push_back(route.prefix ? path + "tiny" : path);
    if (route.open) continue;
    paths.push_back("/" + path);
    paths.push_back(path + "?x=/health");
    if (path.size() > 1 && !route.prefix) paths.push_back(path + "/");
    std::string upper = path;
    std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
    paths.push_back(upper);
    paths.push_back("http://elsewhere" + path);
  }
  int open_count = 0;
  for (const std::string& path : paths) {
    const bool open = path == "/health" || path == "/ready";
    open_count += open ? 1 : 0;
    for (const char* method :
         {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"}) {
      const std::optional<Answer> answer =
          client.Call(method, path, std::string_view(method) == "POST" ? "{}" : "");
      ASSERT_TRUE(answer) << method << " " << path;
      if (!open) {
        EXPECT_EQ(answer->status, 401) << method << " " << path;
        EXPECT_EQ(answer->headers.at("www-authenticate"), "Bearer");
      } else if (std::string_view(method) == "GET") {
        EXPECT_EQ(answer->status, 200) << path;
      }
    }
  }
  EXPECT_EQ(open_count, 2);
  for (const std::string& header :
       {std::string("Authorization: Bearer"), std::string("Authorization: Basic dGhlLWtleTo="),
        std::string("Authorization: the-key"), std::string("Authorization: Bearer the-key2"),
        std::string("Authorization: Bearer  the-key"), std::string("X-Api-Key: THE-KEY"),
        std::string("Cookie: key=the-key"), std::string("Proxy-Authorization: Bearer the-key")}) {
    EXPECT_EQ(client.Call("GET", "/v1/models", {}, {header})->status, 401) << header;
  }
  EXPECT_EQ(client.Call("GET", "/v1/models?api_key=the-key")->status, 401);
  // With the key, what is not there is not there; the large body of a stranger is not read.
  const std::vector<std::string> good = {"Authorization: Bearer the-key"};
  EXPECT_EQ(client.Call("GET", "/nope", {}, good)->status, 404);
  EXPECT_EQ(client.Call("OPTIONS", "/v1/models", {}, good)->status, 204);
  EXPECT_EQ(client.Call("OPTIONS", "/nope", {}, good)->status, 404);
  Client stranger(fixture.port());
  ASSERT_TRUE(stranger.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 50000000\r\n\r\n"));
  EXPECT_EQ(stranger.ReadAnswer()->status, 401);
  EXPECT_TRUE(stranger.AtEnd());
  // A browser's preflight has no key to send; its answer is the same wherever it asks.
  const std::vector<std::string> preflight = {"Origin: http://page",
                                              "Access-Control-Request-Method: POST"};
  EXPECT_EQ(client.Call("OPTIONS", "/v1/models", {}, preflight)->status, 200);
  EXPECT_EQ(client.Call("OPTIONS", "/nope", {}, preflight)->status, 200);
}

TEST(Security, EveryLimitIsInItsMessage) {
  ServerFixture fixture;
  const auto many = [](int count, const Json& item) {
    Json list = Json::array();
    for (int i = 0; i < count; ++i) list.push_back(item);
    return list;
  };
  struct Case {
    const char* field;
    Json value;
    std::vector<std::string> words;  ///< the limit, and what came
  };
  const std::vector<Case> cases = {
      {"n", 129, {"128", "129"}},
      {"stop", many(17, "x"), {"16", "17"}},
      {"stop", std::string(4097, 'x'), {"4096", "4097"}},
      {"stop", many(500'000, "x"), {"16", "500000"}},
      {"stop_token_ids", many(16'385, 5), {"16384", "16385"}},
      {"bad_words", many(1'025, "x"), {"1024", "1025"}},
      {"logprob_token_ids", many(129, 5), {"128", "129"}},
      {"allowed_token_ids", many(385, 5), {"384", "385"}},
      {"prompt_logprobs", 21, {"20", "21"}},
      {"cache_salt", std::string(1'025, 'x'), {"1024", "1025"}},
      {"temperature", 2.01, {"2", "2.01"}},
      {"repetition_penalty", 101, {"100", "101"}},
      {"max_tokens", 100'000, {"512", "100000"}},
      {"seed", 1e19, {"64-bit"}},
  };
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    for (const Case& c : cases) {
      Json body = ChatBody("Hi");
      body["prompt"] = "Hi";
      body[c.field] = c.value;
      const Answer answer = fixture.Post(path, body);
      EXPECT_EQ(answer.status, 400) << c.field;
      for (const std::string& word : c.words) {
        EXPECT_NE(answer.body.find(word), std::string::npos) << c.field << ": " << answer.body;
      }
      EXPECT_LT(answer.body.size(), 400U) << c.field;
    }
  }
  const auto expect = [&](const char* path, const Json& body,
                          const std::vector<std::string>& words) {
    const Answer answer = fixture.Post(path, body);
    EXPECT_EQ(answer.status, 400) << words[0];
    for (const std::string& word : words) {
      EXPECT_NE(answer.body.find(word), std::string::npos) << answer.body.substr(0, 300);
    }
    EXPECT_LT(answer.body.size(), 400U);
  };
  expect("/v1/completions", {{"prompt", many(1'025, "a")}}, {"1024", "1025"});
  expect("/v1/completions", {{"prompt", many(600, 5)}}, {"512", "600"});
  expect("/v1/completions", {{"prompt", many(100, "a")}, {"n", 128}, {"max_tokens", 1}}, {"4096"});
  expect("/v1/completions", {{"prompt", "a"}, {"logprobs", 21}}, {"20", "21"});
  Json chat = ChatBody("Hi");
  chat["logprobs"] = true;
  chat["top_logprobs"] = 21;
  expect("/v1/chat/completions", chat, {"20", "21"});
  expect("/v1/chat/completions", {{"messages", many(65'537, {{"role", "user"}, {"content", "a"}})}},
         {"65536", "65537"});
  expect("/detokenize", {{"tokens", {384}}}, {"383", "384"});
}

TEST(Security, TheCacheSaltSeparatesWhatIsComputed) {
  // Time is what the engine computes: a prompt that others have sent under another salt costs a
  // whole prefill, token for token.
  FixtureOptions options;
  options.server.api_keys = {"a", "b"};
  ServerFixture fixture(options);
  fixture.script.SetTokens(IdsThenEnd("x"));
  const std::vector<TokenId> prompt(100, 40);
  const auto computed = [&](const char* key, const char* salt) {
    const double before = fixture.metrics().iteration_tokens.sum();
    Json body = {{"prompt", prompt}, {"max_tokens", 1}};
    if (*salt != '\0') body["cache_salt"] = salt;
    const Answer answer = fixture.Post("/v1/completions", body, {std::string("X-Api-Key: ") + key});
    EXPECT_EQ(answer.status, 200) << answer.body;
    const auto cached =
        answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
    const auto tokens = static_cast<int64_t>(fixture.metrics().iteration_tokens.sum() - before);
    EXPECT_EQ(tokens, static_cast<int64_t>(prompt.size()) - cached);
    return tokens;
  };
  EXPECT_EQ(computed("a", "one"), 100);
  EXPECT_EQ(computed("a", "two"), 100);
  EXPECT_EQ(computed("a", ""), 100);
  // The same salt from another key is another salt; a guess at how salts are made is one too.
  EXPECT_EQ(computed("b", "one"), 100);
  EXPECT_EQ(computed("b", ""), 100);
  EXPECT_EQ(computed("b", "0:one"), 100);
  EXPECT_EQ(computed("b", ":0:one"), 100);
  // Its own it finds: all but the last block.
  EXPECT_EQ(computed("a", "one"), 4);
  EXPECT_EQ(computed("a", "two"), 4);
  EXPECT_EQ(computed("b", "one"), 4);
}

TEST(Security, CachedTokensCanBeHidden) {
  FixtureOptions options;
  options.server.enable_prompt_tokens_details = false;
  ServerFixture fixture(options);
  fixture.script.SetTokens(IdsThenEnd("x"));
  const Json body = {{"prompt", std::vector<TokenId>(100, 40)}, {"max_tokens", 1}};
  EXPECT_EQ(fixture.Post("/v1/completions", body).status, 200);
  EXPECT_EQ(fixture.Post("/v1/completions", body).body.find("cached_tokens"), std::string::npos);
}

}  // namespace
}  // namespace kvasir::server::test
