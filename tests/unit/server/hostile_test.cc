// Requests that are made to be misread: each has one answer, an error in JSON, and nothing that
// comes behind it on the same connection is taken for a request. Others are not disturbed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "unit/server/server_fixture.h"

namespace kvasir::server::test {
namespace {

using std::string_literals::operator""s;  // NOLINT(misc-unused-using-decls): it is used

const std::string kPost =
    "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n";
const std::string kBody = R"({"prompt":"a","max_tokens":5})";
/// What an attacker wants to be read as a request of its own.
const std::string kSmuggled = "GET /version HTTP/1.1\r\nHost: t\r\n\r\n";

struct Shape {
  std::string name;
  std::string bytes;
  int status = 400;
};

std::string Sized(const std::string& text) { return std::to_string(text.size()); }

std::vector<Shape> RefusedShapes() {
  const std::string chunked = kPost + "Transfer-Encoding: chunked\r\n\r\n";
  return {
      // Two answers to the question where the body ends.
      {"CL.TE", kPost + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"TE.CL", kPost + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\n"},
      {"two lengths", kPost + "Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}"},
      {"the same length twice", kPost + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"},
      {"a list of lengths", kPost + "Content-Length: 2, 2\r\n\r\n{}"},
      {"a length with a sign", kPost + "Content-Length: +2\r\n\r\n{}"},
      {"a negative length", kPost + "Content-Length: -2\r\n\r\n{}"},
      {"a hexadecimal length", kPost + "Content-Length: 0x2\r\n\r\n{}"},
      {"a length with a space", kPost + "Content-Length: 1 2\r\n\r\n{}"},
      {"a length with a unit", kPost + "Content-Length: 2b\r\n\r\n{}"},
      {"a length of nothing", kPost + "Content-Length: \r\n\r\n{}"},
      {"a length with a fraction", kPost + "Content-Length: 2.0\r\n\r\n{}"},
      {"a length beyond 64 bits", kPost + "Content-Length: 18446744073709551618\r\n\r\n{}"},
      {"a space before the colon", kPost + "Content-Length : 2\r\n\r\n{}"},
      {"a tab before the colon", kPost + "Content-Length\t: 2\r\n\r\n{}"},
      {"a coding with a space before the colon",
       kPost + "Transfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\n{}"},
      {"a folded header", kPost + "X: a\r\n Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"},
      {"a folded coding", kPost + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"},
      {"a space before the first header", "GET /health HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n"},
      {"a coding twice",
       kPost + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"two codings", kPost + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
      {"chunked and then another", kPost + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"},
      {"chunked in another word", kPost + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"},
      {"chunked behind a control character", kPost + "Transfer-Encoding: \x0b"
                                                     "chunked\r\nContent-Length: 2\r\n\r\n{}"},
      {"chunked in quotes", kPost + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"},
      {"identity", kPost + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}"},
      {"chunked in HTTP/1.0",
       "POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      // Chunks.
      {"a chunk size that is no number", chunked + "zz\r\n{}\r\n0\r\n\r\n"},
      {"a chunk size with a sign", chunked + "+2\r\n{}\r\n0\r\n\r\n"},
      {"a negative chunk size", chunked + "-2\r\n{}\r\n0\r\n\r\n"},
      {"a chunk size with a prefix", chunked + "0x2\r\n{}\r\n0\r\n\r\n"},
      {"no chunk size", chunked + "\r\n{}\r\n0\r\n\r\n"},
      {"a chunk size beyond 64 bits", chunked + "10000000000000002\r\n{}\r\n0\r\n\r\n"},
      {"data longer than its chunk", chunked + "2\r\n{}xx0\r\n\r\n"},
      {"a length among trailers", chunked + "2\r\n{}\r\n0\r\nContent-Length: 5\r\n\r\n"},
      {"a coding among trailers", chunked + "2\r\n{}\r\n0\r\nTransfer-Encoding: gzip\r\n\r\n"},
      {"a chunk that ends in a bare LF", chunked + "2\r\n{}\n0\r\n\r\n"},
      {"a chunk size that ends in a bare LF", chunked + "2\n{}\r\n0\r\n\r\n"},
      // Lines and names.
      {"bare LFs", "GET /health HTTP/1.1\nHost: a\n\n"},
      {"a bare LF among headers", "GET /health HTTP/1.1\r\nHost: a\nX: y\r\n\r\n"},
      {"a bare CR in a header", "GET /health HTTP/1.1\r\nHost: a\r\nX: a\rY: b\r\n\r\n"},
      {"a NUL in a header", "GET /health HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"s},
      {"a NUL in a name", "GET /health HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n"s},
      {"a header without a name", "GET /health HTTP/1.1\r\nHost: a\r\n: y\r\n\r\n"},
      {"a header without a colon", "GET /health HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n"},
      {"a name with a brace", "GET /health HTTP/1.1\r\nHost: a\r\nx{y: z\r\n\r\n"},
      {"no host", "GET /health HTTP/1.1\r\n\r\n"},
      {"two hosts", "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"},
      {"two keys",
       "GET /health HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\r\nAuthorization: b\r\n\r\n"},
      {"two types", kPost + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}"},
      {"a NUL in the target", "GET /he\0alth HTTP/1.1\r\nHost: a\r\n\r\n"s},
      {"an escaped NUL in the target", "GET /health%00 HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"a broken escape in the target", "GET /health%4 HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"no target", "GET  HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"a host as target", "CONNECT elsewhere:443 HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"no version", "GET /health\r\nHost: a\r\n\r\n"},
      {"no HTTP at all", "nonsense\r\n\r\n"},
      {"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n"s},
      {"HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"a version to come", "GET /health HTTP/3.0\r\nHost: a\r\n\r\n", 505},
      {"a version that was not", "GET /health HTTP/1.2\r\nHost: a\r\n\r\n", 505},
  };
}

TEST(Hostile, EveryShapeIsRefusedOnceAndEndsItsConnection) {
  ServerFixture fixture;
  fixture.script.SetTokens(Ids("abcdefgh"));
  fixture.script.SetAllowed(3);
  // Beside all this a stream is half way, and a connection is kept.
  Client stream(fixture.port());
  const std::string text = Json{
      {"prompt", "x"},
      {"max_tokens", Ids("abcdefgh").size()},
      {"stream", true},
      {"ignore_eos", true}}.dump();
  ASSERT_TRUE(stream.Send(kPost + "Content-Length: " + Sized(text) + "\r\n\r\n" + text));
  ASSERT_TRUE(stream.ReadUntil("\"text\":"));
  Client kept(fixture.port());
  for (const Shape& shape : RefusedShapes()) {
    Client client(fixture.port());
    client.Send(shape.bytes + kSmuggled);
    const std::optional<Answer> answer = client.ReadAnswer();
    ASSERT_TRUE(answer) << shape.name;
    EXPECT_EQ(answer->status, shape.status) << shape.name << answer->body;
    EXPECT_EQ(answer->headers.at("content-type"), "application/json") << shape.name;
    EXPECT_EQ(answer->headers.at("connection"), "close") << shape.name;
    const Json error = answer->json().at("error");
    EXPECT_EQ(error.at("code"), shape.status) << shape.name;
    EXPECT_EQ(error.at("type"),
              shape.status == 505 ? "HttpVersionNotSupportedError" : "BadRequestError")
        << shape.name;
    EXPECT_FALSE(error.at("message").get<std::string>().empty());
    EXPECT_TRUE(client.AtEnd()) << shape.name;
    const std::optional<Answer> health = kept.Call("GET", "/health");
    ASSERT_TRUE(health) << shape.name;
    EXPECT_EQ(health->status, 200);
  }
  fixture.script.SetAllowed(1000);
  const std::optional<Answer> answer = stream.ReadAnswer();
  ASSERT_TRUE(answer);
  std::string streamed;
  for (const Json& chunk : answer->chunks()) {
    streamed += chunk.at("choices")[0].at("text").get<std::string>();
  }
  EXPECT_EQ(streamed, "abcdefgh");
  EXPECT_EQ(answer->events().back(), "[DONE]");
}

TEST(Hostile, BareLfIsNamed) {
  ServerFixture fixture;
  Client client(fixture.port());
  client.Send("GET /health HTTP/1.1\nHost: a\n\n");
  EXPECT_NE(client.ReadAnswer()->body.find("CR LF"), std::string::npos);
}

// Nothing comes behind it that would end the wait for a CR.
TEST(Hostile, ABareLfAmongChunksIsRefusedAtOnce) {
  ServerFixture fixture;
  const std::string head = kPost + "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string& body :
       {"2\n{}\n0\n\n"s, "2\r\n{}\r\n0\n\n"s, "2\r\n{}\r\n0\r\nA: b\n\n"s}) {
    SCOPED_TRACE(body);
    Client client(fixture.port());
    ASSERT_TRUE(client.Send(head + body));
    const std::optional<Answer> answer = client.ReadAnswer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 400);
    EXPECT_NE(answer->body.find("bare LF"), std::string::npos) << answer->body;
    EXPECT_TRUE(client.AtEnd());
  }
}

TEST(Hostile, ALargeTrailerSaysSo) {
  ServerFixture fixture;
  const std::string head = kPost + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n";
  for (const size_t size : {65'534U, 65'536U, 70'000U, 131'000U, 200'000U}) {
    SCOPED_TRACE(size);
    Client client(fixture.port());
    ASSERT_TRUE(client.Send(head + "A: " + std::string(size, 'b') + "\r\n\r\n"));
    const std::optional<Answer> answer = client.ReadAnswer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 431);
    EXPECT_NE(answer->body.find("trailer is too large"), std::string::npos) << answer->body;
  }
}

TEST(Hostile, WhatIsNoUtf8IsQuotedAsUtf8) {
  ServerFixture fixture;
  Client client(fixture.port());
  const std::optional<Answer> answer = client.Call("GET", "/v1/models/%ff");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->json().at("error").at("message"), "The model `\xEF\xBF\xBD` does not exist.");
}

TEST(Hostile, UnusualButGoodShapesAreReadOneWay) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("ok"));
  const std::string chunked = kPost + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string size = "1d";  // of kBody
  ASSERT_EQ(kBody.size(), 0x1dU);
  const std::vector<std::pair<std::string, std::string>> shapes = {
      {"leading zeros", kPost + "Content-Length: 00029\r\n\r\n" + kBody},
      {"no space after the colon", kPost + "Content-Length:29\r\n\r\n" + kBody},
      {"blanks around a length", kPost + "Content-Length: \t 29 \t\r\n\r\n" + kBody},
      {"names in any case", kPost + "cOnTeNt-LeNgTh: 29\r\n\r\n" + kBody},
      {"the coding in any case",
       kPost + "TRANSFER-encoding: CHUNKED\r\n\r\n" + size + "\r\n" + kBody + "\r\n0\r\n\r\n"},
      {"chunk extensions", chunked + size + ";a=b;c=\"d;e\"\r\n" + kBody + "\r\n0;x\r\n\r\n"},
      {"a chunk size with zeros and capitals", chunked + "0001D\r\n" + kBody + "\r\n000\r\n\r\n"},
      {"trailers", chunked + size + "\r\n" + kBody + "\r\n0\r\nX-Digest: 5\r\nHost: b\r\n\r\n"},
      {"an unknown header of the same words",
       kPost + "X-Content-Length: 3\r\nContent-Length: 29\r\nTransfer_Encoding: chunked\r\n\r\n" +
           kBody},
  };
  for (const auto& [name, bytes] : shapes) {
    Client client(fixture.port());
    ASSERT_TRUE(client.Send(bytes + kSmuggled));
    const std::optional<Answer> answer = client.ReadAnswer();
    ASSERT_TRUE(answer) << name;
    EXPECT_EQ(answer->status, 200) << name << answer->body;
    EXPECT_EQ(answer->json().at("choices")[0].at("text"), "ok") << name;
    // Here it is a request of its own, and exactly one.
    const std::optional<Answer> next = client.ReadAnswer();
    ASSERT_TRUE(next) << name;
    EXPECT_TRUE(next->json().contains("version")) << name;
    client.EndSending();
    EXPECT_TRUE(client.AtEnd()) << name;
  }
}

TEST(Hostile, TheBodyOfARefusedRequestIsNoRequest) {
  ServerFixture fixture;
  const std::string inner = kSmuggled + kSmuggled;
  // Small ones are read to their end; the connection stays good.
  for (const char* line :
       {"POST /nope", "DELETE /v1/models", "GET /v1/models", "OPTIONS /v1/models"}) {
    Client client(fixture.port());
    ASSERT_TRUE(client.Send(std::string(line) +
                            " HTTP/1.1\r\nHost: t\r\nContent-Length: " + Sized(inner) + "\r\n\r\n" +
                            inner + "GET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n"));
    ASSERT_TRUE(client.ReadAnswer()) << line;
    const std::optional<Answer> next = client.ReadAnswer();
    ASSERT_TRUE(next) << line;
    EXPECT_TRUE(next->json().contains("data")) << line << next->body;
    client.EndSending();
    EXPECT_TRUE(client.AtEnd()) << line;
  }
  // Those refused by their head, before a body that may never come, end the connection.
  for (const std::string& framing :
       {std::string("Transfer-Encoding: chunked"), std::string("Content-Length: 1000000"),
        "Content-Length: " + Sized(inner) + "\r\nExpect: 100-continue"}) {
    Client client(fixture.port());
    client.Send(fmt::format("POST /nope HTTP/1.1\r\nHost: t\r\n{}\r\n\r\n{}", framing, inner));
    const std::optional<Answer> answer = client.ReadAnswer();
    ASSERT_TRUE(answer) << framing;
    EXPECT_EQ(answer->status, 404) << framing;
    EXPECT_EQ(answer->headers.at("connection"), "close") << framing;
    EXPECT_TRUE(client.AtEnd()) << framing;
  }
}

TEST(Hostile, HeaderFloodsCostNothingAndSayTheLimit) {
  ServerFixture fixture;
  std::string many = "GET /health HTTP/1.1\r\nHost: t\r\n";
  for (int i = 0; i < 100'000; ++i) many += "a: b\r\n";
  for (const std::string& flood :
       {many, "GET /" + std::string(1'000'000, 'a') + " HTTP/1.1\r\nHost: t\r\n\r\n",
        std::string(1'000'000, 'A') + " / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n" + std::string(1'000'000, 'a') + ": b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: " + std::string(1'000'000, 'a')}) {
    Client client(fixture.port());
    client.Send(flood);
    const std::optional<Answer> answer = client.ReadAnswer();
    ASSERT_TRUE(answer) << flood.substr(0, 40);
    EXPECT_EQ(answer->status, 431) << flood.substr(0, 40);
    EXPECT_NE(answer->body.find("65536 bytes"), std::string::npos) << answer->body;
    EXPECT_LT(answer->body.size(), 300U);
  }
}

TEST(Hostile, BodiesOfFiftyMegabytes) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("ok"));
  const std::string open = R"({"max_tokens":1,"prompt":)";
  const std::string close = "}";
  const auto refused = [&](const std::string& body, const std::string& message) {
    const Answer answer = fixture.Call("POST", "/v1/completions", body);
    EXPECT_EQ(answer.status, 400) << answer.body.substr(0, 300);
    EXPECT_NE(answer.body.find(message), std::string::npos) << answer.body.substr(0, 300);
    EXPECT_LT(answer.body.size(), 500U);
  };
  const size_t size = 50'000'000;
  refused(open + "\"" + std::string(size, 'a') + "\"" + close, "maximum context length");
  refused(std::string(size, 'x'), "JSON decode error");
  refused(std::string(size, '['), "nested deeper than 100 levels");
  std::string ids = open + "[7";
  while (ids.size() < size) ids += ",7";
  refused(ids + "]" + close, "more than 4000000 values");
  EXPECT_EQ(fixture.Post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 5}}).status, 200);
}

TEST(Hostile, TextsThatNoContextHoldsAreNotTokenized) {
  ServerFixture fixture;  // a context of 512
  fixture.script.SetTokens(IdsThenEnd("ok"));
  const std::string most(size_t{1} << 20, ' ');
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    const bool chat = std::string_view(path) == "/v1/chat/completions";
    const auto body = [&](const std::string& text) {
      return chat ? ChatBody(text) : Json{{"prompt", text}};
    };
    const Answer answer = fixture.Post(path, body(most + " "));
    EXPECT_EQ(answer.status, 400) << path;
    EXPECT_EQ(answer.json().at("error").at("code"), "context_length_exceeded");
    EXPECT_NE(answer.body.find("at most 1048576 bytes are read"), std::string::npos) << answer.body;
    Json shortened = body(most + " ");
    shortened["truncate_prompt_tokens"] = 10;
    shortened["max_tokens"] = 5;
    EXPECT_EQ(fixture.Post(path, shortened).status, 200) << path;
  }
  EXPECT_EQ(fixture.Post("/tokenize", {{"prompt", most + " "}}).status, 200);
}

// The only ordinary worker stays free for others while large bodies are being read.
TEST(Hostile, LargeBodiesKeepNobodyWaiting) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("ok"));
  const std::string body = Json{{"prompt", std::string(8'000'000, 'a')}}.dump();
  constexpr int kLarge = 4;
  std::atomic<int> sent{0};
  std::atomic<int> answered{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kLarge; ++i) {
    threads.emplace_back([&] {
      Client client(fixture.port());
      EXPECT_TRUE(
          client.Send("POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json"
                      "\r\nContent-Length: " +
                      Sized(body) + "\r\n\r\n" + body));
      ++sent;
      EXPECT_TRUE(client.ReadUntil("\"tokens\":"));
      ++answered;
    });
  }
  EXPECT_TRUE(Eventually([&] { return sent == kLarge; }));
  EXPECT_EQ(fixture.Post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 5}}).status, 200);
  EXPECT_LT(answered, kLarge);
  for (std::thread& thread : threads) thread.join();
}

