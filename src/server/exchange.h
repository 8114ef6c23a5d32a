// One request and its answer, with what is told about them afterwards: the log line, the counters.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "server/context.h"
#include "server/errors.h"
#include "server/http.h"
#include "server/json_text.h"
#include "server/routes.h"

namespace kvasir::server {

/// For the log line of a request that generates.
struct GenerationRecord {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  TimeNs first_token_ns = 0;  ///< arrival to first event; 0: none
  std::string finish_reason;
};

/// Answered by one thread at a time.
class Exchange {
 public:
  Exchange(Context& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer);

  HttpRequest request;
  std::string id;  ///< X-Request-Id, ours or the client's
  const Route* route = nullptr;
  std::optional<size_t> api_key;  ///< index of the key that was used
  TimeNs arrived_at = 0;
  int64_t arrived_unix_s = 0;
  size_t body_bytes = 0;  ///< of the request as it came; handlers may clear the body

  void Respond(HttpResponse response);
  /// Without the CORS headers, which `response` has already.
  void RespondBare(HttpResponse response);
  void RespondJson(std::string body);
  void Fail(const ApiError& error);
  /// What should have answered has thrown (memory was refused): cancels what was begun, and ends
  /// the answer with a 500 or, in a stream, an error event.
  void Break(const std::exception& exception);
  /// 200 text/event-stream.
  void BeginEventStream();
  void Write(std::string bytes) { writer_->Write(std::move(bytes)); }
  void EndStream(bool close) { writer_->EndStream(close); }
  void Post(std::function<void()> task) { writer_->Post(std::move(task)); }

  /// Runs once, on the connection's thread, where the client leaves before the answer is complete;
  /// at once where he has left already.
  void SetCancel(std::function<void()> cancel);
  void SetRecord(GenerationRecord record);

  /// The answer has ended: counts, logs, cancels.
  void OnEnd(const HttpOutcome& outcome);

 private:
  void AddHeaders(HttpResponse& response) const;
  void Log(int status, TimeNs duration_ns, const HttpOutcome& outcome,
           const GenerationRecord& record) const;

  Context& context_;
  std::shared_ptr<ResponseWriter> writer_;
  std::mutex mutex_;  ///< what the connection's thread and the answering one share
  int status_ = 0;    ///< 0: no answer has begun
  bool streaming_ = false;
  bool ended_ = false;
  std::function<void()> cancel_;
  GenerationRecord record_;
};

/// CORS: the headers for an answer to a request with this Origin; none where it is not allowed.
[[nodiscard]] HttpHeaders CorsHeaders(const ServerConfig& config, const HttpRequest& request);
/// The answer to a preflight (OPTIONS with Origin and Access-Control-Request-Method).
[[nodiscard]] HttpResponse PreflightResponse(const ServerConfig& config,
                                             const HttpRequest& request);

}  // namespace kvasir::server
