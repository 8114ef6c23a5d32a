// The fields that chat and text completions share: how tokens are drawn, when they end, what is
// told about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/request.h"
#include "server/context.h"
#include "server/exchange.h"
#include "server/output.h"
#include "server/schema.h"

namespace kvasir::server {

struct GenerationOptions {
  Request request;  ///< a prototype: everything but prompt and max_tokens
  OutputOptions output;
  std::optional<int64_t> max_tokens;  ///< as asked
  std::string max_tokens_field = "max_tokens";
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  int32_t logprobs = -1;         ///< -1 none, else how many of the most probable
  int32_t prompt_logprobs = -1;  ///< as asked by the field of that name
  bool return_token_ids = false;
  bool tokens_as_ids = false;
  bool timings = false;
  std::optional<int64_t> truncate_prompt_tokens;
  bool truncate_left = true;  ///< keep the end
};

/// Reads the shared fields. What is wrong goes to `fields.problems()`; `options` is then of no use.
void ReadGenerationOptions(const Context& context, const Exchange& exchange, const Fields& fields,
                           GenerationOptions& options);

/// 404 unless the field `model` is absent, empty or served here.
[[nodiscard]] std::optional<ApiError> CheckModel(const Context& context, const Fields& fields);

/// Most bytes of text that can be a prompt of this model. More are refused before they are
/// tokenized, which would keep a worker busy for seconds. None where the request truncates.
[[nodiscard]] std::optional<size_t> TextBytesMax(const Context& context,
                                                 const GenerationOptions& options);
/// The refusal. `field`: where the text came from.
[[nodiscard]] ApiError TextTooLong(const Context& context, size_t bytes, const char* field);

/// Shortens the prompt where the request says so.
void TruncatePrompt(const Context& context, const GenerationOptions& options,
                    std::vector<TokenId>& prompt);

/// How many tokens may be drawn after a prompt of so many: as asked, else `fallback` (nullopt: what
/// is left of the context). Errors: over the context; min_tokens above it.
[[nodiscard]] std::optional<ApiError> ResolveMaxTokens(const Context& context,
                                                       const GenerationOptions& options,
                                                       int64_t prompt_tokens,
                                                       std::optional<int64_t> fallback,
                                                       int64_t& max_tokens);

}  // namespace kvasir::server
