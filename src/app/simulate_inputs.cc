// From flags to what is simulated.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "app/model_path.h"
#include "app/read_file.h"
#include "app/simulate_flags.h"
#include "app/units.h"
#include "base/strings.h"
#include "files/printable.h"
#include "plan/hardware.h"
#include "plan/model_shape.h"
#include "plan/simulate/calibration.h"
#include "plan/simulate/trace_reader.h"
#include "plan/units.h"

namespace kvasir::app {

namespace {

using ArrivalKind = plan::ArrivalSpec::Kind;

constexpr int64_t kRequestsDefault = 1000;

plan::LengthSpec Lognormal(double mean, double sigma, int64_t high) {
  return {plan::LengthSpec::Kind::kLognormal, 1, high, mean, sigma};
}

plan::LengthSpec Uniform(int64_t low, int64_t high) {
  return {plan::LengthSpec::Kind::kUniform, low, high};
}

plan::TrafficSpec Preset(const std::string& name) {
  plan::TrafficSpec traffic;
  if (name == "chat") {
    // Means of ShareGPT's conversations.
    traffic.prompt = Lognormal(227, 1.1, 4096);
    traffic.output = Lognormal(188, 0.9, 2048);
  } else if (name == "agents") {
    traffic.prefix_tokens = 10'000;
    traffic.prompt = Uniform(100, 500);
    traffic.output = Lognormal(120, 0.7, 1024);
    traffic.turns = Uniform(5, 15);
    traffic.turn = Lognormal(300, 1.0, 4096);
    traffic.think_s = 2;
  } else if (name == "documents") {
    traffic.prefix_tokens = 200;
    traffic.documents_count = 1000;
    traffic.document = Uniform(300, 700);
    traffic.prompt = Uniform(20, 60);
    traffic.output = Lognormal(200, 0.6, 1024);
  }
  return traffic;
}

Status ReadLength(const char* flag, const std::string& text, plan::LengthSpec& length) {
  if (text.empty()) return Status::Ok();
  auto parsed = plan::ParseLength(text);
  if (!parsed.ok()) {
    return MakeError(ErrorCode::kInvalidArgument, "--{}: {}", flag, parsed.error().message);
  }
  length = *parsed;
  return Status::Ok();
}

Status ReadTime(const char* flag, const std::string& text, double& seconds,
                bool zero_allowed = false) {
  if (text.empty()) return Status::Ok();
  KVASIR_ASSIGN_OR_RETURN(seconds, plan::ParseDuration(text, flag, zero_allowed));
  return Status::Ok();
}

Result<plan::ArrivalSpec> ReadArrivals(const SimulateFlags& flags) {
  plan::ArrivalSpec arrivals;
  const std::string name = !flags.arrivals.empty() ? flags.arrivals
                           : flags.users > 0       ? "closed"
                                                   : "poisson";
  arrivals.kind = name == "gamma"      ? ArrivalKind::kGamma
                  : name == "constant" ? ArrivalKind::kConstant
                  : name == "burst"    ? ArrivalKind::kBurst
                  : name == "closed"   ? ArrivalKind::kClosed
                                       : ArrivalKind::kPoisson;
  if (flags.users > 0 && arrivals.kind != ArrivalKind::kClosed) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--users goes with --arrivals closed, got --arrivals {}", name);
  }
  arrivals.rate = flags.rate;
  arrivals.variation = flags.variation;
  arrivals.burst_size = flags.burst_size;
  arrivals.users = flags.users > 0 ? flags.users : 1;
  KVASIR_RETURN_IF_ERROR(ReadTime("burst-every", flags.burst_every, arrivals.burst_every_s));
  return arrivals;
}

Error Alone(const char* flag, const std::string& partner) {
  return MakeError(ErrorCode::kInvalidArgument, "--{} goes with {}", flag, partner);
}

Error Beside(const char* flag, const char* other, const char* why) {
  return MakeError(ErrorCode::kInvalidArgument, "--{} does not go with --{}: {}", flag, other, why);
}

// Flags whose values nothing would read.
Status CheckTogether(const SimulateFlags& flags, const plan::WorkloadSpec& spec) {
  const ArrivalKind kind = spec.arrivals.kind;
  const plan::TrafficSpec& traffic = spec.traffic;
  const bool closed = kind == ArrivalKind::kClosed;
  const bool turns = traffic.turns.high > 1;
  struct Rule {
    const char* flag;
    bool read;
    const char* partner;
  };
  const Rule rules[] = {
      {"variation", kind == ArrivalKind::kGamma, "--arrivals gamma"},
      {"burst-size", kind == ArrivalKind::kBurst, "--arrivals burst"},
      {"burst-every", kind == ArrivalKind::kBurst, "--arrivals burst"},
      {"think-time", closed || turns, "--users (--arrivals closed) or --turns"},
      {"turn-tokens", turns, "--turns above 1"},
      {"prefixes", traffic.prefix_tokens > 0, "--prefix-tokens"},
      {"prefix-share", traffic.prefix_tokens > 0, "--prefix-tokens"},
      {"documents-per-request", traffic.documents_count > 0, "--documents"},
      {"document-tokens", traffic.documents_count > 0, "--documents"},
      {"trace-speed", false, "--trace"},
      {"trace-format", false, "--trace"},
  };
  for (const Rule& rule : rules) {
    if (flags.Given(rule.flag) && !rule.read) return Alone(rule.flag, rule.partner);
  }
  if (!flags.Given("rate")) return Status::Ok();
  if (kind == ArrivalKind::kBurst) {
    return Beside("rate", "arrivals burst", "--burst-size and --burst-every are its rate");
  }
  if (!closed) return Status::Ok();
  return Beside("rate", flags.Given("users") ? "users" : "arrivals closed",
                "who waits for an answer sets the rate");
}

// A trace has times and lengths of its own.
Status CheckBesideTrace(const SimulateFlags& flags) {
  for (const char* flag :
       {"workload", "arrivals", "users", "variation", "burst-size", "burst-every", "prompt-tokens",
        "output-tokens", "prefix-tokens", "prefixes", "prefix-share", "turns", "turn-tokens",
        "documents", "documents-per-request", "document-tokens"}) {
    if (flags.Given(flag)) {
      return Beside(flag, "trace", "the trace has times and lengths of its own");
    }
  }
  return Status::Ok();
}

// A setting that is compared has the values of its variants.
Status CheckBesideCompare(const SimulateFlags& flags) {
  const std::string name = flags.compare.substr(0, flags.compare.find('='));
  const std::string flag = name == "prefix-caching"    ? "enable-prefix-caching"
                           : name == "chunked-prefill" ? "enable-chunked-prefill"
                                                       : name;
  if (!flags.Given(flag.c_str())) return Status::Ok();
  // --num-kv-blocks are blocks of --block-size, whose bytes all variants keep.
  if (name == "block-size" && flags.engine.num_kv_blocks > 0) return Status::Ok();
  for (const char* compared :
       {"kv-allocation", "batching", "prefix-caching", "chunked-prefill", "block-size", "weights",
        "hardware", "max-num-seqs", "max-num-batched-tokens"}) {
    if (name != compared) continue;
    return MakeError(ErrorCode::kInvalidArgument,
                     "--{} does not go with --compare {}: each variant has its own", flag, name);
  }
  return Status::Ok();
}

// What a calibration cannot know: it holds for one model as it lay on one machine.
Status CheckBesideCalibration(const SimulateFlags& flags) {
  for (const char* flag : {"hardware", "tensor-parallel", "weights", "memory-utilization",
                           "bandwidth-share", "compute-share"}) {
    if (flags.Given(flag)) {
      return Beside(flag, "calibration", "it was measured on one machine with the model as it is");
    }
  }
  for (const char* name : {"hardware", "weights"}) {
    if (flags.compare.substr(0, flags.compare.find('=')) == name) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "--compare {} does not go with --calibration: it was measured on one "
                       "machine with the model as it is",
                       name);
    }
  }
  return Status::Ok();
}

