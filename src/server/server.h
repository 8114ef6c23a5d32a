// The HTTP face of an engine: OpenAI-compatible endpoints, health, metrics. docs/api.md is the page
// for users.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "contract/types.h"
#include "engine/engine.h"
#include "server/http.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace kvasir::server {

/// Sampling values for requests that name none (generation_config.json,
/// --override-generation-config).
struct GenerationDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
};

/// From generation_config.json (null: none, as with --generation-config vllm) and overrides (null
/// or an object), which win. Errors name the key whose value has a wrong type or is out of range.
[[nodiscard]] Result<GenerationDefaults> ReadGenerationDefaults(
    const nlohmann::json& generation_config, const nlohmann::json& overrides);

/// The first name in `kwargs` (an object) that no flag and no request may set for a template,
/// because the server or the template's own environment does; nullopt where there is none.
[[nodiscard]] std::optional<std::string> ReservedTemplateKwarg(
    const nlohmann::ordered_json& kwargs);

/// What the server knows about the model. The pointers must outlive the server.
struct ModelContext {
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat_template = nullptr;  ///< null: chat requests get a 400
  std::string chat_template_error;                    ///< why the model's own cannot be used
  GenerationDefaults defaults;
  /// Ids that end a generation unless the request ignores them; the tokenizer's eos_id (else the
  /// first) ends it without a stop_reason. Empty: the tokenizer's.
  std::vector<TokenId> eos_ids;
  int64_t vocab_size = 0;  ///< of the logits
  std::string root;        ///< what /v1/models calls "root"
};

struct ServerConfig {
  // Where.
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  ///< 0: any free one
  std::string uds;       ///< a unix socket instead of TCP
  std::string ssl_certfile;
  std::string ssl_keyfile;
  int http_threads = 2;     ///< event loops
  int prepare_threads = 2;  ///< JSON, templates and tokenizing of requests
  HttpLimits limits;

  // Who.
  std::vector<std::string> api_keys;  ///< empty: everyone
  std::vector<std::string> allowed_origins = {"*"};
  bool allow_credentials = false;

  // What.
  std::vector<std::string> served_model_names;  ///< at least one; the first is shown
  std::string response_role = "assistant";
  bool trust_request_chat_template = false;
  bool plain_messages = false;  ///< special tokens written in messages stay text
  nlohmann::ordered_json default_chat_template_kwargs = nlohmann::ordered_json::object();
  bool clamp_max_tokens = false;  ///< shorten max_tokens to what fits, instead of a 400
  int64_t max_logprobs = 20;
  int64_t max_stop_strings = 16;
  int64_t max_n = 128;
  int64_t max_prompts = 1024;  ///< of one completions request
  bool enable_prompt_tokens_details = true;
  bool force_include_usage = false;
  bool return_tokens_as_token_ids = false;
  TimeNs sse_ping_interval_ns = 0;  ///< 0: no comments in streams

  // Operation.
  bool access_log = true;
  std::vector<std::string> access_log_disabled_paths;
  TimeNs ready_stall_ns = 10 * kNsPerSecond;    ///< engine without a step for so long: not ready
  TimeNs health_stall_ns = 120 * kNsPerSecond;  ///< … not healthy
};

/// Whether the address is free and the TLS files are good, before the model is loaded: takes the
/// address and gives it back. Errors as Server::Start.
[[nodiscard]] Status CheckAddress(const ServerConfig& config);

class Server {
 public:
  Server(ServerConfig config, ModelContext model, engine::Engine& engine);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Takes the address and begins to answer. Errors: address taken, no such host, broken TLS files.
  Status Start();
  /// The TCP port in use; 0 for a unix socket.
  [[nodiscard]] uint16_t port() const;
  /// New work gets a 503, /ready turns 503; what runs goes on. Any thread.
  void BeginDrain();
  /// Requests that are being prepared, generated or sent.
  [[nodiscard]] int64_t InFlight() const;
  /// Cuts every connection, cancels what still runs, joins the threads. Before the engine's end.
  void Stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvasir::server
