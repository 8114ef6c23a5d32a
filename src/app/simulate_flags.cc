#include "app/simulate_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>

namespace kvasir::app {

namespace {

constexpr int64_t kRequestsMax = plan::kSimulatedRequestsMax;

void AddMachineFlags(CLI::App& command, SimulateFlags& flags) {
  const std::string group = "Model and machine";
  command
      .add_option("model,--model", flags.engine.model,
                  "Folder of Hugging Face files, a .gguf, a config.json, a name that 'kvasir plan "
                  "--list' shows, or 'default'")
      ->required();
  command
      .add_option("--hardware", flags.hardware,
                  "Machine whose roofline gives a step's time: a name that 'kvasir plan --list' "
                  "shows, a .json, or 'this' (measured in 2 s); default: this")
      ->group(group);
  command
      .add_option("--calibration", flags.calibration,
                  "File that 'kvasir bench calibrate' wrote: step times as measured, in place of "
                  "a roofline")
      ->group(group);
  command
      .add_option("--weights", flags.weights,
                  "Number format of the weights: as-shipped, bf16, fp8, int8, int4, mxfp4, or a "
                  "GGUF type")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--tensor-parallel", flags.tensor_parallel,
                  "Devices that each matrix is cut over")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--memory-utilization", flags.memory_utilization,
                  "Share of the machine's memory that the server may fill")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--bandwidth-share", flags.bandwidth_share,
                  "Share of the machine's memory bandwidth that is reached; 1: the bound")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--compute-share", flags.compute_share,
                  "Share of the machine's peak operations that is reached; 1: the bound")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-model-len", flags.engine.max_model_len,
                  "Longest prompt and output together, tokens; 0: the model's, or what the KV "
                  "cache holds if that is less")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
}

void AddArrivalFlags(CLI::App& command, SimulateFlags& flags) {
  const std::string group = "When requests come";
  command
      .add_option("--arrivals", flags.arrivals,
                  "poisson, gamma (of another --variation), constant, burst, or closed (--users "
                  "who wait for their answers); default: closed where --users is given, else "
                  "poisson")
      ->check(CLI::IsMember({"poisson", "gamma", "constant", "burst", "closed"}))
      ->group(group);
  command.add_option("--rate", flags.rate, "Requests (conversations, with --turns) a second")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--variation", flags.variation,
                  "gamma: a gap's standard deviation over its mean; 1 is poisson, more comes in "
                  "clusters")
      ->capture_default_str()
      ->group(group);
  command.add_option("--burst-size", flags.burst_size, "burst: requests at once")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--burst-every", flags.burst_every,
                  "burst: time from one to the next (500ms, 10s)")
      ->capture_default_str()
      ->group(group);
  command.add_option("--users", flags.users, "closed: users, each with one request at a time")
      ->check(CLI::Range(int64_t{1}, kRequestsMax))
      ->group(group);
  command
      .add_option("--think-time", flags.think_time,
                  "Time from an answer to the user's next request or turn (500ms, 2s); default: "
                  "none")
      ->group(group);
  command
      .add_option("--request-overhead", flags.request_overhead,
                  "Time from sending a request until it stands in the queue: network, HTTP, JSON, "
                  "tokenizing (2ms); default: none")
      ->group(group);
  command
      .add_option("--requests", flags.requests,
                  "Requests (conversations, with --turns) in all; default: 1000")
      ->check(CLI::Range(int64_t{1}, kRequestsMax))
      ->group(group);
  command
      .add_option("--duration", flags.duration,
                  "Simulated time after which all stops (30s, 3600s); default: when all requests "
                  "have ended")
      ->group(group);
  command.add_option("--seed", flags.seed, "The same seed gives the same simulation")
      ->check([](const std::string& text) {
        uint64_t seed = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
        const bool whole = error == std::errc() && end == text.data() + text.size();
        return whole ? std::string()
                     : "expected a whole number from 0 to 18446744073709551615, got " + text;
      })
      ->capture_default_str()
      ->group(group);
}

