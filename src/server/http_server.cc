#include "server/http_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <optional>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "server/http_connection.h"

namespace kvasir::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;
using boost::system::error_code;

namespace {

constexpr int kBacklog = 4096;
// After accept() has failed for want of descriptors or memory.
constexpr std::chrono::milliseconds kAcceptPause(100);

Result<std::shared_ptr<asio::ssl::context>> MakeTlsContext(const std::string& certificate_file,
                                                           const std::string& key_file) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX* native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Clients that offer HTTP/2 beside it settle on HTTP/1.1.
  SSL_CTX_set_alpn_select_cb(
      native,
      [](SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
         unsigned int in_size, void*) -> int {
        static const unsigned char kHttp11[] = "\x08http/1.1";
        unsigned char* chosen = nullptr;
        if (SSL_select_next_proto(&chosen, out_size, kHttp11, sizeof(kHttp11) - 1, in, in_size) !=
            OPENSSL_NPN_NEGOTIATED) {
          return SSL_TLSEXT_ERR_NOACK;
        }
        *out = chosen;
        return SSL_TLSEXT_ERR_OK;
      },
      nullptr);
  error_code ec;
  context->use_certificate_chain_file(certificate_file, ec);
  if (ec) {
    return MakeError(ErrorCode::kInvalidArgument, "{}: no PEM certificate chain: {}",
                     certificate_file, ec.message());
  }
  context->use_private_key_file(key_file, asio::ssl::context::pem, ec);
  if (ec) {
    return MakeError(ErrorCode::kInvalidArgument, "{}: no PEM private key for {}: {}", key_file,
                     certificate_file, ec.message());
  }
  return context;
}

std::string DescribeRemote(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", address, endpoint.port())
                                    : fmt::format("{}:{}", address, endpoint.port());
}

/// What a connection's handlers throw ends there (Connection::Guard); this is for what lies between
/// them, as the handing over of a new socket.
void RunLoop(IoThread& loop) {
  while (true) {
    try {
      loop.context.run();
      return;
    } catch (const std::exception& exception) {
      LogError("an event was lost: {}", exception.what());
    }
  }
}

}  // namespace

struct HttpServer::State {
  HttpServerOptions options;
  std::shared_ptr<ConnectionShared> shared = std::make_shared<ConnectionShared>();
  std::vector<std::shared_ptr<IoThread>> loops;
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards;
  std::vector<std::thread> threads;
  std::optional<tcp::acceptor> tcp_acceptor;
  std::optional<stream_protocol::acceptor> uds_acceptor;
  std::optional<asio::steady_timer> pause;
  std::shared_ptr<asio::ssl::context> tls;
  size_t next_loop = 0;
  uint16_t port = 0;
  ino_t uds_inode = 0;
  bool stopped = false;

  Status BindTcp() {
    asio::io_context& context = loops[0]->context;
    error_code ec;
    tcp::resolver resolver(context);
    const auto found =
        resolver.resolve(options.host, std::to_string(options.port),
                         tcp::resolver::passive | tcp::resolver::numeric_service, ec);
    if (ec || found.empty()) {
      return MakeError(ErrorCode::kInvalidArgument, "--host {}: not an address of this machine: {}",
                       options.host, ec.message());
    }
    tcp::endpoint endpoint = found.begin()->endpoint();
    for (const auto& entry : found) {  // "localhost" is both; clients try IPv4 everywhere
      if (entry.endpoint().address().is_v4()) {
        endpoint = entry.endpoint();
        break;
      }
    }
    tcp::acceptor acceptor(context);
    acceptor.open(endpoint.protocol(), ec);
    if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor.bind(endpoint, ec);
    if (!ec) acceptor.listen(kBacklog, ec);
    if (ec) {
      return MakeError(ErrorCode::kIo, "cannot listen on {}: {}", DescribeRemote(endpoint),
                       ec.message());
    }
    port = acceptor.local_endpoint().port();
    tcp_acceptor.emplace(std::move(acceptor));
    return Status::Ok();
  }

