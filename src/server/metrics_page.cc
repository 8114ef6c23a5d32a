// GET /metrics: Prometheus text, written from lock-free counters. vLLM's names with vLLM's
// meanings, and kvasir:* beside them; docs/metrics.md lists all.
#include "server/metrics_page.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/cpu.h"
#include "server/errors.h"
#include "server/exchange.h"
#include "server/http_message.h"
#include "server/routes.h"
#include "text/unicode_utf8.h"

namespace kvasir::server {
namespace {

std::string EscapeLabel(std::string_view label) {
  std::string text;
  text::AppendLossy(label, text);
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

std::string PlainName(std::string_view name) {
  constexpr std::string_view kOther = "vllm:iteration_tokens_total";  // is no counter
  std::string_view bare = name == kOther ? name.substr(0, name.rfind('_')) : name;
  for (const std::string_view prefix : {"vllm:", "kvasir:"}) {
    if (bare.starts_with(prefix)) {
      return fmt::format("kvasir_{}", bare.substr(prefix.size()));
    }
  }
  return std::string(bare);
}

class Page {
 public:
  explicit Page(MetricNames names) : names_(names) {}

  /// `common`: labels that every series of the next families has, written out.
  void SetCommon(std::string common) { common_ = std::move(common); }

  void Family(std::string_view name, std::string_view type, std::string_view help) {
    const std::string shown = Shown(name);
    fmt::format_to(std::back_inserter(out_), "# HELP {} {}\n# TYPE {} {}\n", shown, help, shown,
                   type);
  }
  void Sample(std::string_view name, double value, Labels labels = {}) {
    out_ += Shown(name);
    AppendLabels(labels);
    out_ += ' ';
    AppendNumber(value);
    out_ += '\n';
  }
  void Gauge(std::string_view name, std::string_view help, double value) {
    Family(name, "gauge", help);
    Sample(name, value);
  }
  void Counter(std::string_view name, std::string_view help, double value) {
    Family(name, "counter", help);
    Sample(name, value);
  }
  void Histogram(std::string_view name, std::string_view help, const kvasir::Histogram& histogram) {
    Family(name, "histogram", help);
    HistogramSamples(name, histogram, {});
  }
  void HistogramSamples(std::string_view family, const kvasir::Histogram& histogram,
                        Labels labels) {
    const std::string name = Shown(family);
    int64_t below = 0;
    const std::string bucket = fmt::format("{}_bucket", name);
    const size_t bounds_count = histogram.bounds().size();
    for (size_t i = 0; i <= bounds_count; ++i) {
      below += histogram.count(i);
      out_ += bucket;
      const std::string bound =
          i < bounds_count ? fmt::format("{}", histogram.bounds()[i]) : std::string("+Inf");
      AppendLabels(labels, bound);
      out_ += ' ';
      AppendNumber(static_cast<double>(below));
      out_ += '\n';
    }
    // From the buckets, so that a reader between two updates sees no contradiction.
    Sample(fmt::format("{}_sum", name), histogram.sum(), labels);
    Sample(fmt::format("{}_count", name), static_cast<double>(below), labels);
  }
  [[nodiscard]] std::string Take() { return std::move(out_); }

 private:
  [[nodiscard]] std::string Shown(std::string_view name) const {
    return names_ == MetricNames::kPlain ? PlainName(name) : std::string(name);
  }
  void AppendLabels(Labels labels, std::string_view bound = {}) {
    if (common_.empty() && labels.size() == 0 && bound.empty()) return;
    out_ += '{';
    std::string_view separator;
    if (!common_.empty()) {
      out_ += common_;
      separator = ",";
    }
    for (const auto& [name, value] : labels) {
      fmt::format_to(std::back_inserter(out_), "{}{}=\"{}\"", separator, name, EscapeLabel(value));
      separator = ",";
    }
    if (!bound.empty()) {
      fmt::format_to(std::back_inserter(out_), "{}le=\"{}\"", separator, bound);
    }
    out_ += '}';
  }
  void AppendNumber(double value) {
    if (std::abs(value) < 1e15 && std::trunc(value) == value) {
      fmt::format_to(std::back_inserter(out_), "{:.1f}", value);
    } else {
      fmt::format_to(std::back_inserter(out_), "{}", value);
    }
  }

  MetricNames names_;
  std::string common_;
  std::string out_;
};

double Value(const Counter& counter) { return static_cast<double>(counter.value()); }

void AppendEngineGauges(const Context& context, Page& page) {
  const engine::EngineMetrics& m = context.engine.metrics();
  const engine::EngineConfig& config = context.engine.config();
  page.Gauge("vllm:num_requests_running", "Sequences that run now.", m.requests_running.value());
  page.Gauge("vllm:num_requests_waiting", "Requests in the queue.", m.requests_waiting.value());
  page.Family("vllm:num_requests_waiting_by_reason", "gauge",
              "Requests in the queue, by what they wait for.");
  page.Sample("vllm:num_requests_waiting_by_reason", m.requests_waiting.value(),
              {{"reason", "capacity"}});
  page.Sample("vllm:num_requests_waiting_by_reason", 0, {{"reason", "deferred"}});
  page.Gauge("vllm:kv_cache_usage_perc", "KV blocks in use, 0 to 1.", m.kv_cache_usage.value());
  page.Family("vllm:engine_sleep_state", "gauge", "The engine is awake as long as it lives.");
  page.Sample("vllm:engine_sleep_state", 1, {{"sleep_state", "awake"}});
  page.Sample("vllm:engine_sleep_state", 0, {{"sleep_state", "weights_offloaded"}});
  page.Sample("vllm:engine_sleep_state", 0, {{"sleep_state", "discard_all"}});
  page.Family("vllm:cache_config_info", "gauge", "How the KV cache is set up.");
  page.Sample("vllm:cache_config_info", 1,
              {{"block_size", std::to_string(config.cache.block_tokens)},
               {"num_gpu_blocks", std::to_string(config.cache.blocks_count)},
               {"cache_dtype", "auto"},
               {"enable_prefix_caching", config.enable_prefix_caching ? "True" : "False"}});
}

void AppendEngineCounters(const Context& context, Page& page) {
  const engine::EngineMetrics& m = context.engine.metrics();
  page.Counter("vllm:prompt_tokens_total", "Prompt tokens processed.", Value(m.prompt_tokens));
  page.Counter("vllm:generation_tokens_total", "Tokens generated.", Value(m.generation_tokens));
  page.Family("vllm:prompt_tokens_by_source_total", "counter",
              "Prompt tokens, by where their KV came from.");
  // The cached counter grows after the other one: read it first.
  const double cached = Value(m.prompt_tokens_cached);
  page.Sample("vllm:prompt_tokens_by_source_total", std::max(0.0, Value(m.prompt_tokens) - cached),
              {{"source", "local_compute"}});
  page.Sample("vllm:prompt_tokens_by_source_total", cached, {{"source", "local_cache_hit"}});
  page.Counter("vllm:prompt_tokens_cached_total", "Prompt tokens whose KV was found in the cache.",
               cached);
  page.Counter("vllm:num_preemptions_total", "Sequences sent back to the queue for want of blocks.",
               Value(m.preemptions));
  page.Counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
               Value(m.prefix_cache_queries));
  page.Counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
               Value(m.prefix_cache_hits));
  page.Family("vllm:request_success_total", "counter", "Choices that ended, by reason.");
  page.Sample("vllm:request_success_total", Value(m.finished_stop), {{"finished_reason", "stop"}});
  page.Sample("vllm:request_success_total", Value(m.finished_length),
              {{"finished_reason", "length"}});
  page.Sample("vllm:request_success_total", Value(m.finished_abort),
              {{"finished_reason", "abort"}});
  page.Sample("vllm:request_success_total", Value(m.finished_error),
              {{"finished_reason", "error"}});
  page.Sample("vllm:request_success_total", 0, {{"finished_reason", "repetition"}});
}

void AppendEngineHistograms(const Context& context, Page& page) {
  const engine::EngineMetrics& m = context.engine.metrics();
  page.Histogram("vllm:time_to_first_token_seconds", "Arrival to first token.",
                 m.time_to_first_token_seconds);
  page.Histogram("vllm:inter_token_latency_seconds", "Gap between two tokens of a choice.",
                 m.inter_token_latency_seconds);
  page.Histogram("vllm:request_time_per_output_token_seconds",
                 "Mean gap between a request's tokens.", m.request_time_per_output_token_seconds);
  page.Histogram("vllm:e2e_request_latency_seconds", "Arrival to last token.",
                 m.e2e_request_latency_seconds);
  page.Histogram("vllm:request_queue_time_seconds", "Arrival to first step.",
                 m.request_queue_time_seconds);
  page.Histogram("vllm:request_inference_time_seconds", "First step to last token.",
                 m.request_inference_time_seconds);
  page.Histogram("vllm:request_prefill_time_seconds", "First step to first token.",
                 m.request_prefill_time_seconds);
  page.Histogram("vllm:request_decode_time_seconds", "First token to last token.",
                 m.request_decode_time_seconds);
  page.Histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.",
                 m.request_prompt_tokens);
  page.Histogram("vllm:request_generation_tokens", "Tokens generated for a request.",
                 m.request_generation_tokens);
  page.Histogram("vllm:request_max_num_generation_tokens",
                 "The most tokens that a choice of a request generated.",
                 m.request_max_num_generation_tokens);
  page.Histogram("vllm:request_params_max_tokens", "max_tokens of a request.",
                 m.request_params_max_tokens);
  page.Histogram("vllm:request_params_n", "n of a request.", m.request_params_n);
  page.Histogram("vllm:request_prefill_kv_computed_tokens",
                 "Prompt tokens of a request whose KV was computed, not found.",
                 m.request_prefill_kv_computed_tokens);
  page.Histogram("vllm:iteration_tokens_total", "Tokens of a step.", m.iteration_tokens);
}