void AddLengthFlags(CLI::App& command, SimulateFlags& flags) {
  const std::string group = "What they are";
  command
      .add_option("--workload", flags.workload,
                  "Lengths to begin with, which the flags below change: chat (short questions), "
                  "agents (10,000 tokens in common, many turns), documents (three of a library "
                  "before each question); default: 512 tokens in, 128 out")
      ->check(CLI::IsMember({"chat", "agents", "documents"}))
      ->group(group);
  command
      .add_option("--trace", flags.trace,
                  "File with times and lengths: what 'kvasir serve --record-trace' wrote, "
                  "Mooncake JSONL, Azure or BurstGPT CSV, ShareGPT JSON")
      ->group(group);
  command
      .add_option("--trace-format", flags.trace_format,
                  "auto (by what the file begins with), mooncake, azure, burstgpt or sharegpt")
      ->check(CLI::IsMember({"auto", "mooncake", "azure", "burstgpt", "sharegpt"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--trace-speed", flags.trace_speed, "Times as fast as the trace")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--prompt-tokens", flags.prompt_tokens,
                  "Tokens of a prompt that are its own: 512, 100..900, or "
                  "lognormal:MEAN,SIGMA[,MAX]")
      ->group(group);
  command.add_option("--output-tokens", flags.output_tokens, "Tokens of an answer, likewise")
      ->group(group);
  command
      .add_option("--prefix-tokens", flags.prefix_tokens,
                  "Tokens of a system prompt before each prompt")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  command.add_option("--prefixes", flags.prefixes, "Different system prompts; default: 1")
      ->check(CLI::Range(int64_t{1}, kRequestsMax))
      ->group(group);
  command
      .add_option("--prefix-share", flags.prefix_share,
                  "Share of requests that begin with a system prompt, 0 to 1; default: 1")
      ->check(CLI::Range(0.0, 1.0))
      ->group(group);
  command
      .add_option("--turns", flags.turns,
                  "Turns of a conversation, as lengths are given: each sends all that was said "
                  "before; default: 1")
      ->group(group);
  command
      .add_option("--turn-tokens", flags.turn_tokens,
                  "New tokens of each turn but the first; default: 100")
      ->group(group);
  command
      .add_option("--documents", flags.documents,
                  "Documents in a library, of which some come before each question; the n-th is "
                  "wanted 1/n as often as the first")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}))
      ->group(group);
  command
      .add_option("--documents-per-request", flags.documents_per_request,
                  "Documents before each question; default: 3")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000}))
      ->group(group);
  command
      .add_option("--document-tokens", flags.document_tokens,
                  "Tokens of a document, as lengths are given; default: 1000")
      ->group(group);
}

void AddAnswerFlags(CLI::App& command, SimulateFlags& flags) {
  const std::string group = "What to find out";
  command.add_option("--max-ttft", flags.max_ttft, "Promise: time to the first token (500ms, 2s)")
      ->group(group);
  command
      .add_option("--max-itl", flags.max_itl,
                  "Promise: mean time between a request's tokens (50ms)")
      ->group(group);
  command.add_option("--max-end-to-end", flags.max_end_to_end, "Promise: time to the last token")
      ->group(group);
  command
      .add_option("--find", flags.find,
                  "users or rate: the most for which the promise is kept, by search")
      ->check(CLI::IsMember({"users", "rate"}))
      ->group(group);
  command
      .add_option("--slo-share", flags.slo_share,
                  "--find: share of requests for which the promise must be kept")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--loads", flags.loads,
                  "Simulate under each of these loads (1,2,4,8): users with --users, times as "
                  "fast with --trace, else requests a second")
      ->group(group);
  command
      .add_option("--compare", flags.compare,
                  "The same traffic under variants, side by side: kv-allocation, batching, "
                  "prefix-caching, chunked-prefill, or a list such as block-size=8,16,32, "
                  "weights=bf16,fp8,int4, hardware=l4,h100-80gb, max-num-seqs=16,64, "
                  "max-num-batched-tokens=256,2048")
      ->group(group);
  command.add_flag("--json", flags.json, "Print JSON")->group(group);
  command
      .add_option("--html", flags.html,
                  "File to write a page to, which needs no network: the cache over time, the batch "
                  "step by step, and latency over load (without --loads and --find, from a quarter "
                  "to twice what comes)")
      ->group(group);
  command
      .add_option("--write-requests", flags.write_requests,
                  "File to write each request to, a line of JSON each: arrival (s), prompt (token "
                  "ids), output tokens; to send the same to a real server")
      ->group(group);
}

}  // namespace

void AddSimulateFlags(CLI::App& command, SimulateFlags& flags) {
  AddMachineFlags(command, flags);
  AddArrivalFlags(command, flags);
  AddLengthFlags(command, flags);
  AddAnswerFlags(command, flags);
  AddEngineFlags(command, flags.engine);
}

void NoteGiven(const CLI::App& command, SimulateFlags& flags) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    flags.given.insert(option->get_lnames().begin(), option->get_lnames().end());
  }
}

}  // namespace kvasir::app
