#include <fmt/format.h>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "server/http_connection_base.h"
#include "server/http_message.h"

namespace kvasir::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr size_t kReadSmallBytes = 4 * 1024;
constexpr size_t kReadLargeBytes = 64 * 1024;
// What a client may send ahead while its request is answered; then its bytes wait in the kernel.
constexpr size_t kPipelineBytesMax = 64 * 1024;
constexpr std::string_view kPing = ": ping\n\n";
constexpr size_t kKeepCapacityBytes = 64 * 1024;
// Chunk headers and trailers, which no other limit bounds.
constexpr size_t kUnparsedBytesMax = 64 * 1024;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// The first line of `text`.
bool EndsInBareLf(std::string_view text) {
  const size_t end = text.find('\n');
  return end != std::string_view::npos && (end == 0 || text[end - 1] != '\r');
}

bool HasBareLf(std::string_view text) {
  for (size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
    if (at == 0 || text[at - 1] != '\r') return true;
  }
  return false;
}

// A header that goes on in a next line (RFC 9112 §5.2): proxies differ in how they read it.
bool HasFoldedLine(std::string_view text) {
  const std::string_view head = text.substr(0, text.find("\r\n\r\n"));
  return head.find("\r\n ") != std::string_view::npos ||
         head.find("\r\n\t") != std::string_view::npos;
}

class Writer final : public ResponseWriter {
 public:
  Writer(const std::shared_ptr<Connection>& connection, std::shared_ptr<IoThread> thread,
         uint64_t sequence)
      : connection_(connection), thread_(std::move(thread)), sequence_(sequence) {}
  ~Writer() override {
    try {
      Dispatch([sequence = sequence_](Connection& c) { c.Abandon(sequence); });
    } catch (const std::exception& exception) {
      LogError("a client was not told that its request got no answer: {}", exception.what());
    }
  }
  void Respond(HttpResponse response) override {
    Dispatch([sequence = sequence_, response = std::move(response)](Connection& c) mutable {
      c.Respond(sequence, std::move(response));
    });
  }
  void BeginStream(HttpResponse head, TimeNs ping_interval_ns) override {
    Dispatch([sequence = sequence_, head = std::move(head), ping_interval_ns](Connection& c) {
      c.BeginStream(sequence, head, ping_interval_ns);
    });
  }
  void Write(std::string bytes) override {
    Dispatch([sequence = sequence_, bytes = std::move(bytes)](Connection& c) {
      c.WriteStream(sequence, bytes);
    });
  }
  void EndStream(bool close) override {
    Dispatch([sequence = sequence_, close](Connection& c) { c.EndStream(sequence, close); });
  }
  void Post(std::function<void()> task) override {
    std::shared_ptr<Connection> connection = connection_.lock();
    if (!connection) return;
    asio::post(thread_->context,
               [connection = std::move(connection), sequence = sequence_, task = std::move(task)] {
                 if (connection->Open(sequence)) connection->Guard(task);
               });
  }

 private:
  template <typename Task>
  void Dispatch(Task task) {
    std::shared_ptr<Connection> connection = connection_.lock();
    if (!connection) return;
    asio::dispatch(thread_->context,
                   [connection = std::move(connection), task = std::move(task)]() mutable {
                     connection->Guard([&] { task(*connection); });
                   });
  }

  // Weak: a writer may outlive its client by far (a request deep in the queue).
  std::weak_ptr<Connection> connection_;
  std::shared_ptr<IoThread> thread_;
  uint64_t sequence_;
};

}  // namespace

// ---------------------------------------------------------------------------------------------
// Input.

void Connection::Read() {
  if (read_active_ || phase_ == Phase::kClosed || phase_ == Phase::kHandshake) return;
  if (phase_ == Phase::kAnswering && Unparsed() >= kPipelineBytesMax) return;
  const bool large = head_checked_ || phase_ == Phase::kLingering;
  read_buffer_.resize(large ? kReadLargeBytes : kReadSmallBytes);
  if (!large && read_buffer_.capacity() > kReadSmallBytes) read_buffer_.shrink_to_fit();
  read_active_ = true;
  AsyncRead(asio::buffer(read_buffer_));
}

void Connection::OnRead(error_code ec, size_t size) {
  read_active_ = false;
  if (phase_ == Phase::kClosed) return;
  if (ec) {
    // The answer is complete but not yet taken: whoever closed only his sending side still reads.
    if (phase_ == Phase::kAnswering && answer_done_ && ec == asio::error::eof) {
      keep_alive_ = false;
      return;
    }
    Cut();
    return;
  }
  if (phase_ != Phase::kLingering) {
    in_.erase(0, in_begin_);
    in_begin_ = 0;
    in_.append(read_buffer_, 0, size);
  }
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kReading:
      Parse();
      break;
    case Phase::kAnswering:
    case Phase::kLingering:
      Read();
      break;
    case Phase::kHandshake:
    case Phase::kClosed:
      break;
  }
}