Result<plan::TrafficSpec> ReadTrafficSpec(const SimulateFlags& flags) {
  plan::TrafficSpec traffic = Preset(flags.workload);
  traffic.requests_count = flags.requests > 0 ? flags.requests : kRequestsDefault;
  KVASIR_RETURN_IF_ERROR(ReadLength("prompt-tokens", flags.prompt_tokens, traffic.prompt));
  KVASIR_RETURN_IF_ERROR(ReadLength("output-tokens", flags.output_tokens, traffic.output));
  KVASIR_RETURN_IF_ERROR(ReadLength("turns", flags.turns, traffic.turns));
  KVASIR_RETURN_IF_ERROR(ReadLength("turn-tokens", flags.turn_tokens, traffic.turn));
  KVASIR_RETURN_IF_ERROR(ReadLength("document-tokens", flags.document_tokens, traffic.document));
  KVASIR_RETURN_IF_ERROR(ReadTime("think-time", flags.think_time, traffic.think_s, true));
  if (flags.prefix_tokens >= 0) traffic.prefix_tokens = flags.prefix_tokens;
  if (flags.prefixes >= 0) traffic.prefixes_count = flags.prefixes;
  if (flags.prefix_share >= 0) traffic.prefix_share = flags.prefix_share;
  if (flags.documents >= 0) traffic.documents_count = flags.documents;
  if (flags.documents_per_request >= 0) {
    traffic.documents_per_request = flags.documents_per_request;
  } else if (traffic.documents_count > 0) {
    traffic.documents_per_request =
        std::min(traffic.documents_per_request, traffic.documents_count);
  }
  return traffic;
}

