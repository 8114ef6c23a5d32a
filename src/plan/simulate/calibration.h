// What `kvasir bench calibrate` measured: how long steps of known shapes took on one machine with
// one model. A JSON file; the simulator reads it in place of a roofline.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/model_shape.h"

namespace kvasir::plan {

/// One shape of step, run several times: at most one item of a prompt, and decodes beside it.
struct CalibrationPoint {
  int64_t prefill_tokens = 0;    ///< of a prompt, computed in this step; 0: no such item
  int64_t prefill_start = 0;     ///< tokens of that prompt computed before
  bool prefill_draws = false;    ///< whether the item ends its prompt and draws a token
  int64_t decode_sequences = 0;  ///< items of one token, each drawing one
  int64_t decode_context = 0;    ///< tokens that each of them reads, its own included
  double seconds = 0;            ///< the runner's time: median of the runs
  double seconds_min = 0;        ///< the fastest run
};

/// Everything that a prediction needs, and what was measured where.
struct Calibration {
  std::string model;          ///< the file's or folder's name
  std::string cpu;            ///< the processor's name
  std::string kernels;        ///< avx512, avx2 or ref
  std::string kv_dtype;       ///< F32, F16 or BF16
  int64_t threads = 0;        ///< that compute
  int64_t weights_bytes = 0;  ///< in memory
  int64_t block_tokens = 0;   ///< of the KV cache
  /// Of each cache group the tokens that its layers look back; 0: all.
  std::vector<int64_t> window_tokens;
  /// The engine's own time a step outside of the runner: scheduling, cache, events.
  double host_seconds_per_step = 0;
  double host_seconds_per_sequence = 0;  ///< and what each sequence in the step adds
  std::vector<CalibrationPoint> points;
};

/// The file's text. It begins with the format's name and version.
[[nodiscard]] std::string WriteCalibration(const Calibration& calibration);

/// Reads what WriteCalibration wrote. `what` (the file's name) starts the message of an error,
/// which names the field, what was expected and what came. Unknown fields are ignored.
[[nodiscard]] Result<Calibration> ReadCalibration(std::string_view text, std::string_view what);

/// An error where it was measured for another model than `shape`: other windows or other weights in
/// memory, or, where `shape` has no weights at hand, another name. `what` is the file's name.
[[nodiscard]] Status CheckCalibration(const Calibration& calibration, const ModelShape& shape,
                                      std::string_view what);

/// The longest context in any of its steps; beyond it times are extrapolated.
[[nodiscard]] int64_t ContextMeasured(const Calibration& calibration);

}  // namespace kvasir::plan