void Connection::Parse() {
  if (phase_ == Phase::kIdle) {
    // An empty line before a request is ignored (RFC 9112 §2.2).
    while (Unparsed() >= 2 && in_.compare(in_begin_, 2, "\r\n") == 0) in_begin_ += 2;
    if (Unparsed() == 0 || (Unparsed() == 1 && in_[in_begin_] == '\r')) {
      Read();
      return;
    }
    phase_ = Phase::kReading;
    parser_.emplace();
    parser_->header_limit(shared_->limits.header_bytes_max);
    parser_->body_limit(shared_->limits.body_bytes_max);
    head_checked_ = false;
    head_method_ = false;
    minor_version_ = 1;
    SetDeadline(shared_->limits.header_timeout_ns);
  }
  while (!parser_->is_done()) {
    if (Unparsed() == 0) {
      Read();
      return;
    }
    error_code ec;
    const bool had_head = parser_->is_header_done();
    const uint64_t before = had_head ? parser_->get().body().size() : 0;
    const std::string_view unparsed(in_.data() + in_begin_, Unparsed());
    try {
      in_begin_ += parser_->put(asio::buffer(unparsed), ec);
    } catch (const std::length_error&) {  // a field of 64 KiB and more
      Refuse(431, "A chunk header or trailer is too large.");
      return;
    }
    if (ec && ec != http::error::need_more) {
      if (ec == http::error::header_limit) {
        Refuse(431, fmt::format("The request's headers are larger than the limit of {} bytes.",
                                shared_->limits.header_bytes_max));
      } else if (ec == http::error::body_limit) {
        Refuse(413, fmt::format("The request's body is larger than the limit of {} bytes.",
                                shared_->limits.body_bytes_max));
      } else if (ec == http::error::bad_version && EndsInBareLf(unparsed)) {
        Refuse(400, "Malformed HTTP request: lines must end in CR LF, got a bare LF.");
      } else if (ec == http::error::bad_version) {
        Refuse(505, "Only HTTP/1.0 and HTTP/1.1 are spoken here.");
      } else {
        Refuse(400, fmt::format("Malformed HTTP request: {}.", ec.message()));
      }
      return;
    }
    if (!had_head && parser_->is_header_done() && HasFoldedLine(unparsed)) {
      Refuse(400, "Malformed HTTP request: a header's line must not begin with a blank.");
      return;
    }
    if (parser_->is_header_done() && !head_checked_) {
      head_checked_ = true;
      if (!CheckRequestHead()) return;
    }
    if (parser_->is_header_done()) {
      const uint64_t grown = parser_->get().body().size() - before;
      body_bytes_counted_ += grown;
      const uint64_t all =
          shared_->bodies_bytes.fetch_add(grown, std::memory_order_relaxed) + grown;
      if (grown > 0 && all > shared_->limits.bodies_bytes_max) {
        Refuse(503, "Too many large requests at the same time; try again later.");
        return;
      }
    }
    if (ec == http::error::need_more) {
      // What is left is the begin of a chunk's header or of the trailer.
      if (parser_->is_header_done() && HasBareLf(unparsed.substr(unparsed.size() - Unparsed()))) {
        Refuse(400, "Malformed HTTP request: lines must end in CR LF, got a bare LF.");
        return;
      }
      if (Unparsed() > shared_->limits.header_bytes_max + kUnparsedBytesMax) {
        Refuse(431, "A chunk header or trailer is too large.");
        return;
      }
      Read();
      return;
    }
  }
  StartExchange();
}

