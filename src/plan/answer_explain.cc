// Each formula of an answer with its numbers put in.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cache/capacity.h"
#include "plan/answer.h"
#include "plan/units.h"

namespace kvasir::plan {
namespace {

using Out = std::back_insert_iterator<std::string>;

std::string N(int64_t value) { return CountText(value); }

void ExplainWeights(Out out, const Answer& answer) {
  fmt::format_to(out, "Weights: values x bytes of the format, part by part\n");
  const bool stored = answer.options.as_shipped && answer.model.stored;
  for (size_t i = 0; i < kPartCount; ++i) {
    if (answer.memory.part_bytes[i] == 0) continue;
    const auto part = static_cast<Part>(i);
    if (stored) {
      fmt::format_to(out, "  {}: {} B, the tensors of the files ({})\n", PartName(part),
                     N(answer.memory.part_bytes[i]), answer.model.stored->part_formats[i]);
      continue;
    }
    const NumberFormat& format = answer.options.weights[i];
    std::string how = fmt::format("{} values x {:g} B", N(answer.model.ParametersCount(part)),
                                  format.BytesPerValue());
    if (format.block_values > 1) {
      how += fmt::format(" (blocks of {} in {} B)", format.block_values, format.block_bytes);
    }
    if (format.tile_rows > 0) {
      how += fmt::format(" + {} B a tile of {} x {}", format.tile_bytes, format.tile_rows,
                         format.tile_cols > 0 ? N(format.tile_cols) : std::string("a row"));
    }
    fmt::format_to(out, "  {}: {} = {} B ({})\n", PartName(part), how,
                   N(answer.memory.part_bytes[i]), format.name);
  }
  fmt::format_to(out, "  together {} B\n", N(answer.memory.weights_bytes));
  if (answer.memory.loaded) {
    fmt::format_to(out,
                   "  in the server's memory: {} B packed for the {} kernels + {} B of the files "
                   "read where they lie = {} B\n",
                   N(answer.memory.loaded->packed_bytes), answer.memory.loaded->kernels,
                   N(answer.memory.loaded->mapped_bytes),
                   N(answer.memory.weights_bytes_per_device));
  }
}

void ExplainKv(Out out, const Answer& answer) {
  const NumberFormat& kv = answer.options.kv;
  fmt::format_to(out, "\nKV cache: what a token leaves in each layer, in {}\n", kv.name);
  for (const LayerShape& layer : answer.model.layers) {
    const int64_t bytes = layer.layers_count * kv.Bytes(1, layer.cached_values);
    const std::string layers =
        fmt::format("  {}: {} layers x ", LayerKindName(layer.kind), layer.layers_count);
    switch (layer.kind) {
      case LayerKind::kFull:
      case LayerKind::kWindow:
        fmt::format_to(out, "{}2 (K, V) x {} KV heads x {} dims x {:g} B = {} B a token{}\n",
                       layers, layer.kv_heads, layer.key_dim, kv.BytesPerValue(), N(bytes),
                       layer.window_tokens > 0
                           ? fmt::format(", kept for {} tokens", N(layer.window_tokens))
                           : "");
        break;
      case LayerKind::kLatent:
        fmt::format_to(out, "{}{} values (latent {} + rotated key {}{}) x {:g} B = {} B a token\n",
                       layers, layer.cached_values, layer.value_dim,
                       layer.key_dim - layer.value_dim,
                       layer.cached_values > layer.key_dim
                           ? fmt::format(" + index key {}", layer.cached_values - layer.key_dim)
                           : "",
                       kv.BytesPerValue(), N(bytes));
        break;
      case LayerKind::kLinear:
        fmt::format_to(out,
                       "{}({} heads x {} x {} in F32 + the convolution's inputs) = {} B a "
                       "sequence\n",
                       layers, layer.query_heads, layer.key_dim, layer.value_dim,
                       N(layer.layers_count * layer.state_bytes));
        break;
    }
  }
  fmt::format_to(out, "  all layers {} B a token; growing with context {} B\n",
                 N(answer.kv_bytes_per_token), N(answer.kv_bytes_per_token_growing));
  const CacheSpec& cache = answer.memory.cache;
  fmt::format_to(out,
                 "  a block: {} tokens x {} layers of a group x {} values x {:g} B = {} B; {} "
                 "group{} of layers\n",
                 cache.block_tokens, answer.model.layers_per_group,
                 answer.model.cached_values_per_slot, kv.BytesPerValue(), N(cache.block_bytes),
                 cache.groups.size(), cache.groups.size() == 1 ? "" : "s");
}

void ExplainSequence(Out out, const Answer& answer, const char* what, int64_t tokens) {
  const MemoryPlan& memory = answer.memory;
  fmt::format_to(out, "  {} of {} tokens: ", what, N(tokens));
  for (size_t i = 0; i < memory.cache.groups.size(); ++i) {
    fmt::format_to(
        out, "{}{}", i == 0 ? "" : " + ",
        N(cache::PeakBlocks(memory.cache.groups[i], memory.cache.block_tokens, tokens, 1)));
  }
  fmt::format_to(out, " blocks x {} B", N(memory.cache.block_bytes));
  if (memory.state_bytes_per_sequence > 0) {
    fmt::format_to(out, " + {} B of states", N(memory.state_bytes_per_sequence));
  }
  fmt::format_to(out, " = {} B\n", N(SequenceBytes(memory, tokens)));
}

// As UsersOf of memory.cc works it out: a replica's part of the cache by what each user adds to it,
// rounded down.
void ExplainUsers(Out out, const Answer& answer, const char* what, int64_t each, int64_t shared,
                  int64_t users) {
  const int64_t replicas = answer.choices.parallel.expert;
  const int64_t budget = answer.memory.kv_budget_bytes / replicas;
  // A user that adds nothing of its own still takes a block.
  const bool block = each - shared < answer.memory.cache.block_bytes;
  std::string formula =
      shared > 0 ? fmt::format("({} B - {} B) / ", N(budget), N(shared)) : N(budget) + " B / ";
  if (block) {
    formula += fmt::format("{} B, a block", N(answer.memory.cache.block_bytes));
  } else {
    formula += shared > 0 ? fmt::format("({} B - {} B)", N(each), N(shared)) : N(each) + " B";
  }
  // One user needs room for all of its own, the common part included.
  if (budget < each) {
    formula = fmt::format("{} B, less than the {} B of one", N(budget), N(each));
  }
  fmt::format_to(out, "  {}: {}{} = {} user{}\n", what, formula,
                 replicas > 1 ? fmt::format(" rounded down x {} replicas", replicas) : "", N(users),
                 users == 1 ? "" : "s");
}

void ExplainMemory(Out out, const Answer& answer) {
  const MemoryPlan& memory = answer.memory;
  const Choices& choices = answer.choices;
  const Parallel& parallel = choices.parallel;
  fmt::format_to(out, "\nMemory of a device\n");
  fmt::format_to(out, "  usable: {} B x {:g} = {} B\n", N(answer.hardware.memory_bytes),
                 answer.options.utilization, N(memory.usable_bytes_per_device));
  fmt::format_to(out, "  left: {} - {} weights - {} activations - {} workspace = {} B\n",
                 N(memory.usable_bytes_per_device), N(memory.weights_bytes_per_device),
                 N(memory.activations_bytes_per_device), N(memory.workspace_bytes_per_device),
                 N(memory.left_bytes_per_device));
  fmt::format_to(out,
                 "  KV budget: {} B x {} tensor x {} pipeline x {} expert / {} cop{} = {} B, {} "
                 "blocks a replica\n",
                 N(std::max<int64_t>(0, memory.left_bytes_per_device)), parallel.tensor,
                 parallel.pipeline, parallel.expert, memory.kv_copies,
                 memory.kv_copies == 1 ? "y" : "ies", N(memory.kv_budget_bytes),
                 N(memory.cache.blocks_count));

  fmt::format_to(out, "\nUsers\n");
  ExplainSequence(out, answer, "a user", choices.context_tokens);
  const int64_t shared = SharedBytes(memory, answer.shared_tokens);
  if (choices.shared_prefix > 0) {
    fmt::format_to(out, "  of it {} B once for all ({} tokens in common)\n", N(shared),
                   N(answer.shared_tokens));
  }
  ExplainUsers(out, answer, "paged", SequenceBytes(memory, choices.context_tokens), shared,
               answer.users_paged);
  ExplainSequence(out, answer, "a reservation", choices.reserved_tokens);
  ExplainUsers(out, answer, "reserved", SequenceBytes(memory, choices.reserved_tokens), 0,
               answer.users_reserved);
  const bool windows = std::ranges::any_of(
      answer.kv_kinds, [](const KvKind& kind) { return kind.window_tokens > 0; });
  if (windows) {
    ExplainUsers(out, answer, "with windowed layers whole",
                 WholeSequenceBytes(memory, choices.reserved_tokens), 0,
                 answer.users_reserved_whole);
  }
  fmt::format_to(out, "  devices: {} B / ({} usable - activations - workspace) rounded up = {}\n",
                 N(memory.weights_bytes), N(memory.usable_bytes_per_device),
                 N(answer.devices_needed));
}

void ExplainStep(Out out, const char* what, const StepTime& step) {
  fmt::format_to(out, "  {}: memory ({} weights + {} KV) / bandwidth = {}\n", what,
                 BytesText(step.weight_bytes), BytesText(step.kv_bytes),
                 SecondsText(step.memory_s));
  fmt::format_to(out, "    compute {} Gop / operations a second = {}\n",
                 ShortText(step.flops / 1e9), SecondsText(step.compute_s));
  fmt::format_to(out, "    max of the two + link {} + overhead {} = {}\n", SecondsText(step.link_s),
                 SecondsText(step.overhead_s), SecondsText(step.seconds));
}

}  // namespace

std::string Explain(const Answer& answer) {
  std::string text;
  const Out out(text);
  ExplainWeights(out, answer);
  ExplainKv(out, answer);
  ExplainMemory(out, answer);
  if (!answer.fits()) {
    fmt::format_to(out, "\nSpeed\n  none: not one user fits\n");
    return text;
  }
  fmt::format_to(out, "\nSpeed, on all {} device{} together\n",
                 answer.choices.parallel.DevicesCount(),
                 answer.choices.parallel.DevicesCount() == 1 ? "" : "s");
  ExplainStep(out, "decode, 1 user", answer.decode_one.step);
  if (answer.decode_many.users > 1) {
    ExplainStep(out, fmt::format("decode, {} users", answer.decode_many.users).c_str(),
                answer.decode_many.step);
  }
  ExplainStep(out, "prefill, the last step", answer.prefill.last_step);
  if (answer.output_price > 0) {
    fmt::format_to(out,
                   "  a million tokens written: ${} an hour x {} / 3600 s / {} tokens/s x 1e6 = "
                   "${}\n",
                   ShortText(answer.hardware.price_per_hour),
                   answer.choices.parallel.DevicesCount(),
                   ShortText(answer.decode_many.tokens_per_second), ShortText(answer.output_price));
  }
  return text;
}

}  // namespace kvasir::plan
