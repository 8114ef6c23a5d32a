#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace kvasir {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

spdlog::logger& TextLogger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("kvasir",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
    made->set_level(spdlog::level::debug);
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *logger;
}

spdlog::logger& JsonLogger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("access",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *logger;
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

bool LogEnabled(LogLevel level) { return level >= g_level.load(std::memory_order_relaxed); }

void LogLine(LogLevel level, std::string_view message) {
  const spdlog::string_view_t text(message.data(), message.size());
  switch (level) {
    case LogLevel::kDebug:
      TextLogger().debug(text);
      break;
    case LogLevel::kInfo:
      TextLogger().info(text);
      break;
    case LogLevel::kWarning:
      TextLogger().warn(text);
      break;
    case LogLevel::kError:
      TextLogger().error(text);
      break;
    case LogLevel::kOff:
      break;
  }
}

void LogJson(std::string_view json) {
  JsonLogger().info(spdlog::string_view_t(json.data(), json.size()));
}

}  // namespace kvasir