TEST(Hostile, TextsThatAreNoGoodJsonOnEveryRoute) {
  ServerFixture fixture;
  std::string deep = "{\"x\":" + std::string(10'000, '[') + std::string(10'000, ']') + "}";
  std::string objects;
  for (int i = 0; i < 10'000; ++i) objects += "{\"x\":";
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"{\"prompt\":\"\xff\"}", "invalid UTF-8"},
      {"{\"prompt\":\"\xc0\x80\"}", "invalid UTF-8"},          // an overlong NUL
      {"{\"prompt\":\"\xed\xa0\x80\"}", "invalid UTF-8"},      // a surrogate in UTF-8
      {"{\"prompt\":\"\xf4\x90\x80\x80\"}", "invalid UTF-8"},  // beyond U+10FFFF
      {"{\"prompt\":\"\xe2\x82\"}", "invalid UTF-8"},          // cut off
      {"{\"\xff\":1}", "invalid UTF-8"},
      {"{\"prompt\":\"\\ud800\"}", "lone surrogate"},
      {"{\"prompt\":\"\\ud800x\"}", "lone surrogate"},
      {"{\"prompt\":\"\\ud800\\u0041\"}", "lone surrogate"},
      {"{\"prompt\":\"\\udc00\"}", "lone surrogate"},
      {"{\"prompt\":\"\\udc00\\ud800\"}", "lone surrogate"},
      {"{\"\\ud800\":1}", "lone surrogate"},
      {std::string("{\"prompt\":\"a\0b\"}", 16), "control character"},
      {std::string("\0{}", 3), "JSON decode error"},
      {std::string("{}\0", 3), "JSON decode error: a NUL at byte 3"},
      {"{\"n\":1e999}", "beyond the range of a double"},
      {"{\"n\":-1e999}", "beyond the range of a double"},
      {"{\"n\":" + std::string(1'000, '9') + "}", "beyond the range of a double"},
      {"{\"x\":[1e400]}", "beyond the range of a double"},
      {"{\"n\":NaN}", "JSON decode error"},
      {"{\"n\":Infinity}", "JSON decode error"},
      {"{\"n\":01}", "JSON decode error"},
      {"{\"n\":1,}", "JSON decode error"},
      {"{'n':1}", "JSON decode error"},
      {"{\"n\":1}{}", "JSON decode error"},
      {"// comment\n{}", "JSON decode error"},
      {deep, "nested deeper than 100 levels"},
      {objects, "nested deeper than 100 levels"},
      {"{\"n\":1,\"n\":1}", "comes twice"},
      {"{\"x\":{\"a\":1,\"\\u0061\":2}}", "comes twice"},
      {"\xEF\xBB\xBF{}", "byte order mark"},
  };
  Client client(fixture.port());
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
    for (const auto& [text, message] : texts) {
      const std::optional<Answer> answer = client.Call("POST", path, text);
      ASSERT_TRUE(answer) << path << text.substr(0, 40);
      EXPECT_EQ(answer->status, 400) << path << text.substr(0, 40);
      const Json error = answer->json().at("error");
      EXPECT_NE(error.at("message").get<std::string>().find(message), std::string::npos)
          << text.substr(0, 40) << error;
      EXPECT_EQ(error.at("type"), "Bad Request");
      EXPECT_LT(answer->body.size(), 300U);
    }
  }
  EXPECT_EQ(client.Call("GET", "/health")->status, 200);  // the same connection all along
}

TEST(Hostile, CodedBodiesAreA415ThatNamesTheCoding) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("ok"));
  for (const char* coding : {"gzip", "br", "deflate", "zstd", "identity, gzip", "nonsense"}) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize"}) {
      const Answer answer =
          fixture.Call("POST", path, kBody, {std::string("Content-Encoding: ") + coding});
      EXPECT_EQ(answer.status, 415) << coding;
      EXPECT_EQ(answer.headers.at("accept-encoding"), "identity");
      EXPECT_EQ(answer.json().at("error").at("type"), "UnsupportedMediaTypeError");
      EXPECT_NE(answer.body.find(std::string("'") + coding + "'"), std::string::npos);
    }
  }
  EXPECT_EQ(fixture.Call("POST", "/v1/completions", kBody, {"Content-Encoding: identity"}).status,
            200);
}

