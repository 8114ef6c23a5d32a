#include "server/server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "server/context.h"
#include "server/exchange.h"
#include "server/http_message.h"
#include "server/http_server.h"
#include "server/routes.h"

namespace kvasir::server {
namespace {

// Bodies with a length of so many digits are read before they are refused.
constexpr size_t kSmallLengthDigits = 5;

// Longer bodies can take a worker seconds.
constexpr size_t kLargeBodyBytes = size_t{1} << 20;

// What a request that waits for a worker costs beside its body.
constexpr int64_t kPreparingBytesPerRequest = 4096;

HttpResponse UnauthorizedResponse() {
  ApiError error;
  error.status = 401;
  error.type = "invalid_request_error";
  error.message = "Incorrect API key provided.";
  error.code = "invalid_api_key";
  HttpResponse response = ErrorResponse(error);
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

ApiError NoSuchPath() {
  ApiError error;
  error.status = 404;
  error.type = "NotFoundError";
  error.message = "Not Found";
  return error;
}

ApiError WrongMethod() {
  ApiError error;
  error.status = 405;
  error.type = "MethodNotAllowedError";
  error.message = "Method Not Allowed";
  return error;
}

// Compressed bodies would need limits of their own; nothing that speaks this API sends them.
const std::string* CodedBody(const HttpRequest& request) {
  for (const auto& [name, value] : request.headers) {
    if (name == "content-encoding" && !value.empty() && !EqualsIgnoreCase(value, "identity")) {
      return &value;
    }
  }
  return nullptr;
}

ApiError UnknownCoding(std::string_view coding) {
  ApiError error;
  error.status = 415;
  error.type = "UnsupportedMediaTypeError";
  error.message = fmt::format(
      "Content-Encoding '{}' is not supported: send the body as it is, without a coding.",
      Shortened(coding, 64));
  return error;
}

bool MethodFits(const Route& route, const std::string& method) {
  if (method == "GET" || method == "HEAD") return route.get;
  return method == "POST" && route.post;
}

// Many connections need many descriptors; the soft limit is often 1024.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int64_t UnixNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

HttpServerOptions HttpOptionsOf(const ServerConfig& config) {
  HttpServerOptions options;
  options.host = config.host;
  options.port = config.port;
  options.uds = config.uds;
  options.tls_certificate_file = config.ssl_certfile;
  options.tls_key_file = config.ssl_keyfile;
  options.threads_count = config.http_threads;
  options.limits = config.limits;
  return options;
}

ModelContext WithDefaults(ModelContext model) {
  KVASIR_CHECK(model.tokenizer != nullptr);
  if (model.eos_ids.empty()) {
    const std::vector<int32_t>& ends = model.tokenizer->end_of_generation_ids();
    if (const std::optional<int32_t> eos = model.tokenizer->eos_id()) model.eos_ids = {*eos};
    for (const int32_t id : ends) {
      if (std::find(model.eos_ids.begin(), model.eos_ids.end(), id) == model.eos_ids.end()) {
        model.eos_ids.push_back(id);
      }
    }
  }
  // The tokenizer's own end comes first, whatever the order was.
  if (const std::optional<int32_t> eos = model.tokenizer->eos_id()) {
    const auto found = std::find(model.eos_ids.begin(), model.eos_ids.end(), *eos);
    if (found != model.eos_ids.end()) std::iter_swap(model.eos_ids.begin(), found);
  }
  if (model.vocab_size == 0) model.vocab_size = model.tokenizer->vocab_size();
  return model;
}

/// Bytes that count as long as this lives.
class CountedBytes {
 public:
  CountedBytes(std::atomic<int64_t>& count, int64_t bytes)
      : count_(count),
        bytes_(bytes),
        all_(count.fetch_add(bytes, std::memory_order_relaxed) + bytes) {}
  ~CountedBytes() { count_.fetch_sub(bytes_, std::memory_order_relaxed); }
  CountedBytes(const CountedBytes&) = delete;
  CountedBytes& operator=(const CountedBytes&) = delete;

  /// The count when this was added.
  [[nodiscard]] int64_t all() const { return all_; }

 private:
  std::atomic<int64_t>& count_;
  int64_t bytes_;
  int64_t all_;
};

}  // namespace

Context::Context(ServerConfig server_config, ModelContext model_context, engine::Engine& the_engine)
    : config(std::move(server_config)),
      model(WithDefaults(std::move(model_context))),
      engine(the_engine),
      auth(config.api_keys),
      created_s(UnixNow()),
      instance_salt(RandomHex(16)),
      workers(config.prepare_threads) {
  KVASIR_CHECK(!config.served_model_names.empty());
}

bool Context::ServesModel(std::string_view name) const {
  return std::find(config.served_model_names.begin(), config.served_model_names.end(), name) !=
         config.served_model_names.end();
}

struct Server::State final : HttpHandler {
  State(ServerConfig config, ModelContext model, engine::Engine& engine)
      : context(std::move(config), std::move(model), engine),
        http(HttpOptionsOf(context.config), *this) {
    static_assert(kRoutesMax >= 16);
    KVASIR_CHECK(Routes().size() <= kRoutesMax);
  }

