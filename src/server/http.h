// HTTP as the API files see it: plain structs, and a writer for the answer. No socket library here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace kvasir::server {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   ///< as sent: "GET"
  std::string path;     ///< percent-decoded, without the query
  std::string query;    ///< as sent, without the "?"
  HttpHeaders headers;  ///< names in lower case, in the order they came
  std::string body;
  std::string remote;  ///< "127.0.0.1:4711", or "unix"

  /// The first header of that name (lower case), or null.
  [[nodiscard]] const std::string* Header(std::string_view lower_name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  ///< empty: no such header
  HttpHeaders headers;                            ///< further ones
  std::string body;
  bool close = false;  ///< end the connection after it
};

/// How an answer ended.
struct HttpOutcome {
  bool complete = false;       ///< false: the client left, or read too slowly
  uint64_t bytes_written = 0;  ///< body bytes handed to the socket
};

/// The answer to one request: Respond once, or BeginStream, Write…, EndStream. Any thread; calls of
/// one thread keep their order. Calls after the client has left do nothing.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  virtual void Respond(HttpResponse response) = 0;
  /// Sends the head; `head.body` is not used. The length is unknown: chunked, or until the close.
  /// `ping_interval_ns` > 0: an event-stream comment after so long a silence.
  virtual void BeginStream(HttpResponse head, TimeNs ping_interval_ns) = 0;
  virtual void Write(std::string bytes) = 0;
  /// `close`: end the connection too.
  virtual void EndStream(bool close) = 0;
  /// Runs `task` on the connection's thread, after what was posted before. Dropped after the client
  /// has left.
  virtual void Post(std::function<void()> task) = 0;
};

/// What the connections need from the layer above. Called on I/O threads; must not block.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// The headers are there, the body is not. An answer refuses the request.
  virtual std::optional<HttpResponse> OnHeaders(const HttpRequest& request) = 0;
  /// A whole request. Returns what to call when the answer has ended, on the connection's thread.
  virtual std::function<void(HttpOutcome)> OnRequest(HttpRequest request,
                                                     std::shared_ptr<ResponseWriter> writer) = 0;
  /// The answer to something that is no HTTP request, or breaks a limit.
  virtual HttpResponse OnProtocolError(int status, std::string_view message) = 0;
  /// True while answers should ask clients to go elsewhere.
  virtual bool Draining() = 0;
};

struct HttpLimits {
  uint32_t header_bytes_max = 64 * 1024;
  uint64_t body_bytes_max = 64ull * 1024 * 1024;
  uint64_t bodies_bytes_max = 1024ull * 1024 * 1024;  ///< of all requests being read, together
  uint64_t stream_buffer_bytes_max = 1024 * 1024;     ///< unread output of one stream
  int64_t connections_max = 16384;
  TimeNs idle_timeout_ns = 180 * kNsPerSecond;   ///< between requests
  TimeNs header_timeout_ns = 30 * kNsPerSecond;  ///< from the first byte of a request
  TimeNs body_timeout_ns = 60 * kNsPerSecond;    ///< plus what body_bytes_per_second allows
  int64_t body_bytes_per_second_min = 16 * 1024;
  TimeNs write_timeout_ns = 60 * kNsPerSecond;  ///< without one byte taken by the client
  TimeNs linger_timeout_ns = 5 * kNsPerSecond;  ///< reading on after an early refusal
};

}  // namespace kvasir::server
