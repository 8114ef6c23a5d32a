// The HTTP side: framing, limits, keep-alive, clients that leave, slow ones, sockets, TLS.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "unit/server/server_fixture.h"

namespace kvasir::server::test {
namespace {

using std::string_literals::operator""s;  // NOLINT(misc-unused-using-decls): it is used

/// A whole POST to /v1/completions.
std::string PostOf(const std::string& body) {
  return "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

int StatusOf(ServerFixture& fixture, const std::string& bytes) {
  Client client(fixture.port());
  client.Send(bytes);
  const std::optional<Answer> answer = client.ReadAnswer();
  if (!answer) return -1;
  EXPECT_TRUE(answer->status < 400 || answer->json().contains("error")) << answer->body;
  return answer->status;
}

TEST(Http, RoutesMethodsAndSlashes) {
  ServerFixture fixture;
  Client client(fixture.port());
  for (const char* path : {"/health", "/ready", "/ping", "/version", "/metrics", "/load", "/",
                           "/v1/models", "/tokenizer_info", "/metrics/", "/health/"}) {
    const std::optional<Answer> got = client.Call("GET", path);
    ASSERT_TRUE(got) << path;
    EXPECT_EQ(got->status, 200) << path;
    const std::optional<Answer> head = client.Call("HEAD", path);
    ASSERT_TRUE(head) << path;
    EXPECT_EQ(head->status, 200) << path;
    // Bodies of these two change from call to call.
    if (std::string(path).find("metrics") == std::string::npos) {
      EXPECT_EQ(head->headers.at("content-length"), got->headers.at("content-length")) << path;
    }
  }
  EXPECT_EQ(client.Call("POST", "/ping")->status, 200);
  std::optional<Answer> answer = client.Call("GET", "/v1/chat/completions");
  EXPECT_EQ(answer->status, 405);
  EXPECT_EQ(answer->headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(answer->json().at("error").at("code"), 405);
  answer = client.Call("DELETE", "/v1/models");
  EXPECT_EQ(answer->status, 405);
  EXPECT_EQ(answer->headers.at("allow"), "GET, HEAD, OPTIONS");
  for (const char* path : {"/nope", "//v1/models", "/V1/models", "/v1/../metrics", "/v1"}) {
    answer = client.Call("GET", path);
    EXPECT_EQ(answer->status, 404) << path;
    EXPECT_EQ(answer->json().at("error").at("message"), "Not Found");
  }
  EXPECT_EQ(client.Call("GET", "/v1/models/tiny")->json().at("id"), "tiny");
  EXPECT_EQ(client.Call("GET", "/v1/models/alias/two")->json().at("id"), "alias/two");
  EXPECT_EQ(client.Call("GET", "/v1/models/alias%2Ftwo")->json().at("id"), "alias/two");
  EXPECT_EQ(client.Call("GET", "/v1/models/none")->status, 404);
  EXPECT_EQ(client.Call("GET", "http://elsewhere/health")->status, 200);
  EXPECT_EQ(client.Call("OPTIONS", "/v1/models")->headers.at("allow"), "GET, HEAD, OPTIONS");
}

TEST(Http, ShapesThatTwoParsersReadDifferently) {
  ServerFixture fixture;
  const std::string post =
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n";
  for (const std::string& shape : {
           post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
           post + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
           post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
           post + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
           post + "Content-Length: 2, 2\r\n\r\n{}",
           post + "Content-Length: +2\r\n\r\n{}",
           post + "Content-Length: -1\r\n\r\n{}",
           post + "Content-Length: 0x2\r\n\r\n{}",
           post + "Content-Length: 99999999999999999999\r\n\r\n{}",
           post + "Content-Length : 2\r\n\r\n{}",
           post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
           post + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n",
           post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
           std::string("GET /health HTTP/1.1\r\n\r\n"),
           std::string("GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
           std::string("GET /health HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n"),
           std::string("GET /health HTTP/1.1\r\nHost: a\r\nx: \x01\r\n\r\n"),
           std::string("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n"),
           std::string("GET /a%00b HTTP/1.1\r\nHost: a\r\n\r\n"),
           std::string("nonsense\r\n\r\n"),
           "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello TLS\r\n\r\n"s,
       }) {
    Client client(fixture.port());
    client.Send(shape);
    const std::optional<Answer> answer = client.ReadAnswer();
    ASSERT_TRUE(answer) << shape;
    EXPECT_TRUE(answer->status == 400 || answer->status == 413) << shape << answer->status;
    EXPECT_TRUE(answer->json().contains("error"));
    EXPECT_TRUE(client.AtEnd()) << shape;
  }
  EXPECT_EQ(StatusOf(fixture, "GET /health HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(StatusOf(fixture,
                     "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
                     "Expect: tea\r\n\r\n"),
            417);
}

TEST(Http, Limits) {
  FixtureOptions options;
  options.server.limits.body_bytes_max = 1000;
  ServerFixture fixture(options);
  EXPECT_EQ(StatusOf(fixture, "GET /health HTTP/1.1\r\nHost: a\r\nx: " + std::string(100'000, 'x') +
                                  "\r\n\r\n"),
            431);
  std::string many = "GET /health HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 20'000; ++i) many += "h: v\r\n";
  EXPECT_EQ(StatusOf(fixture, many + "\r\n"), 431);
  const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(StatusOf(fixture, post + "Content-Length: 1001\r\n\r\n"), 413);
  EXPECT_EQ(StatusOf(fixture, post + "Transfer-Encoding: chunked\r\n\r\n400\r\n" +
                                  std::string(1024, 'x') + "\r\n0\r\n\r\n"),
            413);
  EXPECT_EQ(
      StatusOf(fixture, post + "Transfer-Encoding: chunked\r\n\r\n2;" + std::string(300'000, 'x')),
      431);
  // A client that sends all of a too large body still reads the answer, which holds none of it.
  Client client(fixture.port());
  ASSERT_TRUE(client.Send(post + "Content-Length: 3000000\r\n\r\n"));
  client.Send(std::string(3'000'000, 'q'));
  const std::optional<Answer> answer = client.ReadAnswer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 413);
  EXPECT_EQ(answer->body.find("qqq"), std::string::npos);
  EXPECT_NE(answer->body.find("1000 bytes"), std::string::npos);
}

TEST(Http, KeepAlivePipeliningAndChunkedBodies) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("ok"));
  const std::string body = R"({"prompt":"a","max_tokens":5})";
  const std::string post =
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json; "
      "charset=utf-8\r\n";
  const std::string plain =
      post + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  const std::string stream_body = R"({"prompt":"a","max_tokens":5,"stream":true})";
  const std::string stream =
      post + "Content-Length: " + std::to_string(stream_body.size()) + "\r\n\r\n" + stream_body;
  std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  for (const char c : body) chunked += std::string("1;ext=1\r\n") + c + "\r\n";
  chunked += "0\r\nTrailer: x\r\n\r\n";
  // All at once; answers come in order, a stream leaves the connection usable.
  Client client(fixture.port());
  ASSERT_TRUE(
      client.Send("\r\n" + plain + stream + chunked + "GET /version HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_EQ(client.ReadAnswer()->json().at("choices")[0].at("text"), "ok");
  EXPECT_EQ(client.ReadAnswer()->events().back(), "[DONE]");
  EXPECT_EQ(client.ReadAnswer()->json().at("choices")[0].at("text"), "ok");
  EXPECT_EQ(client.ReadAnswer()->json().at("version"), KVASIR_VERSION);
  // The same in pieces of one byte.
  for (const char c : plain) ASSERT_TRUE(client.Send(std::string(1, c)));
  EXPECT_EQ(client.ReadAnswer()->status, 200);
  // Close, and HTTP/1.0.
  ASSERT_TRUE(client.Send("GET /version HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"));
  EXPECT_EQ(client.ReadAnswer()->headers.at("connection"), "close");
  EXPECT_TRUE(client.AtEnd());
  Client old(fixture.port());
  ASSERT_TRUE(
      old.Send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
               "Content-Length: " +
               std::to_string(stream_body.size()) + "\r\n\r\n" + stream_body));
  const std::optional<Answer> answer = old.ReadAnswer();
  ASSERT_TRUE(answer);
  EXPECT_FALSE(answer->headers.contains("transfer-encoding"));
  EXPECT_EQ(answer->events().back(), "[DONE]");
}

TEST(Http, Expect100Continue) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("ok"));
  const std::string body = R"({"prompt":"a","max_tokens":5})";
  Client client(fixture.port());
  ASSERT_TRUE(
      client.Send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
                  "Expect: 100-continue\r\nContent-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n"));
  ASSERT_TRUE(client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n"));
  ASSERT_TRUE(client.Send(body));
  EXPECT_EQ(client.ReadAnswer()->status, 200);
  // Refused before the body is sent.
  ASSERT_TRUE(
      client.Send("POST /nope HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\n"
                  "Content-Length: 50000000\r\n\r\n"));
  const std::optional<Answer> answer = client.ReadAnswer();
  EXPECT_EQ(answer->status, 404);
  EXPECT_TRUE(answer->headers.contains("x-request-id"));
  EXPECT_TRUE(client.AtEnd());
}

TEST(Http, Cors) {
  ServerFixture fixture;
  Answer answer = fixture.Call("OPTIONS", "/v1/chat/completions", {},
                               {"Origin: http://page", "Access-Control-Request-Method: POST",
                                "Access-Control-Request-Headers: authorization, x-stainless-os"});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "*");
  EXPECT_EQ(answer.headers.at("access-control-allow-headers"), "authorization, x-stainless-os");
  answer = fixture.Call("GET", "/v1/models", {}, {"Origin: http://page"});
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "*");
  EXPECT_FALSE(fixture.Call("GET", "/v1/models").headers.contains("access-control-allow-origin"));

  FixtureOptions options;
  options.server.allowed_origins = {"http://good"};
  ServerFixture strict(options);
  answer = strict.Call("GET", "/v1/models", {}, {"Origin: http://good"});
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "http://good");
  EXPECT_EQ(answer.headers.at("vary"), "Origin");
  answer = strict.Call("GET", "/v1/models", {}, {"Origin: http://bad"});
  EXPECT_FALSE(answer.headers.contains("access-control-allow-origin"));
  EXPECT_EQ(strict
                .Call("OPTIONS", "/v1/models", {},
                      {"Origin: http://bad", "Access-Control-Request-Method: GET"})
                .status,
            400);
}

TEST(Http, ApiKeys) {
  FixtureOptions options;
  options.server.api_keys = {"first key", "second"};
  ServerFixture fixture(options);
  fixture.script.SetTokens(IdsThenEnd("ok"));
  for (const char* path : {"/health", "/ready"}) {
    EXPECT_EQ(fixture.Call("GET", path).status, 200);
  }
  for (const char* path :
       {"/", "/metrics", "/version", "/load", "/v1/models", "/v1/models/tiny", "/tokenizer_info",
        "//v1/models", "/V1/models", "/v1/models/", "/nope"}) {
    for (const std::string& header :
         {std::string("X: y"), std::string("Authorization: Bearer "),
          std::string("Authorization: Bearer wrong"), std::string("Authorization: second"),
          std::string("x-api-key: "), std::string("Authorization: Bearer Second")}) {
      const Answer answer = fixture.Call("GET", path, {}, {header});
      EXPECT_EQ(answer.status, 401) << path << " " << header;
      EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
      EXPECT_EQ(answer.json().at("error").at("code"), "invalid_api_key");
    }
  }
  EXPECT_EQ(fixture.Call("POST", "/tokenize", "{\"prompt\":\"a\"}").status, 401);
  for (const std::string& header :
       {std::string("Authorization: Bearer first key"), std::string("authorization: bEARER second"),
        std::string("X-Api-Key: second")}) {
    EXPECT_EQ(fixture.Call("GET", "/v1/models", {}, {header}).status, 200) << header;
  }
  EXPECT_EQ(fixture
                .Call("OPTIONS", "/v1/models", {},
                      {"Origin: http://page", "Access-Control-Request-Method: GET"})
                .status,
            200);
  // Users with different keys share no cache, even with the same salt.
  Json body = ChatBody("A prompt long enough to fill several blocks of sixteen tokens each.");
  body["cache_salt"] = "shared";
  const auto cached = [&](const char* key) {
    return fixture.Post("/v1/chat/completions", body, {std::string("X-Api-Key: ") + key})
        .json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        .get<int64_t>();
  };
  EXPECT_EQ(cached("second"), 0);
  EXPECT_GT(cached("second"), 0);
  EXPECT_EQ(cached("first key"), 0);
}

TEST(Http, RequestIds) {
  ServerFixture fixture;
  EXPECT_EQ(
      fixture.Call("GET", "/version", {}, {"X-Request-Id: my-id.1"}).headers.at("x-request-id"),
      "my-id.1");
  const std::string made = fixture.Call("GET", "/version").headers.at("x-request-id");
  EXPECT_EQ(made.size(), 32u);
  EXPECT_NE(
      fixture.Call("GET", "/version", {}, {"X-Request-Id: a b\"c"}).headers.at("x-request-id"),
      "a b\"c");
}

TEST(Http, AClientThatLeavesFreesItsPlace) {
  ServerFixture fixture;
  fixture.script.SetTokens(Ids("a"));
  fixture.script.SetAllowed(3);
  // Streamed, whole, and waiting in the queue behind a gate.
  for (const bool stream : {true, false}) {
    Json body = {{"prompt", "x"}, {"max_tokens", 400}, {"ignore_eos", true}, {"stream", stream}};
    Client client(fixture.port());
    const std::string text = body.dump();
    ASSERT_TRUE(client.Send(PostOf(text)));
    if (stream) {
      ASSERT_TRUE(client.ReadUntil("\"text\":"));
    }
    ASSERT_TRUE(
        Eventually([&] { return fixture.server().InFlight() == 1 && !fixture.engine().Idle(); }));
    client.Close();
    ASSERT_TRUE(Eventually([&] { return fixture.server().InFlight() == 0; }));
    fixture.script.Allow(2);
    ASSERT_TRUE(Eventually([&] { return fixture.engine().Idle(); }));
  }
  EXPECT_EQ(fixture.metrics().kv_blocks_used.value(), 0);
  EXPECT_EQ(fixture.metrics().finished_abort.value(), 2);
}

TEST(Http, ManyClientsLeaveWhileOthersStay) {
  ServerFixture fixture;
  fixture.script.SetTokens(Ids("a"));
  const std::string text = R"({"prompt":"x","max_tokens":60,"stream":true,"ignore_eos":true})";
  const std::string request = PostOf(text);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(std::make_unique<Client>(fixture.port()));
    ASSERT_TRUE(clients.back()->Send(request));
  }
  for (size_t i = 0; i < clients.size(); i += 2) clients[i]->Close();
  for (size_t i = 1; i < clients.size(); i += 2) {
    const std::optional<Answer> answer = clients[i]->ReadAnswer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->events().back(), "[DONE]");
    EXPECT_EQ(answer->chunks().size(), 60u);
  }
  ASSERT_TRUE(
      Eventually([&] { return fixture.engine().Idle() && fixture.server().InFlight() == 0; }));
  EXPECT_TRUE(Eventually([&] { return fixture.metrics().kv_blocks_used.value() == 0; }));
}