  // A socket file that nobody answers on is what a killed server left behind.
  Status RemoveStaleSocket() {
    struct stat found {};
    if (::lstat(options.uds.c_str(), &found) != 0) return Status::Ok();
    if (!S_ISSOCK(found.st_mode)) {
      return MakeError(ErrorCode::kInvalidArgument, "--uds {}: exists and is no socket",
                       options.uds);
    }
    stream_protocol::socket probe(loops[0]->context);
    error_code ec;
    probe.connect(stream_protocol::endpoint(options.uds), ec);
    if (!ec) {
      return MakeError(ErrorCode::kIo, "--uds {}: another server answers there", options.uds);
    }
    if (::unlink(options.uds.c_str()) != 0) {
      return MakeError(ErrorCode::kIo, "--uds {}: cannot remove the stale socket: {}", options.uds,
                       std::generic_category().message(errno));
    }
    return Status::Ok();
  }

  Status BindUds() {
    if (options.uds.size() >= sizeof(sockaddr_un{}.sun_path)) {
      return MakeError(ErrorCode::kInvalidArgument, "--uds: a path of at most {} bytes, got {}",
                       sizeof(sockaddr_un{}.sun_path) - 1, options.uds.size());
    }
    KVASIR_RETURN_IF_ERROR(RemoveStaleSocket());
    error_code ec;
    stream_protocol::acceptor acceptor(loops[0]->context);
    const stream_protocol::endpoint endpoint(options.uds);
    acceptor.open(endpoint.protocol(), ec);
    if (!ec) acceptor.bind(endpoint, ec);
    if (!ec) acceptor.listen(kBacklog, ec);
    if (ec) {
      return MakeError(ErrorCode::kIo, "cannot listen on --uds {}: {}", options.uds, ec.message());
    }
    struct stat made {};
    if (::lstat(options.uds.c_str(), &made) == 0) uds_inode = made.st_ino;
    uds_acceptor.emplace(std::move(acceptor));
    return Status::Ok();
  }

  // On loop 0.
  template <typename Acceptor, typename Describe>
  void Accept(Acceptor& acceptor, Describe describe) {
    try {
      const std::shared_ptr<IoThread> loop = loops[next_loop];
      next_loop = (next_loop + 1) % loops.size();
      auto socket = std::make_shared<typename Acceptor::protocol_type::socket>(loop->context);
      acceptor.async_accept(*socket, [this, &acceptor, describe, loop, socket](error_code ec) {
        if (ec == asio::error::operation_aborted || !acceptor.is_open()) return;
        if (ec && ec != asio::error::connection_aborted) {
          return AcceptLater(acceptor, describe, ec.message());
        }
        if (!ec) {
          try {
            Take(std::move(*socket), loop, describe);
          } catch (const std::exception& exception) {
            LogError("a new connection is closed: {}", exception.what());
          }
        }
        Accept(acceptor, describe);
      });
    } catch (const std::exception& exception) {
      AcceptLater(acceptor, describe, exception.what());
    }
  }

  template <typename Acceptor, typename Describe>
  void AcceptLater(Acceptor& acceptor, Describe describe, const std::string& why) {
    LogWarning("accept: {}; trying again in {} ms", why, kAcceptPause.count());
    pause->expires_after(kAcceptPause);
    pause->async_wait([this, &acceptor, describe](error_code waited) {
      if (!waited) Accept(acceptor, describe);
    });
  }

  template <typename Socket, typename Describe>
  void Take(Socket socket, const std::shared_ptr<IoThread>& loop, Describe describe) {
    if (shared->connections_count.load(std::memory_order_relaxed) >=
        options.limits.connections_max) {
      static constexpr std::string_view kFull =
          "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
          "Connection: close\r\n\r\n";
      error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(kFull), ignored);
      return;
    }
    std::string remote = describe(socket);
    auto shared_socket = std::make_shared<GenericSocket>(std::move(socket));
    asio::post(loop->context, [shared_socket, remote = std::move(remote), loop, shared = shared,
                               tls = tls]() mutable {
      StartConnection(std::move(*shared_socket), std::move(remote), loop, shared, tls);
    });
  }
};