void AppendOurs(const Context& context, Page& page) {
  const engine::EngineMetrics& m = context.engine.metrics();
  const ServerMetrics& s = context.metrics;
  page.Gauge("kvasir:queue_tokens", "Prompt tokens in the queue.",
             m.requests_waiting_tokens.value());
  page.Gauge("kvasir:queue_age_seconds_max", "How long the oldest request in the queue has waited.",
             m.queue_age_seconds_max.value());
  page.Family("kvasir:kv_blocks", "gauge",
              "KV blocks: used, cached (free, but still hold a prefix), free.");
  page.Sample("kvasir:kv_blocks", m.kv_blocks_used.value(), {{"state", "used"}});
  page.Sample("kvasir:kv_blocks", m.kv_blocks_cached.value(), {{"state", "cached"}});
  page.Sample("kvasir:kv_blocks", m.kv_blocks_free.value(), {{"state", "free"}});
  page.Family("kvasir:requests_rejected_total", "counter", "Requests that were not let in.");
  page.Sample("kvasir:requests_rejected_total", Value(m.rejected_queue_full),
              {{"reason", "queue_full"}});
  page.Counter("kvasir:steps_total", "Steps of the engine.", Value(m.steps));
  page.Family("kvasir:step_seconds", "histogram",
              "Time of a step in the runner, by what it computed.");
  page.HistogramSamples("kvasir:step_seconds", m.step_seconds_prefill, {{"kind", "prefill"}});
  page.HistogramSamples("kvasir:step_seconds", m.step_seconds_decode, {{"kind", "decode"}});
  page.HistogramSamples("kvasir:step_seconds", m.step_seconds_mixed, {{"kind", "mixed"}});
  page.Histogram("kvasir:step_sequences", "Sequences of a step.", m.step_sequences);
  page.Histogram("kvasir:step_overhead_seconds", "Time of a step outside of the runner.",
                 m.step_overhead_seconds);
  page.Gauge("kvasir:engine_heartbeat_age_seconds", "Since the engine last ended a step or slept.",
             ToSeconds(context.engine.SinceHeartbeatNs()));
  page.Gauge("kvasir:draining", "1 while no new work is taken.",
             context.draining.load(std::memory_order_relaxed) ? 1 : 0);
  page.Gauge("kvasir:http_requests_in_flight",
             "Requests of generating endpoints that are not completely answered.",
             s.requests_in_flight.value());
  page.Counter("kvasir:client_disconnects_total", "Clients that left before their answer's end.",
               Value(s.client_disconnects));
  page.Counter("kvasir:http_protocol_errors_total", "What came and was no acceptable HTTP request.",
               Value(s.protocol_errors));
  page.Counter("kvasir:streams_total", "Event streams begun.", Value(s.streams));
  page.Counter("kvasir:streams_failed_total", "Event streams ended by an error event.",
               Value(s.failed_streams));
  page.Counter("kvasir:stop_string_finishes_total", "Choices ended by a stop string.",
               Value(s.stop_string_finishes));
  page.Counter("kvasir:token_events_total", "Engine events turned into text and JSON.",
               Value(s.token_events));
  page.Counter("kvasir:token_event_seconds_total",
               "Time spent on them; divided by their number it is the server's cost of a token.",
               Value(s.token_overhead_ns) * 1e-9);
}