TEST(Http, ASlowReaderIsCutAndItsRequestCancelled) {
  FixtureOptions options;
  options.server.limits.stream_buffer_bytes_max = 20'000;
  options.engine.max_model_len = 200'000;
  options.engine.cache.blocks_count = 20'000;
  ServerFixture fixture(options);
  fixture.script.SetTokens(Ids("a"));
  // Fills the kernel's buffers and then ours, as it never reads: 100 bytes of JSON a token and more
  // with ids and logprobs.
  const std::string text =
      R"({"prompt":"x","max_tokens":150000,"stream":true,"logprobs":20,"return_token_ids":true})";
  // The engine runs in small bursts, or it would be done before the first answer is written.
  fixture.script.SetAllowed(0);
  Client client(fixture.port());
  ASSERT_TRUE(client.Send(PostOf(text)));
  EXPECT_TRUE(Eventually([&] {
    fixture.script.Allow(10);
    return fixture.metrics().finished_abort.value() == 1;
  }));
  fixture.script.SetAllowed(1'000'000);
  EXPECT_TRUE(
      Eventually([&] { return fixture.engine().Idle() && fixture.server().InFlight() == 0; }));
}

TEST(Http, SlowWritersTimeOut) {
  FixtureOptions options;
  options.server.limits.header_timeout_ns = 50 * kNsPerMs;
  options.server.limits.body_timeout_ns = 50 * kNsPerMs;
  options.server.limits.idle_timeout_ns = 50 * kNsPerMs;
  ServerFixture fixture(options);
  Client head(fixture.port());
  ASSERT_TRUE(head.Send("GET /health HT"));
  EXPECT_EQ(head.ReadAnswer()->status, 408);
  EXPECT_TRUE(head.AtEnd());
  Client body(fixture.port());
  ASSERT_TRUE(
      body.Send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{"));
  EXPECT_EQ(body.ReadAnswer()->status, 408);
  Client idle(fixture.port());
  EXPECT_EQ(idle.Call("GET", "/health")->status, 200);
  EXPECT_TRUE(idle.AtEnd());
}

TEST(Http, HealthAnswersWhateverTheEngineDoes) {
  FixtureOptions options;
  options.server.ready_stall_ns = 30 * kNsPerMs;
  ServerFixture fixture(options);
  fixture.script.SetTokens(Ids("a"));
  fixture.script.SetAllowed(0);  // the engine hangs in its first step
  Client stuck(fixture.port());
  const std::string text = R"({"prompt":"x","max_tokens":2})";
  ASSERT_TRUE(stuck.Send(PostOf(text)));
  Client client(fixture.port());
  ASSERT_TRUE(Eventually([&] { return client.Call("GET", "/ready")->status == 503; }));
  for (const char* path : {"/health", "/metrics", "/v1/models", "/load", "/version"}) {
    EXPECT_EQ(client.Call("GET", path)->status, 200);
  }
  fixture.script.SetAllowed(1000);
  EXPECT_EQ(stuck.ReadAnswer()->status, 200);
  ASSERT_TRUE(Eventually([&] { return client.Call("GET", "/ready")->status == 200; }));
}

TEST(Http, DrainingFinishesWhatRuns) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("abc"));
  fixture.script.SetAllowed(2);
  const std::string text = R"({"prompt":"x","max_tokens":20,"stream":true})";
  Client running(fixture.port());
  ASSERT_TRUE(running.Send(PostOf(text)));
  ASSERT_TRUE(running.ReadUntil("\"text\":"));
  fixture.server().BeginDrain();
  EXPECT_EQ(fixture.Call("GET", "/ready").status, 503);
  EXPECT_EQ(fixture.Call("GET", "/health").status, 200);
  const Answer refused = fixture.Post("/v1/completions", {{"prompt", "x"}});
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  fixture.script.SetAllowed(1000);
  EXPECT_EQ(running.ReadAnswer()->events().back(), "[DONE]");
  EXPECT_TRUE(Eventually([&] { return fixture.server().InFlight() == 0; }));
}

