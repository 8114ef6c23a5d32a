// Streams through a loaded engine, as users would see them but without HTTP.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace kvasir::app {

struct StreamsOptions {
  std::vector<int64_t> streams = {1, 4, 16};  ///< that come at the same moment
  int64_t prompt_tokens = 256;
  int64_t output_tokens = 64;
  int64_t repeat = 3;
  std::function<void(double)> progress = [](double) {};  ///< share done, 0 to 1
};

/// Medians over the repetitions.
struct StreamsOutcome {
  int64_t streams = 0;
  double ttft_s_median = 0;  ///< from the submission to the first token, over the streams
  double ttft_s_max = 0;
  double itl_s_median = 0;  ///< between two tokens of a stream
  double itl_s_p99 = 0;
  double prefill_tokens_per_s = 0;  ///< prompt tokens until the last first token
  double stream_tokens_per_s = 0;   ///< of one stream, after its first token
  double output_tokens_per_s = 0;   ///< of all streams, from the submission to the end
};

/// Prompts are of random tokens, so that none finds another's KV. Errors: lengths that do not fit,
/// and a request that failed.
[[nodiscard]] Result<std::vector<StreamsOutcome>> BenchStreams(engine::Engine& engine,
                                                               const StreamsOptions& options);

}  // namespace kvasir::app
