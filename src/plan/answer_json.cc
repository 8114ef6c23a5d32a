#include <nlohmann/json.hpp>

#include "plan/answer.h"

namespace kvasir::plan {
namespace {

using Json = nlohmann::ordered_json;

Json ParallelJson(const Parallel& parallel) {
  return {{"tensor", parallel.tensor},
          {"pipeline", parallel.pipeline},
          {"expert", parallel.expert},
          {"devices", parallel.DevicesCount()}};
}

Json ModelJson(const ModelShape& model) {
  Json out;
  out["name"] = model.name;
  out["architecture"] = model.architecture;
  out["source"] = model.source;
  out["parameters_count"] = model.ParametersCount();
  out["active_parameters_count"] = model.ActiveParametersCount();
  out["skipped_parameters_count"] = model.skipped_values;
  out["layers_count"] = model.layers_count;
  out["hidden_size"] = model.hidden_size;
  out["vocab_size"] = model.vocab_size;
  out["max_positions"] = model.max_positions;
  return out;
}

Json HardwareJson(const Hardware& hardware) {
  Json out;
  out["name"] = hardware.name;
  out["title"] = hardware.title;
  out["source"] = hardware.source;
  out["memory_bytes"] = hardware.memory_bytes;
  out["bandwidth_bytes_per_second"] = hardware.bandwidth;
  Json& peaks = out["peak_flops"] = Json::object();
  for (const Math math : {Math::kF32, Math::kBF16, Math::kF8, Math::kI8, Math::kF4}) {
    if (hardware.PeakFlops(math) > 0) peaks[std::string(MathName(math))] = hardware.PeakFlops(math);
  }
  out["link_bytes_per_second"] = hardware.link_bandwidth;
  out["devices_linked"] = hardware.devices_linked;
  out["price_per_hour_usd"] = hardware.price_per_hour ? Json(*hardware.price_per_hour) : Json();
  if (hardware.kind == Hardware::Kind::kCpu) {
    out["cores"] = hardware.cores;
    out["kernels"] = hardware.kernels;
  }
  return out;
}

Json WeightsJson(const Answer& answer) {
  Json parts = Json::array();
  for (size_t i = 0; i < kPartCount; ++i) {
    const auto part = static_cast<Part>(i);
    if (answer.memory.part_bytes[i] == 0) continue;
    const bool stored = answer.options.as_shipped && answer.model.stored;
    parts.push_back(
        {{"part", PartName(part)},
         {"parameters_count", answer.model.ParametersCount(part)},
         {"format", stored ? answer.model.stored->part_formats[i] : answer.options.weights[i].name},
         {"bytes", answer.memory.part_bytes[i]}});
  }
  return parts;
}

Json KvJson(const Answer& answer) {
  Json kinds = Json::array();
  for (const KvKind& kind : answer.kv_kinds) {
    kinds.push_back({{"kind", LayerKindName(kind.kind)},
                     {"layers_count", kind.layers_count},
                     {"window_tokens", kind.window_tokens},
                     {"bytes_per_token", kind.bytes_per_token},
                     {"bytes_per_sequence", kind.bytes_per_sequence},
                     {"grows_with_context", kind.grows}});
  }
  return kinds;
}

Json StepJson(const StepTime& step) {
  return {{"seconds", step.seconds},
          {"memory_seconds", step.memory_s},
          {"compute_seconds", step.compute_s},
          {"link_seconds", step.link_s},
          {"overhead_seconds", step.overhead_s},
          {"bound", BoundName(step.bound)}};
}

Json DecodeJson(const DecodeSpeed& speed) {
  Json out = StepJson(speed.step);
  out["users"] = speed.users;
  out["tokens_per_second"] = speed.tokens_per_second;
  out["tokens_per_second_per_user"] = 1.0 / speed.step.seconds;
  return out;
}

Json PrefillJson(const PrefillSpeed& speed) {
  return {{"tokens", speed.tokens},
          {"steps_count", speed.steps_count},
          {"seconds", speed.seconds},
          {"tokens_per_second", speed.tokens_per_second},
          {"bound", BoundName(speed.bound)}};
}

}  // namespace

Json ToJson(const Answer& answer) {
  const MemoryPlan& memory = answer.memory;
  const Choices& choices = answer.choices;
  Json out;
  out["model"] = ModelJson(answer.model);
  out["hardware"] = HardwareJson(answer.hardware);
  out["choices"] = {{"weights", choices.weights ? choices.weights->name : "as shipped"},
                    {"kv_cache_dtype", answer.options.kv.name},
                    {"context_tokens", choices.context_tokens},
                    {"max_model_len", choices.reserved_tokens},
                    {"users", choices.users},
                    {"block_size", choices.block_tokens},
                    {"parallel", ParallelJson(choices.parallel)},
                    {"memory_utilization", choices.utilization},
                    {"shared_prefix", choices.shared_prefix},
                    {"max_num_batched_tokens", choices.step_tokens},
                    {"bandwidth_share", choices.bandwidth_share},
                    {"compute_share", choices.compute_share}};
  out["weights_bytes"] = memory.weights_bytes;
  out["weights_bytes_per_device"] = memory.weights_bytes_per_device;
  if (memory.loaded) {
    out["weights_packed_bytes"] = memory.loaded->packed_bytes;
    out["weights_mapped_bytes"] = memory.loaded->mapped_bytes;
  }
  out["weights"] = WeightsJson(answer);
  out["kv_bytes_per_token"] = answer.kv_bytes_per_token;
  out["kv_bytes_per_token_growing"] = answer.kv_bytes_per_token_growing;
  out["kv_bytes_per_sequence"] = memory.state_bytes_per_sequence;
  out["kv_block_bytes"] = memory.cache.block_bytes;
  out["kv_groups_count"] = memory.cache.groups.size();
  out["kv_layers"] = KvJson(answer);
  out["activations_bytes_per_device"] = memory.activations_bytes_per_device;
  out["workspace_bytes_per_device"] = memory.workspace_bytes_per_device;
  out["usable_bytes_per_device"] = memory.usable_bytes_per_device;
  out["left_bytes_per_device"] = memory.left_bytes_per_device;
  out["kv_copies"] = memory.kv_copies;
  out["kv_budget_bytes"] = memory.kv_budget_bytes;
  out["kv_blocks_count"] = memory.cache.blocks_count;
  out["kv_bytes_per_user"] = SequenceBytes(memory, choices.context_tokens);
  out["kv_bytes_reserved_per_user"] = SequenceBytes(memory, choices.reserved_tokens);
  out["users_paged"] = answer.users_paged;
  out["users_reserved"] = answer.users_reserved;
  out["users_reserved_whole"] = answer.users_reserved_whole;
  out["devices_needed"] = answer.devices_needed;
  out["users_served"] = answer.users_served;
  out["users_to_serve"] = answer.serving_users;
  out["devices_to_serve"] = answer.serving ? Json(answer.serving->DevicesCount()) : Json();
  out["parallel_to_serve"] = answer.serving ? ParallelJson(*answer.serving) : Json();
  out["peak_bytes_per_device"] = answer.peak_bytes_per_device;
  Json& rows = out["contexts"] = Json::array();
  for (const ContextRow& row : answer.rows) {
    rows.push_back({{"context_tokens", row.context_tokens},
                    {"kv_growing_bytes", row.growing_bytes},
                    {"kv_bytes_per_user", row.sequence_bytes},
                    {"users_paged", row.users_paged}});
  }
  // Nothing is fast that does not fit.
  out["decode_one"] = answer.fits() ? DecodeJson(answer.decode_one) : Json();
  out["decode_many"] = answer.fits() ? DecodeJson(answer.decode_many) : Json();
  out["prefill"] = answer.fits() ? PrefillJson(answer.prefill) : Json();
  const auto price = [](const std::optional<double>& usd) { return usd ? Json(*usd) : Json(); };
  out["usd_per_million_output_tokens"] = price(answer.output_price);
  out["usd_per_million_prompt_tokens"] = price(answer.prompt_price);
  return out;
}

}  // namespace kvasir::plan
