// One client's connection: reads requests one after the other, keeps a read pending while one is
// answered (so that a client who leaves is noticed), and bounds what it buffers either way.
#pragma once

#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>
#include <unordered_set>

#include "server/http.h"

namespace kvasir::server {

class Connection;

/// An event loop, and the connections that live on it.
struct IoThread {
  boost::asio::io_context context{1};
  std::unordered_set<Connection*> connections;  ///< loop thread only
};

/// What all connections of a server share.
struct ConnectionShared {
  HttpHandler* handler = nullptr;
  HttpLimits limits;
  std::atomic<int64_t> connections_count{0};
  std::atomic<uint64_t> bodies_bytes{0};
};

using GenericSocket = boost::asio::generic::stream_protocol::socket;

/// Starts serving `socket` on `thread`'s loop, on which this must be called. `tls` may be null.
void StartConnection(GenericSocket socket, std::string remote, std::shared_ptr<IoThread> thread,
                     std::shared_ptr<ConnectionShared> shared,
                     std::shared_ptr<boost::asio::ssl::context> tls);

/// Cuts every connection of the loop, on which this must be called.
void CloseConnections(IoThread& thread);

}  // namespace kvasir::server
