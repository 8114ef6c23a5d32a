#include "plan/hardware.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/strings.h"
#include "files/json.h"
#include "files/mapped_file.h"
#include "files/printable.h"
#include "plan/catalogue.h"
#include "plan/json_fields.h"
#include "plan/nearest.h"

namespace kvasir::plan {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;
constexpr double kMicrosecond = 1e-6;

constexpr std::array kAllMath = {Math::kF32, Math::kBF16, Math::kF8, Math::kI8, Math::kF4};

// Operations a cycle and core (a multiply and an add are two), by instruction set. AVX2: two FMA
// units of 8 floats; bytes take maddubs, madd and add on three pipes. AVX-512 with VNNI: two units
// of 16 floats, or of 64 bytes. AMX: a tile product of 16 x 16 x 64 bytes in 16 cycles.
struct InstructionSet {
  std::string_view name;
  std::string_view kernels;  // the server's backend there
  double f32;
  double bf16;
  double int8;
};
constexpr std::array kInstructionSets = {
    InstructionSet{"avx2", "avx2", 32, 32, 64},
    InstructionSet{"avx512", "avx512", 64, 64, 256},
    InstructionSet{"amx", "avx512", 64, 1024, 2048},
};

// In place of bandwidth_gb_per_s and peak_tflops.
constexpr std::array<std::string_view, 6> kCpuFields = {
    "sockets",          "channels_per_socket", "megatransfers_per_s",
    "cores_per_socket", "clock_ghz",           "instruction_set"};
constexpr std::array<std::string_view, 14> kFields = {"name",
                                                      "title",
                                                      "source",
                                                      "kind",
                                                      "memory_gib",
                                                      "memory_mib",
                                                      "bandwidth_gb_per_s",
                                                      "peak_tflops",
                                                      "link_gb_per_s",
                                                      "link_latency_us",
                                                      "devices_linked",
                                                      "layer_overhead_us",
                                                      "step_overhead_us",
                                                      "price_per_hour_usd"};

Status CheckNames(const nlohmann::json& json, const std::string& what) {
  for (const auto& [key, value] : json.items()) {
    const std::string_view name = key;
    if (std::ranges::find(kFields, name) != kFields.end() ||
        std::ranges::find(kCpuFields, name) != kCpuFields.end()) {
      continue;
    }
    std::string_view nearest = kFields.front();
    const auto nearer = [&](std::string_view known) {
      if (EditDistance(name, known) < EditDistance(name, nearest)) nearest = known;
    };
    std::ranges::for_each(kFields, nearer);
    std::ranges::for_each(kCpuFields, nearer);
    return MakeParamError(ErrorCode::kDataLoss, key, "{}: {}: no such field; nearest: {}", what,
                          files::Printable(name.substr(0, 60), 60), nearest);
  }
  return Status::Ok();
}

void ReadPeaks(JsonFields& fields, const std::string& what, Hardware& out) {
  const nlohmann::json* object = fields.Object("peak_tflops");
  if (object == nullptr) {
    fields.Fail("peak_tflops", "expected an object such as {\"bf16\": 989}, but it is missing");
    return;
  }
  JsonFields peaks(*object, what + ": peak_tflops");
  for (const Math math : kAllMath) {
    const std::string name(MathName(math));
    out.peak_flops[static_cast<size_t>(math)] = 1e12 * peaks.Number(name, 0, 1e-6, 1e6);
  }
  if (const Status status = peaks.Finish(); !status.ok()) {
    fields.Fail(status.error());
  } else if (out.PeakFlops(Math::kF32) <= 0 && out.PeakFlops(Math::kBF16) <= 0) {
    fields.Fail("peak_tflops", "expected at least one of f32 and bf16");
  }
}

// Sockets, channels and instruction set to bandwidth and operations.
void ReadCpu(JsonFields& fields, Hardware& out) {
  const auto sockets = static_cast<double>(fields.RequiredInteger("sockets", 1, 64));
  const auto channels = static_cast<double>(fields.RequiredInteger("channels_per_socket", 1, 64));
  const double transfers = 1e6 * fields.Required("megatransfers_per_s", 100, 1e6);
  const auto cores = static_cast<double>(fields.RequiredInteger("cores_per_socket", 1, 4096));
  const double clock = 1e9 * fields.Required("clock_ghz", 0.1, 20);
  const std::string name = fields.RequiredString("instruction_set");
  const auto* set = std::find_if(kInstructionSets.begin(), kInstructionSets.end(),
                                 [&](const InstructionSet& known) { return known.name == name; });
  if (set == kInstructionSets.end()) {
    fields.Fail("instruction_set",
                fmt::format("expected avx2, avx512 or amx, got '{}'", name.substr(0, 40)));
    return;
  }
  constexpr double kChannelBytes = 8;
  out.bandwidth = sockets * channels * transfers * kChannelBytes;
  out.cores = static_cast<int64_t>(sockets * cores);
  out.kernels = set->kernels;
  const double cycles = sockets * cores * clock;
  out.peak_flops[static_cast<size_t>(Math::kF32)] = cycles * set->f32;
  out.peak_flops[static_cast<size_t>(Math::kBF16)] = cycles * set->bf16;
  out.peak_flops[static_cast<size_t>(Math::kI8)] = cycles * set->int8;
}

int64_t ReadMemory(JsonFields& fields) {
  constexpr double kMost = 1e6;  // GiB: a petabyte
  if (fields.Has("memory_mib") && fields.Has("memory_gib")) {
    fields.Fail("memory_mib", "expected it or memory_gib, got both");
  }
  if (fields.Has("memory_mib")) {
    return static_cast<int64_t>(kMiB * fields.Required("memory_mib", 1, 1024 * kMost));
  }
  return static_cast<int64_t>(kGiB * fields.Required("memory_gib", 1.0 / 1024, kMost));
}

Result<Hardware> FromJson(const nlohmann::json& json, std::string_view name,
                          const std::string& what) {
  if (!json.is_object()) {
    return MakeError(ErrorCode::kDataLoss, "{}: expected a JSON object, got {}", what,
                     json.type_name());
  }
  // First of all what is written wrong: what seems to be missing may be meant by it.
  KVASIR_RETURN_IF_ERROR(CheckNames(json, what));
  JsonFields fields(json, what);
  Hardware out;
  out.name = fields.String("name", name);
  out.title = fields.String("title", out.name);
  out.source = fields.String("source", what);
  const std::string kind = fields.String("kind", "gpu");
  if (kind != "gpu" && kind != "cpu") {
    fields.Fail("kind", fmt::format("expected gpu or cpu, got '{}'", kind.substr(0, 40)));
  }
  out.kind = kind == "cpu" ? Hardware::Kind::kCpu : Hardware::Kind::kGpu;
  out.memory_bytes = ReadMemory(fields);
  const auto given = [&](std::string_view key) { return fields.Has(key); };
  if (std::ranges::any_of(kCpuFields, given)) {
    for (const std::string_view key : {"bandwidth_gb_per_s", "peak_tflops"}) {
      if (fields.Has(key)) {
        fields.Fail(key, "expected none beside sockets, channels and cores, which give it");
      }
    }
    ReadCpu(fields, out);
  } else {
    out.bandwidth = 1e9 * fields.Required("bandwidth_gb_per_s", 1e-3, 1e7);
    ReadPeaks(fields, what, out);
  }
  out.link_bandwidth = 1e9 * fields.Number("link_gb_per_s", 0, 0, 1e6);
  out.link_latency_s = kMicrosecond * fields.Number("link_latency_us", 0, 0, 1e6);
  out.devices_linked = fields.Integer("devices_linked", 1, 1, 65536);
  if (out.devices_linked > 1 && out.link_bandwidth <= 0) {
    fields.Fail("link_gb_per_s", "expected above 0, as devices_linked is above 1");
  }
  out.layer_overhead_s = kMicrosecond * fields.Number("layer_overhead_us", 0, 0, 1e6);
  out.step_overhead_s = kMicrosecond * fields.Number("step_overhead_us", 0, 0, 1e7);
  const double price = fields.Number("price_per_hour_usd", -1, 0, 1e6);
  if (price >= 0) out.price_per_hour = price;
  KVASIR_RETURN_IF_ERROR(fields.Finish());
  return out;
}

}  // namespace

