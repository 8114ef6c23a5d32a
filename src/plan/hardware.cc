#include "plan/hardware.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "files/json.h"
#include "files/mapped_file.h"
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
    fields.Fail("peak_tflops", status.error().message);
  } else if (out.PeakFlops(Math::kF32) <= 0 && out.PeakFlops(Math::kBF16) <= 0) {
    fields.Fail("peak_tflops", "expected at least one of f32 and bf16");
  }
}

// Sockets, channels and instruction set to bandwidth and operations.
void ReadCpu(JsonFields& fields, Hardware& out) {
  const double sockets = fields.Required("sockets", 1, 64);
  const double channels = fields.Required("channels_per_socket", 1, 64);
  const double transfers = 1e6 * fields.Required("megatransfers_per_s", 100, 1e6);
  const double cores = fields.Required("cores_per_socket", 1, 4096);
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
  if (fields.Has("memory_mib")) {
    return static_cast<int64_t>(kMiB * fields.Required("memory_mib", 1, 1024 * kMost));
  }
  return static_cast<int64_t>(kGiB * fields.Required("memory_gib", 1.0 / 1024, kMost));
}

Result<Hardware> FromJson(const nlohmann::json& json, std::string_view name,
                          const std::string& what) {
  if (!json.is_object()) {
    return MakeError(ErrorCode::kInvalidArgument, "{}: expected a JSON object, got {}", what,
                     json.type_name());
  }
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
  if (fields.Has("sockets")) {
    ReadCpu(fields, out);
  } else {
    out.bandwidth = 1e9 * fields.Required("bandwidth_gb_per_s", 1e-3, 1e7);
    ReadPeaks(fields, what, out);
  }
  out.link_bandwidth = 1e9 * fields.Number("link_gb_per_s", 0, 0, 1e6);
  out.link_latency_s = kMicrosecond * fields.Number("link_latency_us", 0, 0, 1e6);
  out.devices_linked = static_cast<int64_t>(fields.Number("devices_linked", 1, 1, 65536));
  if (out.devices_linked > 1 && out.link_bandwidth <= 0) {
    fields.Fail("link_gb_per_s", "expected above 0, as devices_linked is above 1");
  }
  out.layer_overhead_s = kMicrosecond * fields.Number("layer_overhead_us", 0, 0, 1e6);
  out.step_overhead_s = kMicrosecond * fields.Number("step_overhead_us", 0, 0, 1e7);
  out.price_per_hour = fields.Number("price_per_hour_usd", 0, 0, 1e6);
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
  for (const Hardware& hardware : HardwareCatalogue()) {
    if (hardware.name == name) return hardware;
    names.push_back(hardware.name);
  }
  if (name.ends_with(".json") || name.find('/') != std::string_view::npos) {
    constexpr int64_t kMostBytes = 1'000'000;
    KVASIR_ASSIGN_OR_RETURN(const std::string text,
                            files::ReadTextFile(std::filesystem::path(name), kMostBytes));
    return HardwareFromJson(text, name);
  }
  return UnknownName("hardware", name, names, "a machine of the catalogue, 'this' or a .json file");
}

}  // namespace kvasir::plan