// One of many is a singular: "1 request", "0.5 requests".
std::string Counted(double count, const std::string& things) {
  return fmt::format("{} {}", count, count == 1 ? things.substr(0, things.size() - 1) : things);
}

std::string Counted(const plan::LengthSpec& length, const std::string& things) {
  const bool one = length.low == 1 && length.kind == plan::LengthSpec::Kind::kFixed;
  return one ? Counted(1, things) : fmt::format("{} {}", plan::ToString(length), things);
}

// `searched`: the load is what is looked for.
std::string ArrivalWords(const plan::WorkloadSpec& spec, bool searched) {
  const plan::ArrivalSpec& arrivals = spec.arrivals;
  const char* what = spec.traffic.turns.high > 1 ? "conversations" : "requests";
  if (searched && arrivals.kind == ArrivalKind::kClosed) {
    return "users as found below, each with one request at a time";
  }
  if (searched) return fmt::format("{}/s as found below", what);
  switch (arrivals.kind) {
    case ArrivalKind::kPoisson:
      return fmt::format("{}/s (Poisson)", Counted(arrivals.rate, what));
    case ArrivalKind::kGamma:
      return fmt::format("{}/s (Gamma, variation {})", Counted(arrivals.rate, what),
                         arrivals.variation);
    case ArrivalKind::kConstant:
      return fmt::format("{}/s at equal distances", Counted(arrivals.rate, what));
    case ArrivalKind::kBurst:
      return fmt::format("{} at once every {} s",
                         Counted(static_cast<double>(arrivals.burst_size), what),
                         arrivals.burst_every_s);
    case ArrivalKind::kClosed:
      break;
  }
  if (arrivals.users == 1) return "1 user with one request at a time";
  return fmt::format("{} users, each with one request at a time", arrivals.users);
}