Math Hardware::UsedMath(const NumberFormat& format) const {
  const auto has = [this](Math math) { return PeakFlops(math) > 0; };
  const bool quantized = format.math != Math::kF32 && format.math != Math::kBF16;
  if (kind == Kind::kCpu && (quantized || format.block_values > 1) && has(Math::kI8)) {
    return Math::kI8;
  }
  if (has(format.math)) return format.math;
  return has(Math::kBF16) ? Math::kBF16 : Math::kF32;
}

Result<Hardware> HardwareFromJson(std::string_view text, std::string_view what) {
  KVASIR_ASSIGN_OR_RETURN(const nlohmann::json json, files::ParseJson(text, what));
  if (const auto key = RepeatedKey(text)) {
    return MakeParamError(ErrorCode::kDataLoss, *key,
                          "{}: {}: expected each field once, got it twice", what,
                          files::Printable(*key, 60));
  }
  const std::string name = std::filesystem::path(what).stem().string();
  return FromJson(json, name, std::string(what));
}

const std::vector<Hardware>& HardwareCatalogue() {
  static const std::vector<Hardware> catalogue = [] {
    std::vector<Hardware> all;
    for (const EmbeddedFile& file : kMachineFiles) {
      auto hardware = HardwareFromJson(file.text, file.name);
      // A test reads every file; the name is the file's.
      KVASIR_CHECK(hardware.ok(), "{}", hardware.error().message);
      hardware->name = file.name;
      all.push_back(*std::move(hardware));
    }
    return all;
  }();
  return catalogue;
}

Result<Hardware> FindHardware(std::string_view name) {
  if (name == "this") return ProbeHardware();
  std::vector<std::string> names = {"this"};
  const std::string lower = LowerCase(name);
  for (const Hardware& hardware : HardwareCatalogue()) {
    if (hardware.name == lower) return hardware;
    names.push_back(hardware.name);
  }
  if (name.ends_with(".json") || name.find('/') != std::string_view::npos) {
    constexpr int64_t kMostBytes = 1'000'000;
    KVASIR_ASSIGN_OR_RETURN(const std::string text,
                            files::ReadTextFile(std::filesystem::path(name), kMostBytes));
    return HardwareFromJson(text, name);
  }
  Error unknown =
      UnknownName("hardware", name, names, "a machine of the catalogue, 'this' or a .json file");
  unknown.code = ErrorCode::kInvalidArgument;  // a wrong word, not a file that is missing
  return unknown;
}

}  // namespace kvasir::plan
