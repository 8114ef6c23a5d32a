// The machine behind http_connection.h: what does not depend on the kind of stream. Only for
// http_connection.cc (requests, answers, time) and http_transport.cc (plain and TLS).
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "server/http_connection.h"

namespace kvasir::server {

// A body that grows with what has come, never by what Content-Length promises.
struct GrowingBody {
  using value_type = std::string;

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& ec) { ec = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& ec) {
      ec = {};
      size_t size = 0;
      for (auto it = boost::asio::buffer_sequence_begin(buffers);
           it != boost::asio::buffer_sequence_end(buffers); ++it) {
        const boost::asio::const_buffer piece = *it;
        body_.append(static_cast<const char*>(piece.data()), piece.size());
        size += piece.size();
      }
      return size;
    }
    void finish(boost::system::error_code& ec) { ec = {}; }

   private:
    value_type& body_;
  };
};

using RequestParser = boost::beast::http::request_parser<GrowingBody>;

/// On its loop's thread alone.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::string remote, std::shared_ptr<IoThread> thread,
             std::shared_ptr<ConnectionShared> shared)
      : thread_(std::move(thread)),
        shared_(std::move(shared)),
        remote_(std::move(remote)),
        timer_(thread_->context) {
    shared_->connections_count.fetch_add(1, std::memory_order_relaxed);
  }
  virtual ~Connection() {
    ReleaseBody();
    shared_->connections_count.fetch_sub(1, std::memory_order_relaxed);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Start() {
    Guard([this] {
      thread_->connections.insert(this);
      SetDeadline(shared_->limits.header_timeout_ns);
      Handshake();
    });
  }

  /// Runs a handler of this connection. What it throws (memory was refused) ends this connection
  /// alone, not the server.
  template <typename Handler>
  void Guard(const Handler& handler) {
    try {
      handler();
    } catch (const std::exception& exception) {
      LogError("a connection of {} is cut: {}", remote_, exception.what());
      Cut();
    }
  }

  /// Cuts the connection, whatever it is doing.
  void Cut() {
    if (phase_ == Phase::kClosed) return;
    const bool answered = exchange_open_;
    phase_ = Phase::kClosed;
    timer_.cancel();
    CloseSocket();
    thread_->connections.erase(this);
    ReleaseBody();
    if (answered) EndExchange(false);
  }

  IoThread& thread() { return *thread_; }

  // For the writer of exchange `sequence`, on the loop's thread.
  void Respond(uint64_t sequence, HttpResponse response);
  void BeginStream(uint64_t sequence, const HttpResponse& head, TimeNs ping_interval_ns);
  void WriteStream(uint64_t sequence, std::string_view bytes);
  void EndStream(uint64_t sequence, bool close);
  /// The writer is gone; where it gave no answer, the client gets a 500.
  void Abandon(uint64_t sequence);
  [[nodiscard]] bool Open(uint64_t sequence) const {
    return exchange_open_ && sequence == sequence_ && phase_ != Phase::kClosed;
  }

 protected:
  enum class Phase : uint8_t { kHandshake, kIdle, kReading, kAnswering, kLingering, kClosed };

  virtual void Handshake() = 0;
  virtual void AsyncRead(boost::asio::mutable_buffer buffer) = 0;
  virtual void AsyncWrite(boost::asio::const_buffer buffer) = 0;
  /// Sends the end of our side; OnShutdown follows.
  virtual void AsyncShutdown() = 0;
  virtual void CloseSocket() = 0;

  void OnHandshake(boost::system::error_code ec) {
    if (phase_ == Phase::kClosed) return;
    if (ec) {
      Cut();
      return;
    }
    phase_ = Phase::kIdle;
    SetDeadline(shared_->limits.idle_timeout_ns);
    Read();
  }
  void OnRead(boost::system::error_code ec, size_t size);
  void OnWrite(boost::system::error_code ec, size_t size);
  void OnShutdown(boost::system::error_code ec) {
    if (phase_ == Phase::kClosed) return;
    if (ec) {
      Cut();
      return;
    }
    Read();
  }

  std::shared_ptr<IoThread> thread_;

 private:
  void Read();
  void Parse();
  bool CheckRequestHead();
  void StartExchange();
  void Refuse(int status, std::string_view message);
  void QueueResponse(HttpResponse response, bool keep_alive);
  void Write();
  void FinishExchange();
  void EndExchange(bool complete);
  void Linger();
  void SetDeadline(TimeNs after_ns);
  void ClearDeadline() { deadline_.reset(); }
  void ArmTimer();
  void OnDeadline();
  void ReleaseBody() {
    shared_->bodies_bytes.fetch_sub(body_bytes_counted_, std::memory_order_relaxed);
    body_bytes_counted_ = 0;
  }
  [[nodiscard]] size_t Unparsed() const { return in_.size() - in_begin_; }

  using TimePoint = std::chrono::steady_clock::time_point;

  std::shared_ptr<ConnectionShared> shared_;
  std::string remote_;
  boost::asio::steady_timer timer_;
  std::optional<TimePoint> deadline_;
  TimePoint timer_at_{};
  bool timer_armed_ = false;

  Phase phase_ = Phase::kHandshake;
  // Input.
  std::string in_;  ///< received; parsed up to in_begin_
  size_t in_begin_ = 0;
  std::string read_buffer_;
  bool read_active_ = false;
  std::optional<RequestParser> parser_;
  bool head_checked_ = false;
  HttpRequest request_;
  uint64_t body_bytes_counted_ = 0;
  TimePoint body_began_at_{};
  // The exchange.
  uint64_t sequence_ = 0;
  bool exchange_open_ = false;
  std::function<void(HttpOutcome)> on_end_;
  bool head_method_ = false;
  int minor_version_ = 1;
  bool keep_alive_ = true;
  bool streaming_ = false;
  TimeNs ping_interval_ns_ = 0;
  bool answer_done_ = false;
  uint64_t body_written_ = 0;
  // Output.
  std::string out_pending_;
  std::string out_active_;
  size_t out_offset_ = 0;
  bool write_active_ = false;
};

}  // namespace kvasir::server