TEST(Http, AnEngineThatStopsEndsStreamsWithAnError) {
  ServerFixture fixture;
  fixture.script.SetTokens(Ids("a"));
  fixture.script.SetAllowed(2);
  const std::string text = R"({"prompt":"x","max_tokens":100,"stream":true})";
  Client client(fixture.port());
  ASSERT_TRUE(client.Send(PostOf(text)));
  ASSERT_TRUE(client.ReadUntil("\"text\":"));
  std::thread stopper([&] { fixture.engine().Stop(); });
  // The step at hand ends only once the engine knows that it is the last.
  ASSERT_TRUE(Eventually([&] { return !fixture.engine().Accepting(); }));
  fixture.script.SetAllowed(1'000'000);
  const std::optional<Answer> answer = client.ReadAnswer();
  stopper.join();
  ASSERT_TRUE(answer);
  const std::vector<std::string> events = answer->events();
  EXPECT_EQ(Json::parse(events[events.size() - 2]).at("error").at("code"), 503);
  EXPECT_TRUE(client.AtEnd());
}

TEST(Http, AFullQueueAnswers429) {
  FixtureOptions options;
  options.engine.max_num_queued_reqs = 2;
  options.server.http_threads = 1;  // with one worker: requests are handled in the order they came
  ServerFixture fixture(options);
  fixture.script.SetTokens(IdsThenEnd("ok"));
  fixture.script.SetAllowed(0);
  const std::string text = R"({"prompt":"x","max_tokens":4})";
  const std::string request = PostOf(text);
  std::vector<std::unique_ptr<Client>> clients;
  for (int64_t i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(fixture.port()));
    ASSERT_TRUE(clients.back()->Send(request));
    // The first one runs, and its step does not end; the others wait.
    if (i == 0) {
      ASSERT_TRUE(Eventually([&] { return fixture.script.entered() == 1; }));
    }
    ASSERT_TRUE(Eventually([&] { return fixture.server().InFlight() == i + 1; }));
  }
  const Answer refused = fixture.Call("POST", "/v1/completions", text);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_EQ(refused.json().at("error").at("type"), "rate_limit_error");
  fixture.script.SetAllowed(1'000'000);
  for (const auto& client : clients) EXPECT_EQ(client->ReadAnswer()->status, 200);
  EXPECT_EQ(fixture.Call("POST", "/v1/completions", text).status, 200);
}

