#include "plan/simulate/calibration.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/strings.h"
#include "files/json.h"
#include "files/printable.h"
#include "plan/json_fields.h"
#include "plan/units.h"

namespace kvasir::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "kvasir-calibration";
constexpr int64_t kVersion = 1;
constexpr size_t kPointsMax = 1'000;  // the fit's work grows with their cube
constexpr size_t kGroupsMax = 1'000;
constexpr int64_t kBytesMax = 1'000'000'000'000'000;
constexpr int64_t kTokensMax = 1'000'000'000;
constexpr int64_t kSequencesMax = 65'536;
constexpr int64_t kThreadsMax = 1'000'000;
// Of one step, and of what the engine adds to one: a simulation of millions of them must end.
constexpr double kStepSecondsMax = 3600;
constexpr double kHostSecondsMax = 10;

// Reads members of one object; the first thing that is wrong stays.
class Members {
 public:
  Members(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object()) Complain("", "an object", object);
  }

  int64_t Count(const char* name, int64_t most) {
    const nlohmann::json* value = Find(name);
    if (value == nullptr) return 0;
    if (!value->is_number_integer() || value->get<int64_t>() < 0 || value->get<int64_t>() > most) {
      Complain(name, fmt::format("an integer from 0 to {}", most), *value);
      return 0;
    }
    return value->get<int64_t>();
  }

  double Seconds(const char* name, bool zero_allowed, double most) {
    const nlohmann::json* value = Find(name);
    if (value == nullptr) return 0;
    const double seconds = value->is_number() ? value->get<double>() : -1.0;
    // Written so that NaN fails.
    if (!(seconds >= 0 && seconds <= most) || (seconds == 0 && !zero_allowed)) {
      Complain(
          name,
          fmt::format("{} seconds, at most {:g}", zero_allowed ? "0 or more" : "more than 0", most),
          *value);
      return 0;
    }
    return seconds;
  }

  bool Bool(const char* name) {
    const nlohmann::json* value = Find(name);
    if (value == nullptr) return false;
    if (!value->is_boolean()) {
      Complain(name, "true or false", *value);
      return false;
    }
    return value->get<bool>();
  }

  std::string Text(const char* name) {
    const nlohmann::json* value = Find(name);
    if (value == nullptr) return {};
    if (!value->is_string()) {
      Complain(name, "a text", *value);
      return {};
    }
    const std::string& text = value->get_ref<const std::string&>();
    if (text.empty() || HasControlCharacter(text)) {
      Complain(name, "a text of printable characters", *value);
      return {};
    }
    return text;
  }

  std::string OneOf(const char* name, std::initializer_list<std::string_view> known) {
    std::string text = Text(name);
    if (!status_.ok() || std::ranges::find(known, text) != known.end()) return text;
    std::string words;
    for (const std::string_view word : known) {
      words += fmt::format("{}'{}'", words.empty() ? "" : ", ", word);
    }
    Complain(name, "one of " + words, text);
    return {};
  }

  const nlohmann::json& List(const char* name, size_t size_max) {
    static const nlohmann::json empty = nlohmann::json::array();
    const nlohmann::json* value = Find(name);
    if (value == nullptr) return empty;
    if (!value->is_array() || value->empty() || value->size() > size_max) {
      Complain(name, fmt::format("a list of 1 to {} members", size_max), *value);
      return empty;
    }
    return *value;
  }

  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const nlohmann::json* Find(const char* name) {
    if (!status_.ok()) return nullptr;
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    status_ =
        MakeError(ErrorCode::kDataLoss, "{}: expected the field '{}', found none", where_, name);
    return nullptr;
  }

  void Complain(const char* name, std::string_view expected, const nlohmann::json& got) {
    if (!status_.ok()) return;
    constexpr size_t kShown = 60;
    std::string shown = got.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    if (shown.size() > kShown) shown.replace(kShown, std::string::npos, "...");
    status_ = MakeError(ErrorCode::kDataLoss, "{}: {}{}expected {}, got {}", where_, name,
                        *name == '\0' ? "" : ": ", expected, shown);
  }

  const nlohmann::json& object_;
  std::string where_;
  Status status_;
};

Result<CalibrationPoint> ReadPoint(const nlohmann::json& object, const std::string& where) {
  Members members(object, where);
  CalibrationPoint point;
  point.prefill_tokens = members.Count("prefill_tokens", kTokensMax);
  point.prefill_start = members.Count("prefill_start", kTokensMax);
  point.prefill_draws = members.Bool("prefill_draws");
  point.decode_sequences = members.Count("decode_sequences", kSequencesMax);
  point.decode_context = members.Count("decode_context", kTokensMax);
  point.seconds = members.Seconds("seconds", false, kStepSecondsMax);
  point.seconds_min = members.Seconds("seconds_min", false, kStepSecondsMax);
  KVASIR_RETURN_IF_ERROR(members.status());
  if (point.prefill_tokens + point.decode_sequences == 0) {
    return MakeError(ErrorCode::kDataLoss,
                     "{}: expected prefill_tokens or decode_sequences above 0, got 0 and 0", where);
  }
  return point;
}

}  // namespace