HttpServer::HttpServer(HttpServerOptions options, HttpHandler& handler)
    : state_(std::make_unique<State>()) {
  KVASIR_CHECK(options.threads_count >= 1);
  state_->shared->handler = &handler;
  state_->shared->limits = options.limits;
  for (int i = 0; i < options.threads_count; ++i) {
    state_->loops.push_back(std::make_shared<IoThread>());
  }
  state_->pause.emplace(state_->loops[0]->context);
  state_->options = std::move(options);
}

HttpServer::~HttpServer() { Stop(); }

Status HttpServer::Bind() {
  State& state = *state_;
  const HttpServerOptions& options = state.options;
  if (options.tls_certificate_file.empty() != options.tls_key_file.empty()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--ssl-certfile and --ssl-keyfile must be given together");
  }
  if (!options.tls_certificate_file.empty()) {
    KVASIR_ASSIGN_OR_RETURN(state.tls,
                            MakeTlsContext(options.tls_certificate_file, options.tls_key_file));
  }
  return options.uds.empty() ? state.BindTcp() : state.BindUds();
}

Status HttpServer::Start() {
  State& state = *state_;
  KVASIR_CHECK(state.threads.empty());
  KVASIR_CHECK(state.tcp_acceptor || state.uds_acceptor);
  State* raw = &state;
  asio::post(state.loops[0]->context, [raw] {
    if (raw->tcp_acceptor) {
      raw->Accept(*raw->tcp_acceptor, [](tcp::socket& socket) {
        error_code ec;
        socket.set_option(tcp::no_delay(true), ec);
        const tcp::endpoint remote = socket.remote_endpoint(ec);
        return ec ? std::string("unknown") : DescribeRemote(remote);
      });
    }
    if (raw->uds_acceptor) {
      raw->Accept(*raw->uds_acceptor, [](stream_protocol::socket&) { return std::string("unix"); });
    }
  });
  for (const std::shared_ptr<IoThread>& loop : state.loops) {
    state.guards.push_back(asio::make_work_guard(loop->context));
    state.threads.emplace_back([loop] { RunLoop(*loop); });
  }
  return Status::Ok();
}

uint16_t HttpServer::port() const { return state_->port; }

int64_t HttpServer::connections_count() const {
  return state_->shared->connections_count.load(std::memory_order_relaxed);
}

void HttpServer::Stop() {
  State& state = *state_;
  if (state.stopped) return;
  state.stopped = true;
  const auto close_acceptors = [&state] {
    error_code ignored;
    state.pause->cancel();
    if (state.tcp_acceptor) state.tcp_acceptor->close(ignored);
    if (state.uds_acceptor) state.uds_acceptor->close(ignored);
  };
  if (state.threads.empty()) {
    close_acceptors();
  } else {
    asio::post(state.loops[0]->context, close_acceptors);
    for (const std::shared_ptr<IoThread>& loop : state.loops) {
      asio::post(loop->context, [loop] { CloseConnections(*loop); });
    }
    // A socket accepted just before may still be on its way to its loop: loops end when they are
    // empty, after such a connection was started and then cut here.
    for (size_t i = 0; i < state.loops.size(); ++i) {
      asio::post(state.loops[0]->context, [&state, i] {
        asio::post(state.loops[i]->context, [loop = state.loops[i]] { CloseConnections(*loop); });
      });
    }
    state.guards.clear();
    for (std::thread& thread : state.threads) thread.join();
    state.threads.clear();
    // What one loop posted to another that had ended already: its handlers hold the loop alive.
    size_t ran = 1;
    while (ran > 0) {
      ran = 0;
      for (const std::shared_ptr<IoThread>& loop : state.loops) {
        loop->context.restart();
        ran += loop->context.poll();
      }
    }
  }
  if (!state.options.uds.empty() && state.uds_inode != 0) {
    struct stat now {};
    if (::lstat(state.options.uds.c_str(), &now) == 0 && now.st_ino == state.uds_inode) {
      ::unlink(state.options.uds.c_str());
    }
  }
}

}  // namespace kvasir::server
