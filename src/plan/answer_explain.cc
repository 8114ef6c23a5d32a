// Each formula of an answer with its numbers put in.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/strings.h"
#include "cache/capacity.h"
#include "plan/answer.h"
#include "plan/units.h"

namespace kvasir::plan {
namespace {

using Out = std::back_insert_iterator<std::string>;

std::string N(int64_t value) { return CountText(value); }

// Values that rows lack to whole blocks.
int64_t PaddingOf(const ModelShape& model, Part part, const NumberFormat& format) {
  int64_t padding = 0;
  for (const WeightShape& weight : model.weights) {
    if (weight.part != part) continue;
    const int64_t rest = weight.cols % format.block_values;
    if (rest > 0) padding += weight.count * weight.rows * (format.block_values - rest);
  }
  return padding;
}

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
    const int64_t padding = PaddingOf(answer.model, part, format);
    std::string how = N(answer.model.ParametersCount(part)) + " values";
    if (padding > 0) how = fmt::format("({} + {} that fill rows' last blocks)", how, N(padding));
    how += fmt::format(" x {:g} B", format.BytesPerValue());
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
void ExplainUsers(Out out, const MemoryPlan& memory, int64_t replicas, const std::string& what,
                  int64_t each, int64_t shared, int64_t users) {
  const int64_t budget = memory.kv_budget_bytes / replicas;
  // A user that adds nothing of its own still takes a block.
  const bool block = each - shared < memory.cache.block_bytes;
  std::string formula =
      shared > 0 ? fmt::format("({} B - {} B) / ", N(budget), N(shared)) : N(budget) + " B / ";
  if (block) {
    formula += fmt::format("{} B, a block", N(memory.cache.block_bytes));
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

void ExplainDevices(Out out, const Answer& answer, int64_t shared) {
  MemoryOptions options = answer.options;
  options.parallel = Parallel{};
  const MemoryPlan alone = PlanMemory(answer.hardware, answer.model, options);
  fmt::format_to(out,
                 "  devices: {} B / ({} usable - {} activations - {} workspace) rounded up = {}\n",
                 N(alone.weights_bytes), N(alone.usable_bytes_per_device),
                 N(alone.activations_bytes_per_device), N(alone.workspace_bytes_per_device),
                 answer.devices_needed > 0 ? N(answer.devices_needed) : "none: no room");
  if (!answer.serving) {
    fmt::format_to(out, "  serve: no number up to 1,024 holds {} user{}\n", N(answer.serving_users),
                   answer.serving_users == 1 ? "" : "s");
    return;
  }
  options.parallel = *answer.serving;
  const MemoryPlan memory = PlanMemory(answer.hardware, answer.model, options);
  fmt::format_to(out,
                 "  serve: the fewest devices with room for {} user{}: {} tensor x {} pipeline = "
                 "{}, {} B left x {} x {} / {} cop{} = {} B\n",
                 N(answer.serving_users), answer.serving_users == 1 ? "" : "s",
                 options.parallel.tensor, options.parallel.pipeline,
                 options.parallel.DevicesCount(), N(memory.left_bytes_per_device),
                 options.parallel.tensor, options.parallel.pipeline, memory.kv_copies,
                 memory.kv_copies == 1 ? "y" : "ies", N(memory.kv_budget_bytes));
  const int64_t context = answer.choices.context_tokens;
  ExplainUsers(out, memory, 1, "  on them", SequenceBytes(memory, context), shared,
               UsersPaged(memory, 1, context, answer.shared_tokens));
}

void ExplainMemory(Out out, const Answer& answer) {
  const MemoryPlan& memory = answer.memory;
  const Choices& choices = answer.choices;
  const Parallel& parallel = choices.parallel;
  fmt::format_to(out, "\nMemory of a device\n");
  fmt::format_to(out, "  usable: {} B x {:g} = {} B\n", N(answer.hardware.memory_bytes),
                 answer.options.utilization, N(memory.usable_bytes_per_device));
  const RowValues& row = memory.row_values;
  fmt::format_to(out,
                 "  activations: {} tokens x (3 x {} hidden + {} QKV + {} heads + {} FFN) values x "
                 "{} B / {} tensor = {} B\n",
                 N(answer.choices.step_tokens), row.hidden, row.qkv, row.heads, row.ffn,
                 memory.row_value_bytes, parallel.tensor, N(memory.activations_bytes_per_device));
  fmt::format_to(
      out, "  workspace: {} rows of logits x ({} x 4 B + {} x {} B) / {} tensor{} = {} B\n",
      answer.options.logits_rows, N(answer.model.vocab_size), row.hidden, memory.row_value_bytes,
      parallel.tensor,
      memory.process_bytes > 0
          ? fmt::format(" + {} B of the process and its tokenizer", N(memory.process_bytes))
          : "",
      N(memory.workspace_bytes_per_device));
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
  ExplainUsers(out, memory, parallel.expert, "paged", SequenceBytes(memory, choices.context_tokens),
               shared, answer.users_paged);
  ExplainSequence(out, answer, "a reservation", choices.reserved_tokens);
  ExplainUsers(out, memory, parallel.expert, "reserved",
               SequenceBytes(memory, choices.reserved_tokens), 0, answer.users_reserved);
  const bool windows = std::ranges::any_of(
      answer.kv_kinds, [](const KvKind& kind) { return kind.window_tokens > 0; });
  if (windows) {
    ExplainUsers(out, memory, parallel.expert, "with windowed layers whole",
                 WholeSequenceBytes(memory, choices.reserved_tokens), 0,
                 answer.users_reserved_whole);
  }
  ExplainDevices(out, answer, shared);
}

std::string RateText(double per_second) {
  return per_second >= 1e12 ? ShortText(per_second / 1e12) + " Top/s"
                            : ShortText(per_second / 1e9) + " Gop/s";
}

void ExplainRates(Out out, const Answer& answer) {
  const Choices& choices = answer.choices;
  // Stages of a pipeline work in turn on one step.
  const int64_t working = choices.parallel.tensor * choices.parallel.expert;
  const std::string at_once = fmt::format("{} device{} at once", working, working == 1 ? "" : "s");
  fmt::format_to(out, "  bandwidth: {}/s x {:g} reached x {} = {}/s\n",
                 BytesText(answer.hardware.bandwidth), choices.bandwidth_share, at_once,
                 BytesText(answer.rates.bandwidth));
  const StepTime& one = answer.decode_one.step;
  for (size_t i = 0; i < kMathCount; ++i) {
    if (one.math_flops[i] <= 0) continue;
    const auto math = static_cast<Math>(i);
    fmt::format_to(out, "  {} operations: {} x {:g} reached x {} = {}\n", MathName(math),
                   RateText(answer.hardware.PeakFlops(math)), choices.compute_share, at_once,
                   RateText(answer.rates.flops[i]));
  }
}

void ExplainStep(Out out, const Answer& answer, const std::string& what, const StepTime& step) {
  const StepRates& rates = answer.rates;
  const std::string idle =
      step.idle_factor > 1 ? fmt::format("{:g} (replicas idle) x ", step.idle_factor) : "";
  fmt::format_to(out, "  {}: memory ({} weights + {}{} KV) / {}/s = {}\n", what,
                 BytesText(step.weight_bytes), idle, BytesText(step.kv_bytes),
                 BytesText(rates.bandwidth), SecondsText(step.memory_s));
  std::string compute;
  for (size_t i = 0; i < kMathCount; ++i) {
    if (step.math_flops[i] <= 0) continue;
    compute += fmt::format("{}{} Gop / {} {}", compute.empty() ? "" : " + ",
                           ShortText(step.math_flops[i] / 1e9), RateText(rates.flops[i]),
                           MathName(static_cast<Math>(i)));
  }
  fmt::format_to(out, "    compute {} = {}\n", idle.empty() ? compute : idle + "(" + compute + ")",
                 SecondsText(step.compute_s));
  if (step.link_s > 0) {
    // A machine without links has latencies alone.
    const std::string sent = std::isfinite(rates.link_bandwidth)
                                 ? fmt::format("{} / {}/s + ", BytesText(step.link_bytes),
                                               BytesText(rates.link_bandwidth))
                                 : "";
    fmt::format_to(out, "    link {}{} of latency = {}\n", sent, SecondsText(rates.link_latency_s),
                   SecondsText(step.link_s));
  }
  fmt::format_to(out, "    overhead {} layers x {} + {} a step = {}\n", answer.model.layers_count,
                 SecondsText(answer.hardware.layer_overhead_s),
                 SecondsText(answer.hardware.step_overhead_s), SecondsText(step.overhead_s));
  fmt::format_to(out, "    max({}, {}) + {} + {} = {}\n", SecondsText(step.memory_s),
                 SecondsText(step.compute_s), SecondsText(step.link_s),
                 SecondsText(step.overhead_s), SecondsText(step.seconds));
}

void ExplainDecode(Out out, const Answer& answer, const DecodeSpeed& speed) {
  const std::string users = fmt::format("{} user{}", speed.users, speed.users == 1 ? "" : "s");
  ExplainStep(out, answer, "decode, " + users, speed.step);
  fmt::format_to(out, "    {} / {} = {} tokens/s\n", users, SecondsText(speed.step.seconds),
                 ShortText(speed.tokens_per_second));
}

void ExplainPrefill(Out out, const Answer& answer) {
  const PrefillSpeed& prefill = answer.prefill;
  const auto steps = static_cast<double>(prefill.steps_count);
  if (prefill.steps_count > 1)
    ExplainStep(out, answer, "prefill, the first step", prefill.first_step);
  ExplainStep(out, answer, "prefill, the last step", prefill.last_step);
  fmt::format_to(out, "  prefill: {} step{} of {} on average = {}; {} tokens / {} = {} tokens/s\n",
                 N(prefill.steps_count), prefill.steps_count == 1 ? "" : "s",
                 SecondsText(prefill.seconds / steps), SecondsText(prefill.seconds),
                 N(prefill.tokens), SecondsText(prefill.seconds),
                 ShortText(prefill.tokens_per_second));
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
  ExplainRates(out, answer);
  ExplainDecode(out, answer, answer.decode_one);
  if (answer.decode_many.users > 1) ExplainDecode(out, answer, answer.decode_many);
  ExplainPrefill(out, answer);
  if (answer.hardware.price_per_hour && answer.output_price && answer.prompt_price) {
    fmt::format_to(
        out,
        "  a million tokens written: ${} an hour x {} / 3600 s / {} tokens/s x 1e6 = "
        "${}\n",
        ShortText(*answer.hardware.price_per_hour), answer.choices.parallel.DevicesCount(),
        ShortText(answer.decode_many.tokens_per_second), ShortText(*answer.output_price));
    fmt::format_to(
        out,
        "  a million tokens of prompt: ${} an hour x {} / 3600 s / ({} tokens/s x {} stage{}) x "
        "1e6 = ${}\n",
        ShortText(*answer.hardware.price_per_hour), answer.choices.parallel.DevicesCount(),
        ShortText(answer.prefill.tokens_per_second), answer.choices.parallel.pipeline,
        answer.choices.parallel.pipeline == 1 ? "" : "s", ShortText(*answer.prompt_price));
  }
  return text;
}

}  // namespace kvasir::plan
