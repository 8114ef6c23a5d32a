// The endpoints, as a table: which paths and methods there are, and who answers them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kvasir::server {

class Exchange;
struct Context;

struct Route {
  std::string_view path;
  /// The path is a prefix and more follows ("/v1/models/").
  bool prefix = false;
  bool get = false;  ///< HEAD too
  bool post = false;
  bool open = false;  ///< without an API key
  /// Makes tokens: refused while draining, counted as load.
  bool generates = false;
  /// Reads a body and takes its time: runs on a worker, else on the event loop.
  bool worker = false;
  void (*handle)(Context& context, const std::shared_ptr<Exchange>& exchange) = nullptr;
};

[[nodiscard]] std::span<const Route> Routes();
/// One slash at the end is no difference. Null: no such path.
[[nodiscard]] const Route* FindRoute(std::string_view path);
/// Its place in Routes(); Routes().size() for null.
[[nodiscard]] size_t RouteIndex(const Route* route);
/// "GET, HEAD, OPTIONS".
[[nodiscard]] std::string AllowedMethods(const Route& route);

// One file an API surface.
void HandleChatCompletions(Context& context, const std::shared_ptr<Exchange>& exchange);
void HandleCompletions(Context& context, const std::shared_ptr<Exchange>& exchange);
void HandleModels(Context& context, const std::shared_ptr<Exchange>& exchange);
void HandleModel(Context& context, const std::shared_ptr<Exchange>& exchange);
void HandleTokenize(Context& context, const std::shared_ptr<Exchange>& exchange);
void HandleDetokenize(Context& context, const std::shared_ptr<Exchange>& exchange);
void HandleTokenizerInfo(Context& context, const std::shared_ptr<Exchange>& exchange);
void HandleHealth(Context& context, const std::shared_ptr<Exchange>& exchange);
void HandleReady(Context& context, const std::shared_ptr<Exchange>& exchange);
void HandleVersion(Context& context, const std::shared_ptr<Exchange>& exchange);
void HandleLoad(Context& context, const std::shared_ptr<Exchange>& exchange);
void HandleMetrics(Context& context, const std::shared_ptr<Exchange>& exchange);
void HandleIndex(Context& context, const std::shared_ptr<Exchange>& exchange);

}  // namespace kvasir::server