void AppendHttp(const Context& context, Page& page) {
  const ServerMetrics& s = context.metrics;
  const auto routes = Routes();
  const auto name = [&](size_t i) {
    return i < routes.size() ? std::string(routes[i].path) + (routes[i].prefix ? "{id}" : "")
                             : std::string("none");
  };
  const auto each_row = [&](auto&& body) {
    for (size_t i = 0; i < routes.size(); ++i) body(i, name(i));
    body(kRoutesMax, name(kRoutesMax));
  };
  page.Family("http_requests_total", "counter", "HTTP requests answered.");
  each_row([&](size_t row, const std::string& handler) {
    for (size_t method = 0; method < kMethods.size(); ++method) {
      for (size_t digit = 1; digit <= 5; ++digit) {
        const double value = Value(s.http_requests[row][method][digit]);
        if (value == 0) continue;
        page.Sample("http_requests_total", value,
                    {{"handler", handler},
                     {"method", kMethods[method]},
                     {"status", fmt::format("{}xx", digit)}});
      }
    }
  });
  page.Family("http_request_duration_seconds", "histogram",
              "Request complete to answer sent, by endpoint.");
  each_row([&](size_t row, const std::string& handler) {
    if (Value(s.http_ended[row]) == 0) return;
    page.HistogramSamples("http_request_duration_seconds", s.http_request_seconds[row],
                          {{"handler", handler}});
  });
  page.Histogram("http_request_duration_highr_seconds", "The same over all endpoints.",
                 s.http_request_highr_seconds);
  for (const auto& [family, help, sums] :
       {std::tuple("http_request_size_bytes", "Bodies of requests.", &s.http_request_bytes),
        std::tuple("http_response_size_bytes", "Bodies of answers.", &s.http_response_bytes)}) {
    page.Family(family, "summary", help);
    each_row([&, family = family, sums = sums](size_t row, const std::string& handler) {
      if (Value(s.http_ended[row]) == 0) return;
      page.Sample(fmt::format("{}_sum", family), Value((*sums)[row]), {{"handler", handler}});
      page.Sample(fmt::format("{}_count", family), Value(s.http_ended[row]),
                  {{"handler", handler}});
    });
  }
}

