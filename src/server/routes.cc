#include "server/routes.h"

#include <array>

namespace kvasir::server {
namespace {

constexpr std::array kRoutes = {
    Route{.path = "/v1/chat/completions",
          .post = true,
          .generates = true,
          .worker = true,
          .handle = HandleChatCompletions},
    Route{.path = "/v1/completions",
          .post = true,
          .generates = true,
          .worker = true,
          .handle = HandleCompletions},
    Route{.path = "/v1/models", .get = true, .handle = HandleModels},
    Route{.path = "/v1/models/", .prefix = true, .get = true, .handle = HandleModel},
    Route{.path = "/tokenize", .post = true, .worker = true, .handle = HandleTokenize},
    Route{.path = "/detokenize", .post = true, .worker = true, .handle = HandleDetokenize},
    Route{.path = "/tokenizer_info", .get = true, .handle = HandleTokenizerInfo},
    Route{.path = "/health", .get = true, .open = true, .handle = HandleHealth},
    Route{.path = "/ready", .get = true, .open = true, .handle = HandleReady},
    Route{.path = "/ping", .get = true, .post = true, .handle = HandleHealth},
    Route{.path = "/version", .get = true, .handle = HandleVersion},
    Route{.path = "/metrics", .get = true, .handle = HandleMetrics},
    Route{.path = "/load", .get = true, .handle = HandleLoad},
    Route{.path = "/", .get = true, .handle = HandleIndex},
};

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

const Route* FindRoute(std::string_view path) {
  if (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  for (const Route& route : kRoutes) {
    if (route.prefix ? path.size() > route.path.size() && path.starts_with(route.path)
                     : path == route.path) {
      return &route;
    }
  }
  return nullptr;
}

size_t RouteIndex(const Route* route) {
  return route == nullptr ? kRoutes.size() : static_cast<size_t>(route - kRoutes.data());
}

std::string AllowedMethods(const Route& route) {
  std::string methods;
  if (route.get) methods += "GET, HEAD, ";
  if (route.post) methods += "POST, ";
  return methods + "OPTIONS";
}

}  // namespace kvasir::server
