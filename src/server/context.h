// What every handler gets: the configuration, the model, the engine, the counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "server/auth.h"
#include "server/server.h"
#include "server/server_metrics.h"
#include "server/workers.h"

namespace kvasir::server {

struct Context {
  Context(ServerConfig server_config, ModelContext model_context, engine::Engine& the_engine);

  const ServerConfig config;
  const ModelContext model;
  engine::Engine& engine;
  const Auth auth;
  const int64_t created_s;          ///< unix time of the start
  const std::string instance_salt;  ///< random; part of the salts that are made from API keys
  ServerMetrics metrics;
  SteadyClock clock;
  std::atomic<bool> draining{false};
  std::atomic<int64_t> in_flight{0};        ///< requests of generating routes
  std::atomic<int64_t> preparing_bytes{0};  ///< bodies that workers hold or will take
  Workers workers;
  Workers large_workers{1};  ///< for large bodies, so that those of nobody else wait behind them

  [[nodiscard]] const std::string& model_name() const { return config.served_model_names.front(); }
  [[nodiscard]] bool ServesModel(std::string_view name) const;
  [[nodiscard]] int64_t max_model_len() const { return engine.config().max_model_len; }
};

}  // namespace kvasir::server
