// The HTTP face: raw bytes on a connection, bodies of the routes, and JSON alone.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/target.h"
#include "server/http_message.h"
#include "server/json_text.h"
#include "text/unicode_utf8.h"
#include "unit/server/server_fixture.h"

namespace kvasir::fuzz {
namespace {

using server::Json;

// Not TCP: closed connections would use up the machine's ports.
const std::string& SocketPath() {
  static const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("kvasir-fuzz-{}.sock", getpid()))
          .string();
  return path;
}

// Starts with the first input, ends with the process.
void StartServer() {
  static const server::test::ServerFixture& fixture = *[] {
    server::test::FixtureOptions options;
    options.engine.max_model_len = 64;
    options.engine.cache.blocks_count = 256;
    options.server.uds = SocketPath();
    options.server.max_n = 4;
    options.server.max_prompts = 4;
    options.server.http_threads = 1;
    options.server.trust_request_chat_template = true;
    std::atexit([] { std::filesystem::remove(SocketPath()); });
    return new server::test::ServerFixture(options);
  }();
  KVASIR_CHECK(fixture.status().ok(), "{}", fixture.status().error().message);
}

// Bytes as they come from anyone, cut into at most four writes; then the end of sending.
KVASIR_FUZZ_TARGET(http) {
  static_cast<void>(server::ParseTarget(input.substr(0, input.find('\n'))));
  StartServer();
  server::test::Client client(SocketPath());
  KVASIR_CHECK(client.connected());
  Numbers numbers(input);
  for (int cut = numbers.Byte() % 4; cut > 0; --cut) {
    const size_t bytes = numbers.Short();
    if (!client.Send(numbers.Text(bytes % 512))) break;
  }
  client.Send(numbers.rest());
  client.EndSending();
  std::string received;
  KVASIR_CHECK(client.ReadToEnd(received), "no end within ten seconds, after: {}", received);
  KVASIR_CHECK(received.empty() || received.starts_with("HTTP/1."), "{}", received);
}

// The first byte chooses the route, the rest is the body.
KVASIR_FUZZ_TARGET(request_body) {
  static const std::vector<std::string> kRoutes = {"/v1/chat/completions", "/v1/completions",
                                                   "/tokenize", "/detokenize"};
  static std::unique_ptr<server::test::Client> client;
  Numbers numbers(input);
  const std::string& route = kRoutes[numbers.Byte() % kRoutes.size()];
  if (numbers.empty()) return;
  StartServer();
  if (client == nullptr) client = std::make_unique<server::test::Client>(SocketPath());
  auto answer = client->Call("POST", route, std::string(numbers.rest()));
  if (!answer) {  // the connection before it was closed
    client = std::make_unique<server::test::Client>(SocketPath());
    answer = client->Call("POST", route, std::string(numbers.rest()));
  }
  KVASIR_CHECK(answer.has_value(), "no answer");
  const int status = answer->status;
  KVASIR_CHECK(status == 200 || status == 400 || status == 404 || status == 422 || status == 429,
               "{} {}", status, answer->body);
  ExpectUtf8(answer->body);
  if (answer->headers["content-type"].starts_with("text/event-stream")) {
    const auto events = answer->events();
    KVASIR_CHECK(!events.empty());
    for (const Json& chunk : answer->chunks()) KVASIR_CHECK(chunk.is_object());
  } else {
    const Json body = Json::parse(answer->body);
    KVASIR_CHECK(body.contains("error") == (status != 200), "{}", answer->body);
  }
  if (answer->headers["connection"] == "close") client.reset();
}

KVASIR_FUZZ_TARGET(json) {
  std::string quoted;
  std::string lossy;
  text::AppendLossy(input, lossy);
  server::AppendJsonString(lossy, quoted);
  KVASIR_CHECK(Json::parse(quoted) == lossy);
  Json value;
  if (const auto error = server::ParseJson(input, value)) {
    ExpectUtf8(error->message);
    return;
  }
  const std::string written = value.dump();
  Json again;
  KVASIR_CHECK(!server::ParseJson(written, again) && again == value, "{}", written);
}

}  // namespace
}  // namespace kvasir::fuzz
