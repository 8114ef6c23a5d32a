// Listens on TCP (plain or TLS) and on a unix socket, with a few threads and one event loop each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http.h"

namespace kvasir::server {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;              ///< 0: any free one
  std::string uds;                   ///< path of a unix socket; where given, TCP is not used
  std::string tls_certificate_file;  ///< PEM, the chain; empty: no TLS
  std::string tls_key_file;          ///< PEM
  int threads_count = 2;
  HttpLimits limits;
};

class HttpServer {
 public:
  /// `handler` must outlive this.
  HttpServer(HttpServerOptions options, HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Takes the address without answering yet: fails in milliseconds where it is taken.
  Status Bind();
  /// Begins to answer. After Bind.
  Status Start();
  /// The TCP port in use; 0 for a unix socket.
  [[nodiscard]] uint16_t port() const;
  /// Cuts every connection, removes the socket file, joins the threads. Once.
  void Stop();

  [[nodiscard]] int64_t connections_count() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvasir::server