std::string Words(const plan::WorkloadSpec& spec, bool searched) {
  const plan::TrafficSpec& traffic = spec.traffic;
  std::string words = fmt::format("{}: {}; prompts of {}, answers of {}",
                                  Counted(static_cast<double>(traffic.requests_count),
                                          traffic.turns.high > 1 ? "conversations" : "requests"),
                                  ArrivalWords(spec, searched), Counted(traffic.prompt, "tokens"),
                                  plan::ToString(traffic.output));
  if (traffic.documents_count > 0) {
    words += fmt::format("; {} of {} of {}", traffic.documents_per_request,
                         Counted(static_cast<double>(traffic.documents_count), "documents"),
                         Counted(traffic.document, "tokens"));
  }
  if (traffic.prefix_tokens > 0) {
    words += fmt::format("; {:.0f} % begin with {} of {}", 100 * traffic.prefix_share,
                         traffic.prefixes_count == 1
                             ? "the same prefix"
                             : fmt::format("one of {} prefixes", traffic.prefixes_count),
                         Counted(static_cast<double>(traffic.prefix_tokens), "tokens"));
  }
  if (traffic.turns.high > 1) {
    words += fmt::format("; {} of {}, {} s after an answer", Counted(traffic.turns, "turns"),
                         Counted(traffic.turn, "new tokens"), traffic.think_s);
  } else if (traffic.think_s > 0) {
    words += fmt::format("; {} s from an answer to the next request", traffic.think_s);
  }
  return words;
}

Status ReadTrace(const SimulateFlags& flags, Traffic& traffic) {
  plan::TraceOptions options;
  options.format = flags.trace_format;
  options.conversations_per_s = flags.rate;
  options.think_s = traffic.spec.traffic.think_s;
  options.seed = flags.seed;
  if (flags.requests > 0) options.requests_max = flags.requests;
  KVASIR_ASSIGN_OR_RETURN(plan::TraceReading reading, plan::ReadTraceFile(flags.trace, options));
  for (const std::string& complaint : reading.complaints) {
    std::fprintf(stderr, "kvasir: left out: %s\n", complaint.c_str());
  }
  for (const char* flag : {"rate", "think-time"}) {
    if (flags.Given(flag) && !reading.times_drawn) {
      return Beside(flag, "trace", "only a trace without times (ShareGPT) needs it");
    }
  }
  traffic.trace = std::move(reading.trace);
  traffic.trace_speed = flags.trace_speed;
  // Whatever is wrong with it is said before anything runs.
  const auto made = plan::MakeTraceWorkload(*traffic.trace, flags.trace_speed, flags.seed);
  if (!made.ok()) return made.error();
  traffic.words = fmt::format(
      "{} of {}", Counted(static_cast<double>(traffic.trace->requests.size()), "requests"),
      traffic.trace->source);
  if (flags.find.empty() && flags.trace_speed != 1)
    traffic.words += fmt::format(", {} times as fast", flags.trace_speed);
  return Status::Ok();
}

}  // namespace

std::unique_ptr<plan::Workload> Traffic::Make(double load, int64_t requests_min) const {
  if (trace) {
    auto made = plan::MakeTraceWorkload(*trace, load > 0 ? load : trace_speed, spec.seed);
    return std::move(made).value();
  }
  plan::WorkloadSpec loaded = spec;
  loaded.traffic.requests_count = std::max(loaded.traffic.requests_count, requests_min);
  if (load > 0 && closed()) {
    loaded.arrivals.users = static_cast<int64_t>(load);
  } else if (load > 0 && loaded.arrivals.kind == ArrivalKind::kBurst) {
    loaded.arrivals.burst_every_s = static_cast<double>(loaded.arrivals.burst_size) / load;
  } else if (load > 0) {
    loaded.arrivals.rate = load;
  }
  return plan::MakeWorkload(loaded);
}

const char* Traffic::LoadUnit() const {
  if (trace) return "x speed";
  if (closed()) return "users";
  return spec.traffic.turns.high > 1 ? "conversations/s" : "requests/s";
}

