#include "server/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/log.h"
#include "server/http_message.h"

namespace kvasir::server {
namespace {

constexpr size_t kRequestIdBytesMax = 128;
constexpr size_t kLoggedPathBytesMax = 256;
constexpr int kStatusClientLeft = 499;  // nginx's number; never sent

// Ids end in headers, logs and JSON: letters, digits and a few signs alone.
bool GoodRequestId(std::string_view id) {
  return !id.empty() && id.size() <= kRequestIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  std::string_view("-_.:/+=@").find(c) != std::string_view::npos;
         });
}

bool OriginAllowed(const ServerConfig& config, const std::string& origin) {
  return std::any_of(
      config.allowed_origins.begin(), config.allowed_origins.end(),
      [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

bool AllOriginsAllowed(const ServerConfig& config) {
  return std::find(config.allowed_origins.begin(), config.allowed_origins.end(), "*") !=
         config.allowed_origins.end();
}

double Ms(TimeNs ns) { return std::round(static_cast<double>(ns) / 1e3) / 1e3; }

}  // namespace

HttpHeaders CorsHeaders(const ServerConfig& config, const HttpRequest& request) {
  HttpHeaders headers;
  const std::string* origin = request.Header("origin");
  if (origin == nullptr || !OriginAllowed(config, *origin)) return headers;
  if (AllOriginsAllowed(config) && !config.allow_credentials) {
    headers.emplace_back("Access-Control-Allow-Origin", "*");
  } else {
    headers.emplace_back("Access-Control-Allow-Origin", *origin);
    headers.emplace_back("Vary", "Origin");
  }
  if (config.allow_credentials) headers.emplace_back("Access-Control-Allow-Credentials", "true");
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  return headers;
}

HttpResponse PreflightResponse(const ServerConfig& config, const HttpRequest& request) {
  HttpResponse response;
  response.content_type = "text/plain; charset=utf-8";
  response.headers = CorsHeaders(config, request);
  if (response.headers.empty()) {
    response.status = 400;
    response.body = "Disallowed CORS origin";
    return response;
  }
  response.headers.emplace_back("Access-Control-Allow-Methods",
                                "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
  const std::string* wanted = request.Header("access-control-request-headers");
  response.headers.emplace_back("Access-Control-Allow-Headers",
                                wanted ? *wanted : "authorization, content-type");
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  response.body = "OK";
  return response;
}

Exchange::Exchange(Context& context, HttpRequest the_request,
                   std::shared_ptr<ResponseWriter> writer)
    : request(std::move(the_request)), context_(context), writer_(std::move(writer)) {
  arrived_at = context.clock.Now();
  arrived_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  body_bytes = request.body.size();
  const std::string* given = request.Header("x-request-id");
  id = given != nullptr && GoodRequestId(*given) ? *given : RandomHex(16);
}

void Exchange::AddHeaders(HttpResponse& response) const {
  response.headers.emplace_back("X-Request-Id", id);
  HttpHeaders cors = CorsHeaders(context_.config, request);
  response.headers.insert(response.headers.end(), std::make_move_iterator(cors.begin()),
                          std::make_move_iterator(cors.end()));
}

void Exchange::Respond(HttpResponse response) {
  AddHeaders(response);
  {
    const std::lock_guard lock(mutex_);
    status_ = response.status;
  }
  writer_->Respond(std::move(response));
}

void Exchange::RespondBare(HttpResponse response) {
  {
    const std::lock_guard lock(mutex_);
    status_ = response.status;
  }
  response.headers.emplace_back("X-Request-Id", id);
  writer_->Respond(std::move(response));
}

void Exchange::RespondJson(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  Respond(std::move(response));
}

void Exchange::Fail(const ApiError& error) { Respond(ErrorResponse(error)); }

void Exchange::Break(const std::exception& exception) {
  std::function<void()> cancel;
  bool answered = false;
  bool streaming = false;
  {
    const std::lock_guard lock(mutex_);
    cancel.swap(cancel_);
    answered = status_ != 0;
    streaming = streaming_;
  }
  if (cancel) cancel();
  const ApiError error = FromError(MakeError(ErrorCode::kInternal, "{}", exception.what()));
  if (streaming) {
    context_.metrics.failed_streams.Add();
    Write(StreamError(error));
    EndStream(true);
  } else if (!answered) {
    Fail(error);
  }
}

void Exchange::BeginEventStream() {
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");
  AddHeaders(head);
  context_.metrics.streams.Add();
  writer_->BeginStream(std::move(head), context_.config.sse_ping_interval_ns);
  const std::lock_guard lock(mutex_);
  status_ = 200;
  streaming_ = true;
}

void Exchange::SetCancel(std::function<void()> cancel) {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) {
      cancel_ = std::move(cancel);
      return;
    }
  }
  cancel();
}

void Exchange::SetRecord(GenerationRecord record) {
  const std::lock_guard lock(mutex_);
  record_ = std::move(record);
}

void Exchange::OnEnd(const HttpOutcome& outcome) {
  std::function<void()> cancel;
  GenerationRecord record;
  int status = 0;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    cancel.swap(cancel_);
    record = record_;
    status = status_;
  }
  if (!outcome.complete) {
    context_.metrics.client_disconnects.Add();
    if (cancel) cancel();
    if (status == 0) status = kStatusClientLeft;
  }
  const TimeNs duration_ns = context_.clock.Now() - arrived_at;
  ServerMetrics& metrics = context_.metrics;
  const size_t index = route == nullptr ? kRoutesMax : RouteIndex(route);
  metrics.http_requests[index][MethodIndex(request.method)][static_cast<size_t>(status / 100)]
      .Add();
  metrics.http_request_bytes[index].Add(static_cast<int64_t>(body_bytes));
  metrics.http_response_bytes[index].Add(static_cast<int64_t>(outcome.bytes_written));
  metrics.http_ended[index].Add();
  metrics.http_request_seconds[index].Observe(ToSeconds(duration_ns));
  metrics.http_request_highr_seconds.Observe(ToSeconds(duration_ns));
  if (route != nullptr && route->generates) {
    context_.in_flight.fetch_sub(1, std::memory_order_relaxed);
    metrics.requests_in_flight.Add(-1);
  }
  Log(status, duration_ns, outcome, record);
}

