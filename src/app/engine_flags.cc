#include "app/engine_flags.h"

#include <CLI/CLI.hpp>

#include "engine/config.h"

namespace kvasir::app {

const CLI::Validator& Seconds() {
  static const CLI::Validator validator(
      [](const std::string& text) -> std::string {
        double value = 0;
        // Written so that NaN fails.
        if (CLI::detail::lexical_cast(text, value) && value >= 0 && value <= 1e8) return "";
        return "expected seconds between 0 and 100000000, got " + text;
      },
      "SECONDS");
  return validator;
}

void AddModelFlags(CLI::App& command, EngineFlags& flags) {
  const std::string group = "Model";
  command
      .add_option("model,--model", flags.model,
                  "Folder of Hugging Face files, a .gguf, or 'default'")
      ->required();
  command
      .add_option("--chat-template", flags.chat_template,
                  "Jinja file to use instead of the model's own chat template")
      ->group(group);
  command
      .add_option("--chat-template-content-format", flags.content_format,
                  "How message parts reach the template: auto, string or openai")
      ->check(CLI::IsMember({"auto", "string", "openai"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kernels", flags.kernels,
                  "auto (the best this CPU has), avx512, avx2 or ref (slow, the oracle)")
      ->check(CLI::IsMember({"auto", "avx512", "avx2", "ref"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--threads", flags.threads,
                  "Threads that compute; 0: physical cores within affinity and cgroup limits")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--max-model-len", flags.max_model_len,
          "Longest prompt and output together, tokens; 0: the model's, or what the KV cache "
          "holds if that is less")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
}

void AddEngineFlags(CLI::App& command, EngineFlags& flags) {
  const std::string group = "KV cache and batching";
  command
      .add_option("--kv-cache-memory-bytes", flags.kv_cache_memory,
                  "Size of the KV cache: bytes, or a number with KiB, MiB, GiB; default: what the "
                  "machine has left, touched only as used")
      ->group(group);
  command
      .add_option("--num-kv-blocks,--num-gpu-blocks-override", flags.num_kv_blocks,
                  "Blocks in the KV cache; wins over the size in bytes; 0: by size")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-cache-dtype", flags.kv_cache_dtype,
                  "auto (as the weights: f32, bf16, else f16), f32, f16 or bf16")
      ->check(CLI::IsMember({"auto", "f32", "f16", "bf16"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--block-size", flags.block_size, "Tokens a KV block holds")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group(group);
  command.add_option("--max-num-seqs", flags.max_num_seqs, "Sequences that run at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-num-batched-tokens", flags.max_num_batched_tokens,
                  "Tokens a step computes at most; 0: what this machine computes in about 0.15 s")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-num-queued-reqs", flags.max_num_queued_reqs,
                  "Requests that may wait; beyond it the answer is 429")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-num-queued-tokens", flags.max_num_queued_tokens,
                  "Prompt tokens that may wait; beyond it the answer is 429")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-queue-wait", flags.max_queue_wait_s,
                  "Seconds a request may wait before it ends with an error; 0: no limit")
      ->check(Seconds())
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-allocation", flags.kv_allocation,
                  "paged, or reserved: every request takes --max-model-len tokens up front")
      ->check(CLI::IsMember({"paged", "reserved"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--batching", flags.batching,
                  "continuous, or static: a batch starts and ends together")
      ->check(CLI::IsMember({"continuous", "static"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", flags.enable_prefix_caching,
                "Reuse the KV of equal prompt beginnings (default: on)")
      ->group(group);
  command
      .add_flag("--enable-chunked-prefill,!--no-enable-chunked-prefill",
                flags.enable_chunked_prefill,
                "Compute long prompts in pieces beside running requests (default: on)")
      ->group(group);
}

void ApplyEngineFlags(const EngineFlags& flags, engine::EngineConfig& config) {
  config.max_num_seqs = flags.max_num_seqs;
  config.max_num_queued_reqs = flags.max_num_queued_reqs;
  config.max_num_queued_tokens = flags.max_num_queued_tokens;
  config.max_queue_wait_ns =
      static_cast<TimeNs>(flags.max_queue_wait_s * static_cast<double>(kNsPerSecond));
  config.kv_allocation = flags.kv_allocation == "reserved" ? engine::KvAllocation::kReserved
                                                           : engine::KvAllocation::kPaged;
  config.batching =
      flags.batching == "static" ? engine::Batching::kStatic : engine::Batching::kContinuous;
  config.enable_prefix_caching = flags.enable_prefix_caching;
  config.enable_chunked_prefill = flags.enable_chunked_prefill;
}

}  // namespace kvasir::app