  // What can be refused by its head alone; with the key's index where one was needed.
  std::optional<HttpResponse> Refusal(const HttpRequest& request, const Route* route,
                                      std::optional<size_t>& api_key) const {
    if (!context.auth.open() && (route == nullptr || !route->open)) {
      api_key = context.auth.Check(request);
      if (!api_key) return UnauthorizedResponse();
    }
    if (route == nullptr) return ErrorResponse(NoSuchPath());
    if (!MethodFits(*route, request.method)) {
      HttpResponse response = ErrorResponse(WrongMethod());
      response.headers.emplace_back("Allow", AllowedMethods(*route));
      return response;
    }
    if (const std::string* coding = route->post ? CodedBody(request) : nullptr) {
      HttpResponse response = ErrorResponse(UnknownCoding(*coding));
      response.headers.emplace_back("Accept-Encoding", "identity");
      return response;
    }
    if (route->generates &&
        (context.draining.load(std::memory_order_relaxed) || !context.engine.Accepting())) {
      return ErrorResponse(kvasir::server::Draining());
    }
    return std::nullopt;
  }

  // A refusal before the body spares sending it, but ends the connection; for a small one that is
  // on its way already, OnRequest refuses as well.
  std::optional<HttpResponse> OnHeaders(const HttpRequest& request) override {
    const std::string* length = request.Header("content-length");
    const bool large = request.Header("transfer-encoding") != nullptr ||
                       request.Header("expect") != nullptr ||
                       (length != nullptr && length->size() > kSmallLengthDigits);
    if (!large || request.method == "OPTIONS") return std::nullopt;
    const Route* route = FindRoute(request.path);
    std::optional<size_t> api_key;
    std::optional<HttpResponse> refusal = Refusal(request, route, api_key);
    if (!refusal) return std::nullopt;
    // Through an exchange for its headers, counts and log line.
    return Collect(request, route, *std::move(refusal));
  }

  HttpResponse Collect(const HttpRequest& request, const Route* route, HttpResponse refusal) {
    struct Collector final : ResponseWriter {
      HttpResponse response;
      void Respond(HttpResponse given) override { response = std::move(given); }
      void BeginStream(HttpResponse, TimeNs) override {}
      void Write(std::string) override {}
      void EndStream(bool) override {}
      void Post(std::function<void()>) override {}
    };
    auto collector = std::make_shared<Collector>();
    const auto exchange = std::make_shared<Exchange>(context, request, collector);
    exchange->route = route;
    if (route != nullptr && route->generates) Enter();
    exchange->Respond(std::move(refusal));
    exchange->OnEnd(HttpOutcome{true, collector->response.body.size()});
    return std::move(collector->response);
  }

  void Enter() {
    context.in_flight.fetch_add(1, std::memory_order_relaxed);
    context.metrics.requests_in_flight.Add(1);
  }

  std::function<void(HttpOutcome)> OnRequest(HttpRequest request,
                                             std::shared_ptr<ResponseWriter> writer) override {
    auto exchange = std::make_shared<Exchange>(context, std::move(request), std::move(writer));
    exchange->route = FindRoute(exchange->request.path);
    if (exchange->route != nullptr && exchange->route->generates) Enter();
    Answer(exchange);
    return [exchange](HttpOutcome outcome) { exchange->OnEnd(outcome); };
  }