TEST(Hostile, AFullQueueIs429WherePingsAreOn) {
  FixtureOptions options;
  options.engine.max_num_seqs = 1;
  options.engine.max_num_queued_reqs = 1;
  options.server.sse_ping_interval_ns = 10 * kNsPerMs;
  ServerFixture fixture(options);
  fixture.script.SetTokens(IdsThenEnd("ok"));
  fixture.script.SetAllowed(0);
  const std::string text = R"({"prompt":"x","max_tokens":4,"stream":true})";
  const std::string request = kPost + "Content-Length: " + Sized(text) + "\r\n\r\n" + text;
  Client runs(fixture.port());
  ASSERT_TRUE(runs.Send(request));
  ASSERT_TRUE(Eventually([&] { return fixture.script.entered() == 1; }));
  Client waits(fixture.port());
  ASSERT_TRUE(waits.Send(request));
  ASSERT_TRUE(waits.ReadUntil(": ping"));
  EXPECT_EQ(fixture.Call("POST", "/v1/completions", text).status, 429);
  EXPECT_EQ(fixture.Call("POST", "/v1/completions", R"({"prompt":"x","stream":true,"n":0})").status,
            400);
  fixture.script.SetAllowed(1000);
  EXPECT_EQ(runs.ReadAnswer()->events().back(), "[DONE]");
  EXPECT_EQ(waits.ReadAnswer()->events().back(), "[DONE]");
}

}  // namespace
}  // namespace kvasir::server::test
