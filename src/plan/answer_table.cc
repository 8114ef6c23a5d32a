// The answer for people.
#include <fmt/format.h>

#include <array>
#include <iterator>

#include "base/strings.h"
#include "plan/answer.h"
#include "plan/units.h"

namespace kvasir::plan {
namespace {

using Out = std::back_insert_iterator<std::string>;

constexpr std::array<int64_t, 4> kTableUsers = {1, 10, 50, 100};
// Whose reservations are added up.
constexpr std::array<int64_t, 2> kReservedUsers = {10, 20};

double AsDouble(int64_t value) { return static_cast<double>(value); }

void Row(Out out, std::string_view name, const std::string& value) {
  fmt::format_to(out, "{:<22}{}\n", name, value);
}

std::string DevicesText(const Hardware& hardware, int64_t count) {
  return count == 1 ? hardware.name : fmt::format("{} x {}", count, hardware.name);
}

std::string Joined(const Parallel& parallel) {
  std::string text;
  const auto add = [&](int64_t degree, std::string_view name) {
    if (degree > 1) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, degree);
  };
  add(parallel.tensor, "tensor parallel");
  add(parallel.pipeline, "pipeline parallel");
  add(parallel.expert, "expert parallel");
  return text;
}

void AddHead(Out out, const Answer& answer) {
  const ModelShape& model = answer.model;
  const Hardware& hardware = answer.hardware;
  std::string size = ParametersText(model.ParametersCount()) + " parameters";
  if (model.experts.experts_count > 0) {
    size += fmt::format(", {} used by a token ({} of {} experts in {} layers)",
                        ParametersText(model.ActiveParametersCount()), model.experts.used_count,
                        model.experts.experts_count, model.experts.layers_count);
  }
  if (model.skipped_values > 0) {
    size += fmt::format("; {} more for multi-token prediction are not loaded",
                        ParametersText(model.skipped_values));
  }
  Row(out, "model", fmt::format("{} ({}): {}", model.name, model.architecture, size));
  std::string peaks;
  for (const Math math : {Math::kF32, Math::kBF16, Math::kF8, Math::kI8, Math::kF4}) {
    if (hardware.PeakFlops(math) <= 0 || (math == Math::kF32 && !peaks.empty())) continue;
    if (math == Math::kF32 && hardware.kind == Hardware::Kind::kGpu) continue;
    peaks +=
        fmt::format(", {} Top/s {}", ShortText(hardware.PeakFlops(math) / 1e12), MathName(math));
  }
  Row(out, "machine",
      fmt::format("{}: {} memory, {}/s{}", hardware.title,
                  BytesText(AsDouble(hardware.memory_bytes)), BytesText(hardware.bandwidth),
                  peaks));
  const Parallel& parallel = answer.choices.parallel;
  if (parallel.DevicesCount() > 1) {
    Row(out, "", fmt::format("{} of them: {}", parallel.DevicesCount(), Joined(parallel)));
  }
}

void AddMemory(Out out, const Answer& answer) {
  const MemoryPlan& memory = answer.memory;
  fmt::format_to(out, "\nWeights\n");
  const bool stored = answer.options.as_shipped && answer.model.stored;
  for (size_t i = 0; i < kPartCount; ++i) {
    if (memory.part_bytes[i] == 0) continue;
    Row(out, fmt::format("  {}", PartName(static_cast<Part>(i))),
        fmt::format(
            "{:>10}  {}", BytesText(AsDouble(memory.part_bytes[i])),
            stored ? answer.model.stored->part_formats[i] : answer.options.weights[i].name));
  }
  const int64_t not_loaded = stored ? answer.model.stored->bytes - memory.weights_bytes : 0;
  Row(out, "  all",
      fmt::format("{:>10}{}", BytesText(AsDouble(memory.weights_bytes)),
                  not_loaded > 0 ? fmt::format("  and {} of the files that serving does not load",
                                               BytesText(AsDouble(not_loaded)))
                                 : ""));

  fmt::format_to(out, "\nKV cache ({})\n", answer.options.kv.name);
  for (const KvKind& kind : answer.kv_kinds) {
    std::string what;
    if (kind.bytes_per_token > 0) {
      what = fmt::format("{} B a token", CountText(kind.bytes_per_token));
    }
    if (kind.window_tokens > 0) {
      what += fmt::format(", for the last {} tokens", CountText(kind.window_tokens));
    }
    if (kind.bytes_per_sequence > 0) {
      what += fmt::format("{} a sequence, whatever its length",
                          BytesText(AsDouble(kind.bytes_per_sequence)));
    }
    Row(out, fmt::format("  {} {}", kind.layers_count, LayerKindName(kind.kind)), what);
  }
  Row(out, "  all layers",
      fmt::format("{} B a token, {} B of it growing with context",
                  CountText(answer.kv_bytes_per_token),
                  CountText(answer.kv_bytes_per_token_growing)));

  const bool many = answer.choices.parallel.DevicesCount() > 1;
  fmt::format_to(out, "\nMemory{}\n", many ? " of each device" : "");
  const auto bytes = [](int64_t value) {
    return fmt::format("{:>10}", BytesText(AsDouble(value)));
  };
  Row(out, fmt::format("  usable ({:.0f} %)", 100 * answer.options.utilization),
      bytes(memory.usable_bytes_per_device));
  Row(out, "  weights",
      bytes(memory.weights_bytes_per_device) + (memory.loaded ? "  as the server holds them" : ""));
  Row(out, "  activations",
      bytes(memory.activations_bytes_per_device) +
          fmt::format("  steps of {}", CountedText(answer.choices.step_tokens, "token")));
  Row(out, "  workspace", bytes(memory.workspace_bytes_per_device));
  Row(out, "  left for the KV cache",
      bytes(memory.left_bytes_per_device) +
          (memory.left_bytes_per_device > 0 ? "" : "  does not fit"));
}

void AddUsers(Out out, const Answer& answer) {
  const Choices& choices = answer.choices;
  fmt::format_to(out, "\nUsers at once\n");
  const std::string shared = choices.shared_prefix > 0 ? fmt::format(", {:.0f} % of it shared",
                                                                     100 * choices.shared_prefix)
                                                       : "";
  Row(out, "  paged",
      fmt::format("{:>10}  of {} each{}", CountText(answer.users_paged),
                  TokensWords(choices.context_tokens), shared));
  const int64_t reserved = SequenceBytes(answer.memory, choices.reserved_tokens);
  std::string sums;
  for (const int64_t users : kReservedUsers) {
    sums += fmt::format("{}{} of them {}", sums.empty() ? "" : ", ", users,
                        BytesText(AsDouble(users * reserved)));
  }
  Row(out, "  reserved",
      fmt::format("{:>10}  where each reserves {}, {}: {}", CountText(answer.users_reserved),
                  TokensWords(choices.reserved_tokens), BytesText(AsDouble(reserved)), sums));
  if (answer.users_reserved_whole != answer.users_reserved) {
    Row(out, "",
        fmt::format("{:>10}  where windowed layers reserve as much (--kv-allocation reserved)",
                    CountText(answer.users_reserved_whole)));
  }
  Row(out, "  devices",
      answer.devices_needed > 0
          ? fmt::format("{:>10}  hold the weights", CountText(answer.devices_needed))
          : fmt::format("{:>10}  a device has no room beside activations", "none"));
  const std::string served =
      fmt::format("serve {} of {}", CountedText(answer.serving_users, "user"),
                  TokensWords(choices.context_tokens));
  if (answer.serving) {
    const std::string joined = Joined(*answer.serving);
    Row(out, "",
        fmt::format("{:>10}  {}{}", CountText(answer.serving->DevicesCount()), served,
                    joined.empty() ? "" : " (" + joined + ")"));
  } else {
    Row(out, "", fmt::format("{:>10}  up to 1,024 {}", "none", served));
  }

  fmt::format_to(out, "\nKV cache by context and users (- does not fit)\n");
  fmt::format_to(out, "  {:>9} {:>11}", "context", "growing");
  for (const int64_t users : kTableUsers) {
    fmt::format_to(out, " {:>10}", CountedText(users, "user"));
  }
  fmt::format_to(out, " {:>11}\n", "users fit");
  for (const ContextRow& row : answer.rows) {
    fmt::format_to(out, "  {:>9} {:>11}", TokensText(row.context_tokens),
                   BytesText(AsDouble(row.growing_bytes)));
    const auto shared_tokens =
        static_cast<int64_t>(AsDouble(row.context_tokens) * choices.shared_prefix);
    const int64_t shared_bytes = SharedBytes(answer.memory, shared_tokens);
    for (const int64_t users : kTableUsers) {
      const int64_t bytes = shared_bytes + users * (row.sequence_bytes - shared_bytes);
      fmt::format_to(out, " {:>10}", users <= row.users_paged ? BytesText(AsDouble(bytes)) : "-");
    }
    fmt::format_to(out, " {:>11}\n", CountText(row.users_paged));
  }
}

std::string StepText(const StepTime& step) {
  return fmt::format("{} binds (memory {}, compute {}{}, overhead {})", BoundName(step.bound),
                     SecondsText(step.memory_s), SecondsText(step.compute_s),
                     step.link_s > 0 ? ", link " + SecondsText(step.link_s) : "",
                     SecondsText(step.overhead_s));
}

void AddSpeed(Out out, const Answer& answer) {
  const Choices& choices = answer.choices;
  const bool bounds = choices.bandwidth_share == 1.0 && choices.compute_share == 1.0;
  fmt::format_to(out, "\nSpeed at {}, {}\n", TokensWords(choices.context_tokens),
                 bounds ? "at most (bounds)"
                        : fmt::format("at {:.0f} % of the bandwidth and {:.0f} % of the operations",
                                      100 * choices.bandwidth_share, 100 * choices.compute_share));
  const auto decode = [&](const DecodeSpeed& speed) {
    const std::string users = CountedText(speed.users, "user");
    // Fewer than were asked for: said in the label, which is wider than its column then.
    const bool all = speed.users == answer.users_served && speed.users < choices.users;
    Row(out, fmt::format("  decode, {}{}", users, all ? " (all that fit) " : ""),
        fmt::format("{:>10} tokens/s, {} a token", ShortText(speed.tokens_per_second),
                    SecondsText(speed.step.seconds)));
    Row(out, "", StepText(speed.step));
  };
  decode(answer.decode_one);
  if (answer.decode_many.users > 1) decode(answer.decode_many);
  const PrefillSpeed& prefill = answer.prefill;
  Row(out, "  prefill",
      fmt::format("{:>10} tokens/s, {} for {} in {}; {} binds",
                  ShortText(prefill.tokens_per_second), SecondsText(prefill.seconds),
                  TokensWords(prefill.tokens), CountedText(prefill.steps_count, "step"),
                  BoundName(prefill.bound)));
  if (!answer.hardware.price_per_hour) {
    Row(out, "  cost", "unknown: set it with --price (US dollars an hour and device)");
    return;
  }
  if (!answer.output_price || !answer.prompt_price) return;
  Row(out, "  a million tokens",
      fmt::format(
          "{:>10} written by {}, ${} of prompt (at ${} an hour for {})",
          "$" + ShortText(*answer.output_price), CountedText(answer.decode_many.users, "user"),
          ShortText(*answer.prompt_price),
          ShortText(*answer.hardware.price_per_hour * AsDouble(choices.parallel.DevicesCount())),
          DevicesText(answer.hardware, choices.parallel.DevicesCount())));
}

void AddNoRoom(Out out, const Answer& answer) {
  const Choices& choices = answer.choices;
  const int64_t devices = choices.parallel.DevicesCount();
  fmt::format_to(out, "\nSpeed\n");
  Row(out, "  none",
      fmt::format("{} {} not fit on {}", answer.model.name,
                  answer.memory.left_bytes_per_device > 0
                      ? fmt::format("with a user of {} does", TokensWords(choices.context_tokens))
                      : "does",
                  DevicesText(answer.hardware, devices)));
  const std::string served = fmt::format("{} of {}", CountedText(answer.serving_users, "user"),
                                         TokensWords(choices.context_tokens));
  if (!answer.serving) {
    Row(out, "", fmt::format("no number up to 1,024 x {} serves {}", answer.hardware.name, served));
    return;
  }
  const std::string joined = Joined(*answer.serving);
  Row(out, "",
      fmt::format("{} take{} {}{}", served, answer.serving_users == 1 ? "s" : "",
                  DevicesText(answer.hardware, answer.serving->DevicesCount()),
                  joined.empty() ? "" : " (" + joined + ")"));
}

}  // namespace

std::string ToTable(const Answer& answer) {
  std::string text;
  const Out out(text);
  AddHead(out, answer);
  AddMemory(out, answer);
  AddUsers(out, answer);
  if (answer.fits()) {
    AddSpeed(out, answer);
  } else {
    AddNoRoom(out, answer);
  }
  return text;
}

}  // namespace kvasir::plan
