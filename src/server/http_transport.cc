// The two kinds of stream under a connection.
#include <boost/asio/ssl/stream.hpp>

#include "server/http_connection_base.h"

namespace kvasir::server {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

class PlainConnection final : public Connection {
 public:
  PlainConnection(GenericSocket socket, std::string remote, std::shared_ptr<IoThread> thread,
                  std::shared_ptr<ConnectionShared> shared)
      : Connection(std::move(remote), std::move(thread), std::move(shared)),
        socket_(std::move(socket)) {}

 private:
  std::shared_ptr<PlainConnection> Self() {
    return std::static_pointer_cast<PlainConnection>(shared_from_this());
  }
  void Handshake() override { OnHandshake({}); }
  void AsyncRead(asio::mutable_buffer buffer) override {
    socket_.async_read_some(buffer, [self = Self()](error_code ec, size_t size) {
      self->Guard([&] { self->OnRead(ec, size); });
    });
  }
  void AsyncWrite(asio::const_buffer buffer) override {
    socket_.async_write_some(buffer, [self = Self()](error_code ec, size_t size) {
      self->Guard([&] { self->OnWrite(ec, size); });
    });
  }
  void AsyncShutdown() override {
    error_code ec;
    socket_.shutdown(GenericSocket::shutdown_send, ec);
    OnShutdown(ec);
  }
  void CloseSocket() override {
    error_code ignored;
    socket_.close(ignored);
  }

  GenericSocket socket_;
};

class TlsConnection final : public Connection {
 public:
  TlsConnection(GenericSocket socket, std::string remote, std::shared_ptr<IoThread> thread,
                std::shared_ptr<ConnectionShared> shared,
                std::shared_ptr<asio::ssl::context> context)
      : Connection(std::move(remote), std::move(thread), std::move(shared)),
        context_(std::move(context)),
        stream_(std::move(socket), *context_) {}

 private:
  std::shared_ptr<TlsConnection> Self() {
    return std::static_pointer_cast<TlsConnection>(shared_from_this());
  }
  void Handshake() override {
    stream_.async_handshake(asio::ssl::stream_base::server, [self = Self()](error_code ec) {
      self->Guard([&] { self->OnHandshake(ec); });
    });
  }
  void AsyncRead(asio::mutable_buffer buffer) override {
    stream_.async_read_some(buffer, [self = Self()](error_code ec, size_t size) {
      self->Guard([&] { self->OnRead(ec, size); });
    });
  }
  void AsyncWrite(asio::const_buffer buffer) override {
    stream_.async_write_some(buffer, [self = Self()](error_code ec, size_t size) {
      self->Guard([&] { self->OnWrite(ec, size); });
    });
  }
  // Waits for the peer's close_notify, or the deadline of lingering. A read may be pending beside
  // it and swallow that notice; both end the connection.
  void AsyncShutdown() override {
    stream_.async_shutdown([self = Self()](error_code) { self->Cut(); });
  }
  void CloseSocket() override {
    error_code ignored;
    stream_.lowest_layer().close(ignored);
  }

  std::shared_ptr<asio::ssl::context> context_;
  asio::ssl::stream<GenericSocket> stream_;
};

}  // namespace

void StartConnection(GenericSocket socket, std::string remote, std::shared_ptr<IoThread> thread,
                     std::shared_ptr<ConnectionShared> shared,
                     std::shared_ptr<asio::ssl::context> tls) {
  std::shared_ptr<Connection> connection;
  if (tls) {
    connection = std::make_shared<TlsConnection>(
        std::move(socket), std::move(remote), std::move(thread), std::move(shared), std::move(tls));
  } else {
    connection = std::make_shared<PlainConnection>(std::move(socket), std::move(remote),
                                                   std::move(thread), std::move(shared));
  }
  connection->Start();
}

void CloseConnections(IoThread& thread) {
  const std::unordered_set<Connection*> all = thread.connections;
  for (Connection* connection : all) {
    connection->shared_from_this()->Cut();
  }
}

}  // namespace kvasir::server