int64_t OpenDescriptors() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int64_t count = 0;
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] != '.') ++count;
  }
  ::closedir(folder);
  return count - 1;  // the folder's own
}

void AppendProcess(const Context& context, Page& page) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  page.Gauge("process_resident_memory_bytes", "Resident memory.",
             static_cast<double>(ResidentMemoryBytes()));
  page.Counter("process_cpu_seconds_total", "CPU time, user and system.",
               seconds(usage.ru_utime) + seconds(usage.ru_stime));
  page.Gauge("process_open_fds", "Open file descriptors.", static_cast<double>(OpenDescriptors()));
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  page.Gauge("process_max_fds", "Limit of open file descriptors.",
             static_cast<double>(limit.rlim_cur));
  page.Gauge("process_start_time_seconds", "Unix time of the server's start.",
             static_cast<double>(context.created_s));
}

}  // namespace

std::string MetricsPage(const Context& context, MetricNames names) {
  Page page(names);
  page.SetCommon(fmt::format("engine=\"0\",model_name=\"{}\"", EscapeLabel(context.model_name())));
  AppendEngineGauges(context, page);
  AppendEngineCounters(context, page);
  AppendEngineHistograms(context, page);
  AppendOurs(context, page);
  page.SetCommon({});
  AppendHttp(context, page);
  AppendProcess(context, page);
  return page.Take();
}

void HandleMetrics(Context& context, const std::shared_ptr<Exchange>& exchange) {
  const std::optional<std::string> names = QueryValue(exchange->request.query, "names");
  const bool plain = names == "plain";
  if (names && !plain && names != "vllm") {
    return exchange->Fail(BadRequest(
        fmt::format("names: expected vllm or plain, got '{}'.", Shortened(*names, 40)), "names"));
  }
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = MetricsPage(context, plain ? MetricNames::kPlain : MetricNames::kVllm);
  exchange->Respond(std::move(response));
}

}  // namespace kvasir::server