Result<Traffic> ReadTraffic(const SimulateFlags& flags) {
  Traffic traffic;
  traffic.spec.seed = flags.seed;
  KVASIR_ASSIGN_OR_RETURN(traffic.spec.arrivals, ReadArrivals(flags));
  KVASIR_ASSIGN_OR_RETURN(traffic.spec.traffic, ReadTrafficSpec(flags));
  if (!flags.trace.empty()) KVASIR_RETURN_IF_ERROR(CheckBesideTrace(flags));
  if (flags.find == "users" && flags.Given("arrivals") && !traffic.closed()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--find users goes with --arrivals closed, got --arrivals {}", flags.arrivals);
  }
  if (flags.find == "users" && flags.Given("users")) {
    return Beside("users", "find users", "their number is what is looked for");
  }
  if (flags.find == "users") traffic.spec.arrivals.kind = ArrivalKind::kClosed;
  if (flags.find == "rate" && flags.Given("rate") && flags.trace.empty()) {
    return Beside("rate", "find rate", "the rate is what is looked for");
  }
  if (flags.find == "rate" && traffic.closed()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--find rate: expected arrivals that do not wait for answers, got --arrivals "
                     "closed");
  }
  if (flags.trace.empty()) KVASIR_RETURN_IF_ERROR(CheckTogether(flags, traffic.spec));
  KVASIR_RETURN_IF_ERROR(plan::ValidateWorkload(traffic.spec));
  traffic.words = Words(traffic.spec, !flags.find.empty());
  if (!flags.trace.empty()) {
    if (flags.find == "users") {
      return MakeError(ErrorCode::kInvalidArgument,
                       "--find users: a trace has its own times; --find rate finds how many times "
                       "as fast it may come");
    }
    KVASIR_RETURN_IF_ERROR(ReadTrace(flags, traffic));
  }
  return traffic;
}

Result<plan::ServiceLevel> ReadServiceLevel(const SimulateFlags& flags) {
  plan::ServiceLevel slo;
  KVASIR_RETURN_IF_ERROR(ReadTime("max-ttft", flags.max_ttft, slo.ttft_s));
  KVASIR_RETURN_IF_ERROR(ReadTime("max-itl", flags.max_itl, slo.itl_s));
  KVASIR_RETURN_IF_ERROR(ReadTime("max-end-to-end", flags.max_end_to_end, slo.end_to_end_s));
  if (!flags.find.empty() && !slo.any()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--find: a promise is needed: --max-ttft, --max-itl or --max-end-to-end");
  }
  if (flags.Given("slo-share") && flags.find.empty()) return Alone("slo-share", "--find");
  return slo;
}

Result<std::vector<double>> ReadLoads(const SimulateFlags& flags, const Traffic& traffic) {
  std::vector<double> loads;
  if (flags.Given("loads") && flags.Given("find")) {
    return Beside("loads", "find", "it tries loads of its own");
  }
  std::string_view text = flags.loads;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    double load = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), load);
    // Users come whole, and each asks several times.
    const double least = traffic.closed() ? 1 : 1e-6;
    const double most = traffic.closed() ? 1e6 : 1e9;
    if (error != std::errc() || end != part.data() + part.size() ||
        !(load >= least && load <= most) || (traffic.closed() && load != std::floor(load))) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "--loads: expected {}numbers from {:g} to {:g} such as 1,2,4, got '{}'",
                       traffic.closed() ? "whole " : "", least, most,
                       files::Printable(flags.loads, 60));
    }
    loads.push_back(load);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  std::ranges::sort(loads);
  if (const auto twice = std::ranges::adjacent_find(loads); twice != loads.end()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--loads: expected each load once, got {:g} twice", *twice);
  }
  return loads;
}

std::vector<double> LoadsAround(const Traffic& traffic) {
  const plan::ArrivalSpec& arrivals = traffic.spec.arrivals;
  double asked = arrivals.rate;
  if (traffic.trace) {
    asked = traffic.trace_speed;
  } else if (traffic.closed()) {
    asked = static_cast<double>(arrivals.users);
  } else if (arrivals.kind == ArrivalKind::kBurst) {
    // A single burst is as large however often it would come.
    if (traffic.spec.traffic.requests_count <= arrivals.burst_size) return {};
    asked = static_cast<double>(arrivals.burst_size) / arrivals.burst_every_s;
  }
  std::vector<double> loads;
  for (const double share : {0.25, 0.5, 0.75, 1.0, 1.5, 2.0}) {
    const double load = traffic.closed() ? std::max(1.0, std::round(share * asked)) : share * asked;
    if (loads.empty() || load > loads.back()) loads.push_back(load);
  }
  return loads;
}