void Exchange::Log(int status, TimeNs duration_ns, const HttpOutcome& outcome,
                   const GenerationRecord& record) const {
  const ServerConfig& config = context_.config;
  if (!config.access_log || !LogEnabled(LogLevel::kInfo)) return;
  const auto& disabled = config.access_log_disabled_paths;
  if (std::find(disabled.begin(), disabled.end(), request.path) != disabled.end()) return;
  std::string line;
  line.reserve(320);
  const auto now =
      std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now())
          .time_since_epoch();
  fmt::format_to(std::back_inserter(line),
                 "{{\"time\":{}.{:03},\"event\":\"request\",\"id\":", now.count() / 1000,
                 now.count() % 1000);
  AppendJsonString(id, line);
  line += ",\"remote\":";
  AppendJsonString(request.remote, line);
  line += ",\"method\":";
  AppendJsonString(Shortened(request.method, 16), line);
  line += ",\"path\":";
  // Percent-decoded paths may hold any byte.
  std::string path;
  for (const char c : request.path.substr(0, kLoggedPathBytesMax)) {
    path += c >= 0x20 && c < 0x7F ? c : '?';
  }
  AppendJsonString(path, line);
  fmt::format_to(std::back_inserter(line),
                 ",\"status\":{},\"duration_ms\":{},\"body_bytes_in\":{},\"body_bytes_out\":{}",
                 status, Ms(duration_ns), body_bytes, outcome.bytes_written);
  if (!outcome.complete) line += ",\"client_left\":true";
  if (record.prompt_tokens > 0) {
    fmt::format_to(std::back_inserter(line),
                   ",\"prompt_tokens\":{},\"cached_tokens\":{},\"completion_tokens\":{}",
                   record.prompt_tokens, record.cached_tokens, record.completion_tokens);
    if (record.first_token_ns > 0) {
      fmt::format_to(std::back_inserter(line), ",\"ttft_ms\":{}", Ms(record.first_token_ns));
    }
    if (!record.finish_reason.empty()) {
      line += ",\"finish_reason\":";
      AppendJsonString(record.finish_reason, line);
    }
  }
  line += "}";
  LogJson(line);
}

}  // namespace kvasir::server
