// One request through an engine of this process: what chat and complete share.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/loaded_engine.h"
#include "base/result.h"
#include "contract/request.h"
#include "server/server.h"

namespace kvasir::app {

struct SamplingFlags {
  server::GenerationDefaults asked;  ///< what is not set is the model's default
  int64_t seed = -1;                 ///< -1: a new one each time
  int64_t max_tokens = 0;            ///< 0: as many as the context holds
};

struct GenerateOutcome {
  std::string text;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  double prefill_s = 0;
  double decode_s = 0;
  bool interrupted = false;
};

/// Generates after `prompt` and hands each piece of text to `show` as it comes. Ends early when
/// `stop` turns true.
[[nodiscard]] Result<GenerateOutcome> Generate(LoadedEngine& loaded, std::vector<TokenId> prompt,
                                               const SamplingFlags& flags,
                                               const std::atomic<bool>& stop,
                                               const std::function<void(std::string_view)>& show);

/// "prompt 31 tokens (16 cached) in 0.12 s, 57 tokens at 101.3 tokens/s".
[[nodiscard]] std::string DescribeSpeed(const GenerateOutcome& outcome);

}  // namespace kvasir::app

namespace CLI {
class App;
}

namespace kvasir::app {

void AddSamplingFlags(CLI::App& command, SamplingFlags& flags);

}  // namespace kvasir::app