Result<double> ReadDurationLimit(const SimulateFlags& flags) {
  double seconds = 0;
  KVASIR_RETURN_IF_ERROR(ReadTime("duration", flags.duration, seconds));
  return seconds;
}

Result<double> ReadRequestOverhead(const SimulateFlags& flags) {
  double seconds = 0;
  KVASIR_RETURN_IF_ERROR(ReadTime("request-overhead", flags.request_overhead, seconds, true));
  return seconds;
}

Result<plan::ScenarioSpec> ReadScenario(const SimulateFlags& flags) {
  const EngineFlags& engine = flags.engine;
  KVASIR_RETURN_IF_ERROR(CheckBesideCompare(flags));
  plan::ScenarioSpec spec;
  KVASIR_ASSIGN_OR_RETURN(const std::filesystem::path path, ResolveModel(engine.model));
  auto shape = plan::FindModelShape(path.string());
  if (!shape.ok()) {
    Error error = std::move(shape).error();
    // What a model's file says wrong is not the command's fault.
    if (error.code == ErrorCode::kInvalidArgument) error.code = ErrorCode::kDataLoss;
    return error;
  }
  spec.shape = *std::move(shape);
  if (!flags.calibration.empty()) {
    KVASIR_RETURN_IF_ERROR(CheckBesideCalibration(flags));
    std::error_code ignored;
    if (std::filesystem::is_character_file(flags.calibration, ignored)) {  // may have no end
      return MakeError(ErrorCode::kIo, "{}: expected a file or a pipe, got a special file",
                       files::Printable(flags.calibration));
    }
    KVASIR_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(flags.calibration));
    KVASIR_ASSIGN_OR_RETURN(spec.calibration, plan::ReadCalibration(text, flags.calibration));
    KVASIR_RETURN_IF_ERROR(
        plan::CheckCalibration(*spec.calibration, spec.shape, flags.calibration));
  }
  // Machines that are compared are named there: this one need not be measured.
  const bool compared = flags.compare.starts_with("hardware=");
  if (!spec.calibration && !compared) {
    auto hardware = plan::FindHardware(flags.hardware.empty() ? "this" : flags.hardware);
    if (!hardware.ok()) return OfHardware(std::move(hardware).error());
    spec.hardware = *std::move(hardware);
  }
  if (flags.weights != "as-shipped") spec.weights = flags.weights;
  spec.kv = spec.shape.kv_format;
  if (spec.calibration) {
    // As the steps were measured.
    const std::string measured = LowerCase(spec.calibration->kv_dtype);
    if (engine.kv_cache_dtype != "auto" && engine.kv_cache_dtype != measured) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "--kv-cache-dtype: {} was measured with {}, got {}", flags.calibration,
                       measured, engine.kv_cache_dtype);
    }
    KVASIR_ASSIGN_OR_RETURN(spec.kv, plan::ParseKvFormat(measured));
  } else if (engine.kv_cache_dtype != "auto") {
    KVASIR_ASSIGN_OR_RETURN(spec.kv, plan::ParseKvFormat(engine.kv_cache_dtype));
  }
  spec.tensor_parallel = flags.tensor_parallel;
  spec.utilization = flags.memory_utilization;
  spec.bandwidth_share = flags.bandwidth_share;
  spec.compute_share = flags.compute_share;
  spec.num_kv_blocks = engine.num_kv_blocks;
  if (!engine.kv_cache_memory.empty()) {
    auto bytes = ParseBytes(engine.kv_cache_memory);
    if (!bytes.ok()) {
      return MakeError(ErrorCode::kInvalidArgument, "--kv-cache-memory-bytes: {}",
                       bytes.error().message);
    }
    spec.kv_memory_bytes = *bytes;
  }
  spec.block_tokens = engine.block_size;
  spec.max_model_len = engine.max_model_len;
  spec.max_num_batched_tokens = engine.max_num_batched_tokens;
  ApplyEngineFlags(engine, spec.engine);
  return spec;
}

}  // namespace kvasir::app
