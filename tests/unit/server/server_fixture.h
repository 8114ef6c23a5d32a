// A server over loopback, with a real engine, a real tokenizer, and a runner that follows a script.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/log.h"
#include "engine/engine.h"
#include "server/server.h"
#include "support/data.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "unit/server/http_client.h"
#include "unit/server/script_runner.h"

namespace kvasir::server::test {

/// Byte-level BPE of 384 tokens; <|eos|> is 2, <|im_end|> 4.
inline const text::Tokenizer& TestTokenizer() {
  static const std::unique_ptr<text::Tokenizer> tokenizer = [] {
    const auto folder = kvasir::test::DataPath("models/llama");
    return text::Tokenizer::FromHuggingFace(
               kvasir::test::ReadFile(folder / "tokenizer.json"),
               nlohmann::json::parse(kvasir::test::ReadFile(folder / "tokenizer_config.json")))
        .value();
  }();
  return *tokenizer;
}

inline constexpr TokenId kEos = 2;

inline std::vector<TokenId> Ids(std::string_view text) {
  return TestTokenizer().Encode(text, text::EncodeOptions{.add_special_tokens = false});
}

/// The tokens of `text`, then the end.
inline std::vector<TokenId> IdsThenEnd(std::string_view text) {
  std::vector<TokenId> ids = Ids(text);
  ids.push_back(kEos);
  return ids;
}

struct FixtureOptions {
  ServerConfig server;
  engine::EngineConfig engine;
  bool chat_template = true;
  std::string chat_source =
      "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + "
      "m['content'] + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
      "'<|im_start|>assistant\\n' }}{% endif %}";
  GenerationDefaults defaults;

  FixtureOptions() {
    server.port = 0;
    server.http_threads = 2;
    server.prepare_threads = 1;
    server.served_model_names = {"tiny", "alias/two"};
    server.access_log = false;
    engine.vocab_size = TestTokenizer().vocab_size();
    engine.max_model_len = 512;
    engine.max_num_seqs = 16;
    engine.max_num_batched_tokens = 64;
    engine.cache.block_tokens = 16;
    engine.cache.block_bytes = 64;
    engine.cache.blocks_count = 512;
    engine.cache.groups = {CacheGroupSpec{}};
  }
};

class ServerFixture {
 public:
  explicit ServerFixture(FixtureOptions options = {}) {
    engine_ = std::make_unique<engine::Engine>(
        options.engine, std::make_unique<ScriptRunner>(script, options.engine.vocab_size));
    ModelContext model;
    model.tokenizer = &TestTokenizer();
    if (options.chat_template) {
      text::ChatTemplateConfig config;
      config.source = options.chat_source;
      config.bos_token = "<|bos|>";
      config.eos_token = "<|eos|>";
      chat_template_ = text::ChatTemplate::Create(config).value();
      model.chat_template = chat_template_.get();
    }
    model.defaults = options.defaults;
    model.root = "models/tiny";
    server_ = std::make_unique<Server>(options.server, model, *engine_);
    status_ = server_->Start();
  }
  ~ServerFixture() {
    script.SetAllowed(int64_t{1} << 60);
    server_->Stop();
    engine_->Stop();
  }

  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] uint16_t port() const { return server_->port(); }
  Server& server() { return *server_; }
  engine::Engine& engine() { return *engine_; }
  const engine::EngineMetrics& metrics() { return engine_->metrics(); }

  /// One call on a connection of its own.
  Answer Call(const std::string& method, const std::string& target, const std::string& body = {},
              const std::vector<std::string>& headers = {}) {
    Client client(port());
    std::optional<Answer> answer = client.Call(method, target, body, headers);
    EXPECT_TRUE(answer.has_value()) << method << " " << target;
    return answer.value_or(Answer{});
  }
  Answer Post(const std::string& target, const Json& body,
              const std::vector<std::string>& headers = {}) {
    return Call("POST", target, body.dump(), headers);
  }

  Script script;

 private:
  std::unique_ptr<text::ChatTemplate> chat_template_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Server> server_;
  Status status_;
};

/// Waits for `condition`, as long as patience lasts.
inline bool Eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + Patience();
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

inline Json ChatBody(const std::string& text) {
  return Json{{"messages", Json::array({Json{{"role", "user"}, {"content", text}}})}};
}

}  // namespace kvasir::server::test