// False: the request was refused.
bool Connection::CheckRequestHead() {
  const auto& head = parser_->get();
  minor_version_ = head.version() == 10 ? 0 : 1;
  if (head.version() != 10 && head.version() != 11) {
    Refuse(505, "Only HTTP/1.0 and HTTP/1.1 are spoken here.");
    return false;
  }
  request_ = HttpRequest{};
  request_.method = std::string(View(head.method_string()));
  head_method_ = request_.method == "HEAD";
  request_.remote = remote_;
  for (const auto& field : head) {
    request_.headers.emplace_back(LowerCase(View(field.name_string())),
                                  std::string(View(field.value())));
  }
  if (const Status framing = CheckFraming(request_.headers, minor_version_); !framing.ok()) {
    Refuse(400, framing.error().message);
    return false;
  }
  Result<HttpTarget> target = ParseTarget(View(head.target()));
  if (!target.ok()) {
    Refuse(400, target.error().message);
    return false;
  }
  request_.path = std::move(target->path);
  request_.query = std::move(target->query);
  if (std::optional<HttpResponse> refusal = shared_->handler->OnHeaders(request_)) {
    phase_ = Phase::kAnswering;
    const bool whole = parser_->is_done() && !refusal->close && parser_->get().keep_alive();
    answer_done_ = true;
    QueueResponse(*std::move(refusal), whole);
    return false;
  }
  if (const std::string* expect = request_.Header("expect")) {
    if (!EqualsIgnoreCase(*expect, "100-continue")) {
      Refuse(417, "The only expectation that is met here is 100-continue.");
      return false;
    }
    if (!parser_->is_done() && minor_version_ > 0 && Unparsed() == 0) {
      out_pending_ += "HTTP/1.1 100 Continue\r\n\r\n";
      Write();
    }
  }
  body_began_at_ = std::chrono::steady_clock::now();
  SetDeadline(shared_->limits.body_timeout_ns);
  return true;
}

void Connection::StartExchange() {
  phase_ = Phase::kAnswering;
  ClearDeadline();
  keep_alive_ = parser_->get().keep_alive();
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  head_checked_ = false;
  ++sequence_;
  exchange_open_ = true;
  streaming_ = false;
  answer_done_ = false;
  body_written_ = 0;
  const std::shared_ptr<Connection> self = shared_from_this();
  on_end_ = nullptr;
  auto on_end = shared_->handler->OnRequest(std::move(request_),
                                            std::make_shared<Writer>(self, thread_, sequence_));
  ReleaseBody();
  request_ = HttpRequest{};
  if (phase_ == Phase::kClosed) {
    if (on_end) on_end(HttpOutcome{false, body_written_});
    return;
  }
  on_end_ = std::move(on_end);
  Read();
}

// Answers what never became an exchange, and ends the connection.
void Connection::Refuse(int status, std::string_view message) {
  phase_ = Phase::kAnswering;
  answer_done_ = true;
  QueueResponse(shared_->handler->OnProtocolError(status, message), false);
}

// ---------------------------------------------------------------------------------------------
// Output.

void Connection::QueueResponse(HttpResponse response, bool keep_alive) {
  keep_alive_ = keep_alive && !response.close && !shared_->handler->Draining();
  out_pending_ += FormatHead(response, response.body.size(), minor_version_, keep_alive_);
  if (!head_method_) {
    body_written_ += response.body.size();
    if (out_pending_.size() + response.body.size() > kReadLargeBytes && !write_active_) {
      // Saves copying a large body into the buffer once more.
      response.body.insert(0, out_pending_);
      out_pending_ = std::move(response.body);
    } else {
      out_pending_ += response.body;
    }
  }
  Write();
}

void Connection::Respond(uint64_t sequence, HttpResponse response) {
  if (!Open(sequence) || answer_done_) return;
  KVASIR_CHECK(!streaming_);
  answer_done_ = true;
  QueueResponse(std::move(response), keep_alive_);
}

void Connection::BeginStream(uint64_t sequence, const HttpResponse& head, TimeNs ping_interval_ns) {
  if (!Open(sequence)) return;
  KVASIR_CHECK(!streaming_ && !answer_done_);
  streaming_ = true;
  ping_interval_ns_ = ping_interval_ns;
  if (minor_version_ == 0 || head.close || shared_->handler->Draining()) keep_alive_ = false;
  out_pending_ += FormatHead(head, std::nullopt, minor_version_, keep_alive_);
  Write();
}

void Connection::WriteStream(uint64_t sequence, std::string_view bytes) {
  if (!Open(sequence) || answer_done_) return;
  KVASIR_CHECK(streaming_);
  if (bytes.empty() || head_method_) return;
  // Counted before this piece, so that one large piece alone is no offence.
  if (out_pending_.size() > shared_->limits.stream_buffer_bytes_max) {
    Cut();
    return;
  }
  body_written_ += bytes.size();
  if (minor_version_ > 0) {
    fmt::format_to(std::back_inserter(out_pending_), "{:x}\r\n", bytes.size());
    out_pending_ += bytes;
    out_pending_ += "\r\n";
  } else {
    out_pending_ += bytes;
  }
  Write();
}

void Connection::EndStream(uint64_t sequence, bool close) {
  if (!Open(sequence) || answer_done_) return;
  KVASIR_CHECK(streaming_);
  if (minor_version_ > 0 && !head_method_) out_pending_ += "0\r\n\r\n";
  if (close) keep_alive_ = false;
  answer_done_ = true;
  Write();
}

