// From the fields of a chat request to the prompt.
#pragma once

#include <optional>
#include <string>

#include "server/context.h"
#include "server/generation.h"
#include "server/schema.h"

namespace kvasir::server {

struct ChatPrompt {
  std::string text;  ///< as the template rendered it
  std::vector<TokenId> ids;
  std::string role;       ///< of the answer
  std::string echo_text;  ///< the last message's text, where its role is the answer's
};

/// Reads `messages` and what belongs to them, renders, tokenizes. `fields.problems()` may hold
/// problems of other fields already; they are part of the answer. Longer texts than
/// `text_bytes_max` are refused before they are tokenized.
[[nodiscard]] std::optional<ApiError> BuildChatPrompt(const Context& context, const Fields& fields,
                                                      std::optional<size_t> text_bytes_max,
                                                      ChatPrompt& prompt);

}  // namespace kvasir::server
