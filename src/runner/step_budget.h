// How many tokens a step computes where nobody says: a step's time is the longest that a running
// stream waits for somebody else's prompt.
#pragma once

#include <cstdint>
#include <string_view>

#include "model/spec.h"

namespace kvasir::runner {

/// Weight values that a token is multiplied with, embeddings but for the head left out.
[[nodiscard]] int64_t ValuesPerToken(const model::ModelSpec& spec);

/// About as many tokens as `threads` compute in 0.15 s with the backend of that name; a multiple
/// of 32, 32 to 2048.
[[nodiscard]] int64_t DefaultStepTokens(int64_t values_per_token, std::string_view backend,
                                        int64_t threads);

}  // namespace kvasir::runner
