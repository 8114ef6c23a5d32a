// Health, readiness, version, load: answered on the event loop, whatever the engine does.
#include <fmt/format.h>

#include "server/exchange.h"
#include "server/routes.h"

namespace kvasir::server {
namespace {

// No step has ended for so long although there is work.
bool Stalled(const Context& context, TimeNs limit_ns) {
  return limit_ns > 0 && context.engine.SinceHeartbeatNs() > limit_ns;
}

ApiError NotAlive(std::string message) {
  ApiError error;
  error.status = 503;
  error.type = "ServiceUnavailableError";
  error.message = std::move(message);
  error.retry_after_s = 1;
  return error;
}

HttpResponse Empty() {
  HttpResponse response;
  response.content_type.clear();
  return response;
}

}  // namespace

void HandleHealth(Context& context, const std::shared_ptr<Exchange>& exchange) {
  if (Stalled(context, context.config.health_stall_ns)) {
    return exchange->Fail(NotAlive("The engine has finished no step for too long."));
  }
  exchange->Respond(Empty());
}

void HandleReady(Context& context, const std::shared_ptr<Exchange>& exchange) {
  if (context.draining.load(std::memory_order_relaxed) || !context.engine.Accepting()) {
    return exchange->Fail(Draining());
  }
  if (Stalled(context, context.config.ready_stall_ns)) {
    return exchange->Fail(NotAlive("The engine has finished no step for too long."));
  }
  exchange->Respond(Empty());
}

void HandleVersion(Context&, const std::shared_ptr<Exchange>& exchange) {
  exchange->RespondJson("{\"version\":\"" KVASIR_VERSION "\"}");
}

void HandleLoad(Context& context, const std::shared_ptr<Exchange>& exchange) {
  exchange->RespondJson(
      fmt::format("{{\"server_load\":{}}}", context.in_flight.load(std::memory_order_relaxed)));
}

}  // namespace kvasir::server