std::string WriteCalibration(const Calibration& calibration) {
  Json out;
  out["format"] = kFormat;
  out["version"] = kVersion;
  out["model"] = calibration.model;
  out["cpu"] = calibration.cpu;
  out["kernels"] = calibration.kernels;
  out["kv_dtype"] = calibration.kv_dtype;
  out["threads"] = calibration.threads;
  out["weights_bytes"] = calibration.weights_bytes;
  out["block_tokens"] = calibration.block_tokens;
  out["window_tokens"] = calibration.window_tokens;
  out["host_seconds_per_step"] = calibration.host_seconds_per_step;
  out["host_seconds_per_sequence"] = calibration.host_seconds_per_sequence;
  Json& points = out["points"] = Json::array();
  for (const CalibrationPoint& point : calibration.points) {
    points.push_back({{"prefill_tokens", point.prefill_tokens},
                      {"prefill_start", point.prefill_start},
                      {"prefill_draws", point.prefill_draws},
                      {"decode_sequences", point.decode_sequences},
                      {"decode_context", point.decode_context},
                      {"seconds", point.seconds},
                      {"seconds_min", point.seconds_min}});
  }
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Calibration> ReadCalibration(std::string_view text, std::string_view what) {
  KVASIR_ASSIGN_OR_RETURN(const nlohmann::json root, files::ParseJson(text, what, 8));
  const std::string where(what);
  if (const auto key = RepeatedKey(text)) {
    return MakeError(ErrorCode::kDataLoss, "{}: {}: expected each field once, got it twice", where,
                     files::Printable(*key, 60));
  }
  Members members(root, where);
  const std::string format = members.Text("format");
  const int64_t version = members.Count("version", kBytesMax);
  KVASIR_RETURN_IF_ERROR(members.status());
  if (format != kFormat || version != kVersion) {
    return MakeError(ErrorCode::kDataLoss,
                     "{}: expected format '{}' of version {}, got '{}' of version {}", where,
                     kFormat, kVersion, format.substr(0, 40), version);
  }
  Calibration calibration;
  calibration.model = members.Text("model");
  calibration.cpu = members.Text("cpu");
  calibration.kernels = members.OneOf("kernels", {"avx512", "avx2", "ref"});
  calibration.kv_dtype = members.OneOf("kv_dtype", {"F32", "F16", "BF16"});
  calibration.threads = members.Count("threads", kThreadsMax);
  calibration.weights_bytes = members.Count("weights_bytes", kBytesMax);
  calibration.block_tokens = members.Count("block_tokens", kTokensMax);
  calibration.host_seconds_per_step =
      members.Seconds("host_seconds_per_step", true, kHostSecondsMax);
  calibration.host_seconds_per_sequence =
      members.Seconds("host_seconds_per_sequence", true, kHostSecondsMax);
  const nlohmann::json& windows = members.List("window_tokens", kGroupsMax);
  const nlohmann::json& points = members.List("points", kPointsMax);
  KVASIR_RETURN_IF_ERROR(members.status());
  for (const nlohmann::json& window : windows) {
    if (!window.is_number_integer() || window.get<int64_t>() < 0 ||
        window.get<int64_t>() > kTokensMax) {
      return MakeError(
          ErrorCode::kDataLoss, "{}: window_tokens: expected integers from 0 to {}, got {}", where,
          kTokensMax,
          files::Printable(window.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
                           60));
    }
    calibration.window_tokens.push_back(window.get<int64_t>());
  }
  for (size_t i = 0; i < points.size(); ++i) {
    KVASIR_ASSIGN_OR_RETURN(CalibrationPoint point,
                            ReadPoint(points[i], fmt::format("{}: points[{}]", where, i)));
    calibration.points.push_back(point);
  }
  return calibration;
}

int64_t ContextMeasured(const Calibration& calibration) {
  int64_t most = 0;
  for (const CalibrationPoint& point : calibration.points) {
    most = std::max({most, point.prefill_start + point.prefill_tokens, point.decode_context});
  }
  return most;
}

Status CheckCalibration(const Calibration& calibration, const ModelShape& shape,
                        std::string_view what) {
  const auto refuse = [&](const std::string& measured, const std::string& simulated) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--calibration: {} was measured for {} ({}), but {} ({}) is simulated", what,
                     calibration.model, measured, shape.name, simulated);
  };
  const auto windows_text = [](const std::vector<int64_t>& windows) {
    return fmt::format("windows of {} tokens", fmt::join(windows, ", "));
  };
  std::vector<int64_t> windows;
  for (const CacheGroupShape& group : shape.cache_groups) windows.push_back(group.window_tokens);
  if (windows != calibration.window_tokens) {
    return refuse(windows_text(calibration.window_tokens), windows_text(windows));
  }
  // Files tell by their bytes, whatever they are called now.
  const std::vector<LoadedWeights> none;
  for (const LoadedWeights& loaded : shape.stored ? shape.stored->loaded : none) {
    if (loaded.kernels != calibration.kernels) continue;
    if (loaded.packed_bytes == calibration.weights_bytes) return Status::Ok();
    const auto weights_text = [](int64_t bytes) {
      return fmt::format("weights of {} B in memory", CountText(bytes));
    };
    return refuse(weights_text(calibration.weights_bytes), weights_text(loaded.packed_bytes));
  }
  if (shape.name == calibration.model) return Status::Ok();
  return refuse(fmt::format("weights of {} B in memory", CountText(calibration.weights_bytes)),
                "of another name, with no weights to compare");
}

}  // namespace kvasir::plan