void Connection::Abandon(uint64_t sequence) {
  if (!Open(sequence) || answer_done_) return;
  if (streaming_) {
    Cut();
    return;
  }
  answer_done_ = true;
  QueueResponse(shared_->handler->OnProtocolError(500, "The request got no answer."), false);
}

void Connection::Write() {
  if (write_active_ || phase_ == Phase::kClosed) return;
  if (out_pending_.empty()) {
    if (phase_ == Phase::kAnswering && answer_done_) FinishExchange();
    return;
  }
  out_active_.swap(out_pending_);
  out_offset_ = 0;
  write_active_ = true;
  if (phase_ == Phase::kAnswering) SetDeadline(shared_->limits.write_timeout_ns);
  AsyncWrite(asio::buffer(out_active_));
}

void Connection::OnWrite(error_code ec, size_t size) {
  if (phase_ == Phase::kClosed) {
    write_active_ = false;
    return;
  }
  if (ec) {
    write_active_ = false;
    Cut();
    return;
  }
  out_offset_ += size;
  if (out_offset_ < out_active_.size()) {
    if (phase_ == Phase::kAnswering) SetDeadline(shared_->limits.write_timeout_ns);
    AsyncWrite(asio::buffer(out_active_.data() + out_offset_, out_active_.size() - out_offset_));
    return;
  }
  write_active_ = false;
  out_active_.clear();
  if (out_active_.capacity() > kKeepCapacityBytes) out_active_.shrink_to_fit();
  if (phase_ == Phase::kAnswering) {
    ClearDeadline();
    if (streaming_ && ping_interval_ns_ > 0) SetDeadline(ping_interval_ns_);
  }
  Write();
}

void Connection::FinishExchange() {
  parser_.reset();
  head_checked_ = false;
  ReleaseBody();
  if (exchange_open_) EndExchange(true);
  if (phase_ == Phase::kClosed) return;
  if (!keep_alive_) {
    Linger();
    return;
  }
  phase_ = Phase::kIdle;
  SetDeadline(shared_->limits.idle_timeout_ns);
  if (out_pending_.capacity() > kKeepCapacityBytes) out_pending_.shrink_to_fit();
  Parse();  // what came ahead; the pending read goes on
}

void Connection::EndExchange(bool complete) {
  exchange_open_ = false;
  const auto on_end = std::exchange(on_end_, nullptr);
  if (on_end) on_end(HttpOutcome{complete, body_written_});
}

// Sends our end and reads on for a while: closing at once would reset the connection under a client
// that is still sending, and take the answer with it.
void Connection::Linger() {
  phase_ = Phase::kLingering;
  SetDeadline(shared_->limits.linger_timeout_ns);
  AsyncShutdown();
}

// ---------------------------------------------------------------------------------------------
// Time. The timer is armed for the first deadline and looks again when it fires, since most
// deadlines move on before they are reached.

void Connection::SetDeadline(TimeNs after_ns) {
  deadline_ = std::chrono::steady_clock::now() + std::chrono::nanoseconds(after_ns);
  if (!timer_armed_ || timer_at_ > *deadline_) ArmTimer();
}

void Connection::ArmTimer() {
  timer_armed_ = true;
  timer_at_ = *deadline_;
  timer_.expires_at(timer_at_);
  timer_.async_wait([self = shared_from_this(), at = timer_at_](error_code ec) {
    if (ec || at != self->timer_at_) return;
    self->timer_armed_ = false;
    if (self->phase_ == Phase::kClosed || !self->deadline_) return;
    self->Guard([&self] {
      if (std::chrono::steady_clock::now() < *self->deadline_) {
        self->ArmTimer();
      } else {
        self->OnDeadline();
      }
    });
  });
}

void Connection::OnDeadline() {
  ClearDeadline();
  if (phase_ == Phase::kAnswering && streaming_ && !write_active_ && !answer_done_) {
    WriteStream(sequence_, kPing);
    return;
  }
  if (phase_ != Phase::kReading) {
    Cut();
    return;
  }
  if (head_checked_) {
    // A body has a minimal speed rather than an end.
    const double allowed_ns = static_cast<double>(shared_->limits.body_timeout_ns) +
                              static_cast<double>(parser_->get().body().size()) * 1e9 /
                                  static_cast<double>(shared_->limits.body_bytes_per_second_min);
    const TimePoint allowed_until =
        body_began_at_ + std::chrono::nanoseconds(static_cast<int64_t>(allowed_ns));
    const auto left = allowed_until - std::chrono::steady_clock::now();
    if (left > std::chrono::nanoseconds(0)) {
      SetDeadline(std::chrono::duration_cast<std::chrono::nanoseconds>(left).count());
      return;
    }
  }
  Refuse(408, "The request took too long to arrive.");
}

}  // namespace kvasir::server