TEST(Http, ManyIdleConnections) {
  ServerFixture fixture;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 500; ++i) {
    clients.push_back(std::make_unique<Client>(fixture.port()));
    ASSERT_TRUE(clients.back()->connected());
  }
  for (int round = 0; round < 2; ++round) {
    for (const auto& client : clients) {
      const std::optional<Answer> answer = client->Call("GET", "/health");
      ASSERT_TRUE(answer);
      ASSERT_EQ(answer->status, 200);
    }
  }
}

TEST(Http, UnixSocket) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("kvasir-test-" + std::to_string(::getpid()));
  FixtureOptions options;
  options.server.uds = path.string();
  {
    // What a killed server leaves: a socket file that nobody listens on.
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ::close(fd);
  }
  {
    ServerFixture fixture(options);
    ASSERT_TRUE(fixture.status().ok()) << fixture.status().error().message;
    Client client(path.string());
    EXPECT_EQ(client.Call("GET", "/health")->status, 200);
    ServerFixture second(options);
    ASSERT_FALSE(second.status().ok());
    EXPECT_NE(second.status().error().message.find("another server answers"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << "precious";
  ServerFixture third(options);
  EXPECT_FALSE(third.status().ok());
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
}

TEST(Http, AddressesThatCannotBeHad) {
  ServerFixture fixture;
  FixtureOptions options;
  options.server.port = fixture.port();
  ServerFixture second(options);
  ASSERT_FALSE(second.status().ok());
  EXPECT_NE(second.status().error().message.find(std::to_string(fixture.port())),
            std::string::npos);
  EXPECT_FALSE(CheckAddress(options.server).ok());
  options.server.port = 0;
  EXPECT_TRUE(CheckAddress(options.server).ok());
  options.server.host = "203.0.113.7";
  EXPECT_FALSE(CheckAddress(options.server).ok());
  options.server.host = "127.0.0.1";
  options.server.ssl_certfile = "/nonexistent.pem";
  EXPECT_FALSE(CheckAddress(options.server).ok());
  options.server.ssl_keyfile = "/nonexistent.key";
  EXPECT_NE(CheckAddress(options.server).error().message.find("/nonexistent.pem"),
            std::string::npos);
}

TEST(Http, Tls) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("kvasir-tls-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string make =
      "openssl req -x509 -newkey rsa:2048 -nodes -keyout " + (folder / "key.pem").string() +
      " -out " + (folder / "cert.pem").string() + " -days 1 -subj /CN=localhost 2>/dev/null";
  ASSERT_EQ(std::system(make.c_str()), 0);
  FixtureOptions options;
  options.server.ssl_certfile = (folder / "cert.pem").string();
  options.server.ssl_keyfile = (folder / "key.pem").string();
  ServerFixture fixture(options);
  ASSERT_TRUE(fixture.status().ok()) << fixture.status().error().message;
  fixture.script.SetTokens(IdsThenEnd("over TLS"));
  const auto curl = [&](const std::string& arguments) {
    const std::string command = "curl -sk --max-time 10 " + arguments;
    FILE* pipe = ::popen(command.c_str(), "r");
    std::string out;
    char buffer[4096];
    while (const size_t size = std::fread(buffer, 1, sizeof(buffer), pipe))
      out.append(buffer, size);
    return std::pair(::pclose(pipe), out);
  };
  const std::string base = "https://127.0.0.1:" + std::to_string(fixture.port());
  const auto [status, out] =
      curl(base +
           "/v1/completions -H 'Content-Type: application/json' -d "
           "'{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":9}' --next -sk " +
           base + "/version");
  EXPECT_EQ(status, 0);
  EXPECT_NE(out.find("data: [DONE]"), std::string::npos) << out;
  EXPECT_NE(out.find("{\"version\":"), std::string::npos) << out;
  EXPECT_NE(curl("--tls-max 1.1 " + base + "/version").first, 0);
  std::filesystem::remove_all(folder);
}

TEST(Http, PingsInSilentStreams) {
  FixtureOptions options;
  options.server.sse_ping_interval_ns = 10 * kNsPerMs;
  ServerFixture fixture(options);
  fixture.script.SetTokens(IdsThenEnd("ok"));
  fixture.script.SetAllowed(0);
  const std::string text = R"({"prompt":"x","max_tokens":4,"stream":true})";
  Client client(fixture.port());
  ASSERT_TRUE(client.Send(PostOf(text)));
  ASSERT_TRUE(client.ReadUntil(": ping\n\n"));
  fixture.script.SetAllowed(1000);
  EXPECT_EQ(client.ReadAnswer()->events().back(), "[DONE]");
}

}  // namespace
}  // namespace kvasir::server::test
