// Memory that is refused to one request ends that request alone: its client gets a 500 or is cut,
// the server and everybody else go on.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>

#include "unit/server/server_fixture.h"

namespace {

/// Allocations of so many bytes and more are refused, on all threads.
std::atomic<std::size_t> refused_from{std::numeric_limits<std::size_t>::max()};

}  // namespace

// Not inlined: g++ would see malloc and free where it expects new and delete, and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (size >= refused_from.load(std::memory_order_relaxed)) throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace kvasir::server::test {
namespace {

constexpr size_t kMiB = 1 << 20;

class Refuse {
 public:
  explicit Refuse(size_t from) {
    SetLogLevel(LogLevel::kOff);
    refused_from = from;
  }
  ~Refuse() {
    refused_from = std::numeric_limits<size_t>::max();
    SetLogLevel(LogLevel::kInfo);
  }
  Refuse(const Refuse&) = delete;
  Refuse& operator=(const Refuse&) = delete;
};

/// A body of `count` token ids.
std::string BodyOfIds(size_t count) {
  std::string body = R"({"max_tokens": 1, "prompt": [5)";
  for (size_t i = 1; i < count; ++i) body += ",5";
  return body + "]}";
}

TEST(RefusedMemory, WhileABodyIsReadCutsItsConnectionAlone) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("fine"));
  const std::string large(8 * kMiB, ' ');
  Client beside(fixture.port());
  ASSERT_TRUE(beside.Call("GET", "/health").has_value());
  {
    const Refuse refuse(2 * kMiB);
    Client client(fixture.port());
    EXPECT_FALSE(client.Call("POST", "/v1/completions", large).has_value());
  }
  EXPECT_EQ(beside.Call("GET", "/health")->status, 200);
  EXPECT_EQ(fixture.Post("/v1/completions", Json{{"prompt", "Hello"}}).status, 200);
  EXPECT_TRUE(Eventually([&] { return fixture.server().InFlight() == 0; }));
}

TEST(RefusedMemory, WhileARequestIsPreparedIsA500AndItsConnectionGoesOn) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("fine"));
  const std::string body = BodyOfIds(400'000);  // 0.8 MB, and 6.4 MB as JSON values
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
    SCOPED_TRACE(path);
    Client client(fixture.port());
    {
      const Refuse refuse(2 * kMiB);
      const std::optional<Answer> answer = client.Call("POST", path, body);
      ASSERT_TRUE(answer.has_value());
      EXPECT_EQ(answer->status, 500);
      EXPECT_NE(answer->json()["error"]["message"].get<std::string>().find("The server failed"),
                std::string::npos);
    }
    const std::optional<Answer> answer =
        client.Call("POST", "/v1/completions", Json{{"prompt", "Hello"}}.dump());
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 200);
  }
  EXPECT_TRUE(Eventually([&] { return fixture.server().InFlight() == 0; }));
}

}  // namespace
}  // namespace kvasir::server::test