  void Answer(const std::shared_ptr<Exchange>& exchange) {
    const Route* route = exchange->route;
    const HttpRequest& request = exchange->request;
    if (request.method == "OPTIONS") return AnswerOptions(exchange);
    if (std::optional<HttpResponse> refusal = Refusal(request, route, exchange->api_key)) {
      return exchange->Respond(*std::move(refusal));
    }
    if (!route->worker) return route->handle(context, exchange);
    const auto bytes = static_cast<int64_t>(exchange->body_bytes) + kPreparingBytesPerRequest;
    const auto counted = std::make_shared<CountedBytes>(context.preparing_bytes, bytes);
    if (counted->all() > static_cast<int64_t>(context.config.limits.bodies_bytes_max)) {
      return exchange->Fail(QueueFull("Too many requests wait to be read; try again later."));
    }
    Workers& workers =
        exchange->body_bytes > kLargeBodyBytes ? context.large_workers : context.workers;
    workers.Post([this, exchange, route, counted] {
      try {
        route->handle(context, exchange);
      } catch (const std::exception& exception) {
        exchange->Break(exception);
      }
    });
  }

  // A preflight carries no key, as browsers send it, and learns nothing; other OPTIONS need one.
  void AnswerOptions(const std::shared_ptr<Exchange>& exchange) const {
    const HttpRequest& request = exchange->request;
    if (request.Header("origin") != nullptr &&
        request.Header("access-control-request-method") != nullptr) {
      HttpResponse response = PreflightResponse(context.config, request);
      return exchange->RespondBare(std::move(response));
    }
    if (!context.auth.open() && !context.auth.Check(request)) {
      return exchange->Respond(UnauthorizedResponse());
    }
    if (exchange->route == nullptr && request.path != "*") {
      return exchange->Fail(NoSuchPath());
    }
    HttpResponse response;
    response.status = 204;
    response.content_type.clear();
    response.headers.emplace_back("Allow", exchange->route != nullptr
                                               ? AllowedMethods(*exchange->route)
                                               : std::string("GET, HEAD, POST, OPTIONS"));
    exchange->Respond(std::move(response));
  }

  HttpResponse OnProtocolError(int status, std::string_view message) override {
    context.metrics.protocol_errors.Add();
    ApiError error;
    error.status = status;
    error.type = status == 413   ? "RequestTooLargeError"
                 : status == 505 ? "HttpVersionNotSupportedError"
                 : status >= 500 ? "InternalServerError"
                                 : "BadRequestError";
    if (status == 503) {
      error.type = "ServiceUnavailableError";
      error.retry_after_s = 1;
    }
    error.message = std::string(message);
    return ErrorResponse(error);
  }

  bool Draining() override { return context.draining.load(std::memory_order_relaxed); }

  Context context;
  HttpServer http;
  bool stopped = false;
};

Server::Server(ServerConfig config, ModelContext model, engine::Engine& engine)
    : state_(std::make_unique<State>(std::move(config), std::move(model), engine)) {}

Server::~Server() { Stop(); }

Status CheckAddress(const ServerConfig& config) {
  struct NoHandler final : HttpHandler {
    std::optional<HttpResponse> OnHeaders(const HttpRequest&) override { return std::nullopt; }
    std::function<void(HttpOutcome)> OnRequest(HttpRequest,
                                               std::shared_ptr<ResponseWriter>) override {
      return nullptr;
    }
    HttpResponse OnProtocolError(int, std::string_view) override { return {}; }
    bool Draining() override { return false; }
  };
  NoHandler handler;
  HttpServer probe(HttpOptionsOf(config), handler);
  return probe.Bind();
}

Status Server::Start() {
  RaiseDescriptorLimit();
  KVASIR_RETURN_IF_ERROR(state_->http.Bind());
  return state_->http.Start();
}

uint16_t Server::port() const { return state_->http.port(); }

void Server::BeginDrain() { state_->context.draining.store(true, std::memory_order_relaxed); }

int64_t Server::InFlight() const {
  return state_->context.in_flight.load(std::memory_order_relaxed);
}

void Server::Stop() {
  if (state_->stopped) return;
  state_->stopped = true;
  BeginDrain();
  state_->http.Stop();
  state_->context.workers.Stop();
  state_->context.large_workers.Stop();
}

}  // namespace kvasir::server
