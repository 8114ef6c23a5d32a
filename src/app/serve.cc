// kvasir serve MODEL: the HTTP server.
#include <arpa/inet.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/exit_codes.h"
#include "app/loaded_engine.h"
#include "app/read_file.h"
#include "app/signals.h"
#include "app/units.h"
#include "base/log.h"
#include "files/json.h"
#include "files/printable.h"
#include "plan/simulate/trace_recorder.h"
#include "server/server.h"
#include "text/unicode_utf8.h"

namespace kvasir::app {
namespace {

struct ServeFlags {
  EngineFlags engine;
  server::ServerConfig server;
  std::string generation_config = "auto";
  std::string override_generation_config;
  std::string default_chat_template_kwargs;
  std::string log_level = "info";
  std::string record_trace;
  double shutdown_timeout_s = 30;
  double sse_ping_interval_s = 0;
  int64_t max_body_mib = 64;
  bool no_access_log = false;
  bool no_prompt_tokens_details = false;
  // Flags of vLLM that have nothing to switch here; values that ask for something are refused.
  std::vector<std::string> without_effect;
};

LogLevel ParseLogLevel(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

bool IsLoopback(const server::ServerConfig& config) {
  if (!config.uds.empty() || config.host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, config.host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, config.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string Address(const server::ServerConfig& config, uint16_t port) {
  const char* scheme = config.ssl_certfile.empty() ? "http" : "https";
  if (!config.uds.empty()) return fmt::format("{}+unix:{}", scheme, config.uds);
  const bool any = config.host == "0.0.0.0" || config.host == "::";
  const bool v6 = config.host.find(':') != std::string::npos && !any;
  return fmt::format("{}://{}{}{}:{}", scheme, v6 ? "[" : "", any ? "127.0.0.1" : config.host,
                     v6 ? "]" : "", port);
}

void Announce(const server::ServerConfig& config, uint16_t port, bool chat) {
  const std::string address = Address(config, port);
  const std::string name = config.served_model_names.front();
  const std::string key = config.api_keys.empty() ? "" : " -H 'Authorization: Bearer YOUR_API_KEY'";
  const std::string target =
      config.uds.empty() ? address : fmt::format("--unix-socket {} http://localhost", config.uds);
  std::printf("Kvasir serves %s at %s/v1\n", name.c_str(), address.c_str());
  if (chat) {
    std::printf(
        "Try it: curl %s/v1/chat/completions%s -H 'Content-Type: application/json' "
        "-d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'\n",
        target.c_str(), key.c_str());
  } else {
    std::printf(
        "Try it: curl %s/v1/completions%s -H 'Content-Type: application/json' "
        "-d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 32}'\n",
        target.c_str(), key.c_str());
  }
  // Nobody has to read this: a full disk or a closed pipe is no reason not to serve.
  if (std::fflush(stdout) != 0) {
    LogWarning("the address cannot be written to standard output: {}", std::strerror(errno));
    std::clearerr(stdout);
  }
}

Result<nlohmann::json> ParseFlagObject(const std::string& flag, const std::string& text) {
  if (text.empty()) return nlohmann::json();
  KVASIR_ASSIGN_OR_RETURN(nlohmann::json value, files::ParseJson(text, flag, 32));
  if (!value.is_object()) {
    return MakeError(ErrorCode::kInvalidArgument, "{}: expected a JSON object, got {}", flag, text);
  }
  return value;
}

bool HasControl(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

// A key has to fit into one line of a request's head, where blanks at its ends are lost.
Status CheckKey(const std::string& source, const std::string& key) {
  if (HasControl(key)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "{}: expected a key of one line without control characters, got one with them",
                     source);
  }
  if (key.front() == ' ' || key.back() == ' ') {
    return MakeError(ErrorCode::kInvalidArgument,
                     "{}: expected a key without blanks at its ends, got one with them", source);
  }
  return Status::Ok();
}

// What can be said of the flags before minutes are spent on loading a model.
Status CompleteConfig(ServeFlags& flags) {
  server::ServerConfig& config = flags.server;
  if (config.ssl_certfile.empty() != config.ssl_keyfile.empty()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--ssl-certfile and --ssl-keyfile go together, got only one");
  }
  for (const std::string& key : config.api_keys) {
    KVASIR_RETURN_IF_ERROR(CheckKey("--api-key", key));
    if (key.rfind("--", 0) == 0) {
      return MakeError(ErrorCode::kInvalidArgument, "--api-key: expected a key, got the flag {}",
                       key);
    }
  }
  for (const char* name : {"KVASIR_API_KEY", "VLLM_API_KEY"}) {
    const char* key = std::getenv(name);
    if (key == nullptr) continue;
    if (*key == '\0') {
      return MakeError(ErrorCode::kInvalidArgument,
                       "${}: expected a key, got an empty one; unset it to serve without keys",
                       name);
    }
    KVASIR_RETURN_IF_ERROR(CheckKey(fmt::format("${}", name), key));
    config.api_keys.emplace_back(key);
    break;
  }
  const auto check_text = [](const char* flag, const std::string& value) -> Status {
    if (!HasControl(value) && text::IsValidUtf8(value)) return Status::Ok();
    return MakeError(ErrorCode::kInvalidArgument,
                     "{}: expected UTF-8 without control characters, got '{}'", flag,
                     files::Printable(value, 60));
  };
  for (const std::string& name : config.served_model_names) {
    KVASIR_RETURN_IF_ERROR(check_text("--served-model-name", name));
  }
  KVASIR_RETURN_IF_ERROR(check_text("--response-role", config.response_role));
  config.limits.body_bytes_max = static_cast<uint64_t>(flags.max_body_mib) << 20;
  config.access_log = !flags.no_access_log;
  config.enable_prompt_tokens_details = !flags.no_prompt_tokens_details;
  constexpr double kPingLeastS = 0.01;
  if (flags.sse_ping_interval_s > 0 && flags.sse_ping_interval_s < kPingLeastS) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--sse-ping-interval: expected 0 or at least {} s, got {}", kPingLeastS,
                     flags.sse_ping_interval_s);
  }
  config.sse_ping_interval_ns =
      static_cast<TimeNs>(flags.sse_ping_interval_s * static_cast<double>(kNsPerSecond));
  KVASIR_ASSIGN_OR_RETURN(
      const nlohmann::json kwargs,
      ParseFlagObject("--default-chat-template-kwargs", flags.default_chat_template_kwargs));
  if (kwargs.is_object()) config.default_chat_template_kwargs = kwargs;
  if (const auto name = server::ReservedTemplateKwarg(config.default_chat_template_kwargs)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--default-chat-template-kwargs cannot set '{}', which the server sets itself",
                     *name);
  }
  return Status::Ok();
}

// The end of requests that were cut off still has to reach their clients.
constexpr TimeNs kFarewellNs = kNsPerSecond;

void WaitUntilAnswered(const server::Server& server, TimeNs until) {
  const SteadyClock clock;
  while (server.InFlight() > 0 && clock.Now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Waits until everything that was accepted has been sent; what is not done in time ends with an
// error that its client sees.
void Drain(server::Server& server, engine::Engine& engine, double timeout_s) {
  LogInfo("draining: {} requests in flight, {} s at most", server.InFlight(), timeout_s);
  server.BeginDrain();
  const SteadyClock clock;
  WaitUntilAnswered(
      server, clock.Now() + static_cast<TimeNs>(timeout_s * static_cast<double>(kNsPerSecond)));
  if (server.InFlight() > 0) LogWarning("{} requests are cut off", server.InFlight());
  engine.Stop();
  WaitUntilAnswered(server, clock.Now() + kFarewellNs);
}

int RunServe(ServeFlags& flags) {
  SetLogLevel(ParseLogLevel(flags.log_level));
  SignalWatcher signals;
  for (const std::string& name : flags.without_effect) {
    LogWarning("{} has no effect here", name);
  }
  if (const Status status = CompleteConfig(flags); !status.ok()) {
    return Fail(status.error(), kExitUsage);
  }
  const auto overrides =
      ParseFlagObject("--override-generation-config", flags.override_generation_config);
  if (!overrides.ok()) return Fail(overrides.error(), kExitUsage);
  if (const auto checked = server::ReadGenerationDefaults(nullptr, *overrides); !checked.ok()) {
    return Fail(checked.error(), kExitUsage);
  }
  if (const Status status = server::CheckAddress(flags.server); !status.ok()) {
    return Fail(status.error(), kExitListen);
  }
  if (!IsLoopback(flags.server) && flags.server.api_keys.empty()) {
    LogWarning("anyone who reaches {} can use this server: no --api-key is set", flags.server.host);
  }
  // Outlives the engine, which tells it of requests.
  std::unique_ptr<plan::TraceRecorder> recorder;
  if (!flags.record_trace.empty()) {
    auto opened = plan::TraceRecorder::Open(flags.record_trace, flags.engine.block_size);
    if (!opened.ok()) {
      return Fail(MakeError(ErrorCode::kIo, "--record-trace: {}", opened.error().message),
                  kExitUsage);
    }
    recorder = std::move(opened).value();
  }
  auto model = LoadModel(flags.engine);
  if (!model.ok()) return Fail(model.error(), kExitModel);
  LoadedEngine loaded = StartEngine(std::move(model).value(), recorder.get());
  const auto defaults = server::ReadGenerationDefaults(
      flags.generation_config == "vllm" ? nlohmann::json() : loaded.files->generation_config,
      *overrides);
  if (!defaults.ok()) return Fail(defaults.error(), kExitModel);
  if (flags.server.served_model_names.empty()) {
    flags.server.served_model_names = {loaded.files->name};
  }

  server::ModelContext context;
  context.tokenizer = loaded.tokenizer.get();
  context.chat_template = loaded.chat_template.get();
  context.chat_template_error = loaded.chat_template_error;
  context.defaults = *defaults;
  context.eos_ids = loaded.tokenizer->end_of_generation_ids();
  context.vocab_size = loaded.model->spec().vocab_size;
  context.root = files::PrintablePath(loaded.files->path);
  server::Server server(flags.server, context, *loaded.engine);
  if (const Status status = server.Start(); !status.ok()) {
    return Fail(status.error(), kExitListen);
  }
  signals.BeginOrderly();
  Announce(flags.server, server.port(), loaded.chat_template != nullptr);
  signals.Wait();
  Drain(server, *loaded.engine, flags.shutdown_timeout_s);
  server.Stop();
  LogInfo("ended");
  return kExitOk;
}

void AddListenFlags(CLI::App& command, ServeFlags& flags) {
  const std::string group = "Listening";
  server::ServerConfig& config = flags.server;
  command.add_option("--host", config.host, "Address to listen at")
      ->capture_default_str()
      ->group(group);
  command.add_option("--port", config.port, "Port to listen at; 0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str()
      ->group(group);
  command.add_option("--uds", config.uds, "Unix socket to listen at instead")->group(group);
  command.add_option("--ssl-certfile", config.ssl_certfile, "Certificate chain, PEM: serve TLS")
      ->group(group);
  command.add_option("--ssl-keyfile", config.ssl_keyfile, "Private key, PEM")->group(group);
  command
      .add_option("--api-key", config.api_keys,
                  "Key that requests must carry; may be given several times; also "
                  "$KVASIR_API_KEY")
      ->allow_extra_args(false)
      ->group(group);
  command
      .add_option("--allowed-origins", config.allowed_origins,
                  "Origins of web pages that may call (CORS), separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str()
      ->group(group);
  command.add_flag("--allow-credentials", config.allow_credentials, "CORS with credentials")
      ->group(group);
  command.add_option("--http-threads", config.http_threads, "Threads that serve connections")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--prepare-threads", config.prepare_threads,
                  "Threads that parse, render and tokenize requests")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->group(group);
  command.add_option("--max-body-size", flags.max_body_mib, "Largest request body, MiB")
      ->check(CLI::Range(1, 16384))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--shutdown-timeout", flags.shutdown_timeout_s,
                  "Seconds that running requests get after SIGTERM")
      ->check(Seconds())
      ->capture_default_str()
      ->group(group);
}

void AddApiFlags(CLI::App& command, ServeFlags& flags) {
  const std::string group = "API";
  server::ServerConfig& config = flags.server;
  command
      .add_option("--served-model-name", config.served_model_names,
                  "Names that requests may call the model; the first is shown; default: the file's")
      ->group(group);
  command
      .add_option("--generation-config", flags.generation_config,
                  "auto: sampling defaults of the model's generation_config.json; vllm: none")
      ->check(CLI::IsMember({"auto", "vllm"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--override-generation-config", flags.override_generation_config,
                  "JSON object of sampling defaults that win over the model's")
      ->group(group);
  command
      .add_option("--default-chat-template-kwargs", flags.default_chat_template_kwargs,
                  "JSON object of variables for the chat template")
      ->group(group);
  command.add_option("--response-role", config.response_role, "Role of answers")
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--trust-request-chat-template", config.trust_request_chat_template,
                "Let requests bring their own chat_template")
      ->group(group);
  command
      .add_flag("--plain-messages", config.plain_messages,
                "Special tokens written in messages stay text: users cannot forge turns")
      ->group(group);
  command
      .add_flag("--clamp-max-tokens", config.clamp_max_tokens,
                "Shorten max_tokens to what the context holds instead of answering 400")
      ->group(group);
  command.add_option("--max-logprobs", config.max_logprobs, "Most top_logprobs a request may ask")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-stop-strings", config.max_stop_strings, "Most stop strings of a request")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--no-prompt-tokens-details", flags.no_prompt_tokens_details,
                "Leave usage.prompt_tokens_details (cached_tokens) out")
      ->group(group);
  command
      .add_flag("--enable-force-include-usage", config.force_include_usage,
                "Send usage in every stream")
      ->group(group);
  command
      .add_flag("--return-tokens-as-token-ids", config.return_tokens_as_token_ids,
                "Show tokens in logprobs as \"token_id:N\"")
      ->group(group);
  command
      .add_option("--sse-ping-interval", flags.sse_ping_interval_s,
                  "Seconds between comment lines in idle streams; 0: none")
      ->check(Seconds())
      ->capture_default_str()
      ->group(group);
}

void AddLogFlags(CLI::App& command, ServeFlags& flags) {
  const std::string group = "Logging";
  command.add_option("--log-level", flags.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--disable-access-log", flags.no_access_log,
                "No JSON line for each request (never holds its content)")
      ->group(group);
  command
      .add_option("--record-trace", flags.record_trace,
                  "File to append a line to for each request, for 'kvasir simulate': time, lengths "
                  "and keyed hashes of prompt blocks, never content")
      ->group(group);
  command
      .add_option("--disable-access-log-for-endpoints", flags.server.access_log_disabled_paths,
                  "Paths without access log, separated by commas")
      ->delimiter(',')
      ->group(group);
}

// What manifests written for vLLM pass and what is always so, or has no meaning, here.
void AddVllmFlags(CLI::App& command, ServeFlags& flags) {
  for (const char* name : {"--trust-remote-code", "--enforce-eager", "--disable-log-requests",
                           "--disable-uvicorn-access-log", "--enable-prompt-tokens-details",
                           "--enable-server-load-tracking", "--enable-request-id-headers",
                           "--enable-tokenizer-info-endpoint", "--disable-log-stats"}) {
    command.add_flag_callback(
        name, [&flags, name] { flags.without_effect.emplace_back(name); }, "");
    command.get_option(name)->group("");
  }
  for (const char* name : {"--gpu-memory-utilization", "--swap-space", "--uvicorn-log-level"}) {
    command
        .add_option_function<std::string>(
            name, [&flags, name](const std::string&) { flags.without_effect.emplace_back(name); })
        ->group("");
  }
  command
      .add_option_function<std::string>(
          "--dtype", [&flags](const std::string&) { flags.without_effect.emplace_back("--dtype"); })
      ->group("");
  for (const char* name :
       {"--tensor-parallel-size", "--data-parallel-size", "--pipeline-parallel-size"}) {
    command
        .add_option_function<int>(
            name, [&flags, name](const int&) { flags.without_effect.emplace_back(name); })
        ->check([name](const std::string& value) {
          return value == "1"
                     ? std::string()
                     : fmt::format("{}: one device serves; expected 1, got {}", name, value);
        })
        ->group("");
  }
}

}  // namespace

void AddServe(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = app.add_subcommand("serve", "Serve a model over HTTP (OpenAI-compatible)");
  AddModelFlags(*command, flags->engine);
  AddListenFlags(*command, *flags);
  AddApiFlags(*command, *flags);
  AddEngineFlags(*command, flags->engine);
  AddLogFlags(*command, *flags);
  AddVllmFlags(*command, *flags);
  command->callback([flags, &exit_code] { exit_code = RunServe(*flags); });
}

}  // namespace kvasir::app
