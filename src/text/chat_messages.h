// The preparation of chat messages before a template sees them (docs/chat-templates.md).
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "text/jinja.h"

namespace kvasir::text {

/// Deeper JSON is refused: copying and rendering it recurse.
inline constexpr int kRequestDepthMax = 200;

/// Whether `json` is nested deeper than `limit` levels.
[[nodiscard]] bool DeeperThan(const nlohmann::ordered_json& json, int limit);

struct MessageRules {
  bool parts = false;        ///< content as a list of parts, else as one string
  bool keep_strings = true;  ///< with `parts`: a string stays one
  bool developer_to_system = false;
  bool parse_arguments = true;         ///< tool-call arguments from JSON text to objects
  bool merge_system_messages = false;  ///< all into the first
};

struct PreparedMessages {
  nlohmann::ordered_json messages;
  bool parsed_arguments = false;  ///< some arguments were text and became objects
  int system_messages = 0;
};

/// `messages` is an array of objects. Errors: kInvalidArgument, with the path of the value in the
/// message ("messages[2].content[0]: ...").
[[nodiscard]] Result<PreparedMessages> PrepareMessages(const nlohmann::ordered_json& messages,
                                                       const MessageRules& rules);

}  // namespace kvasir::text
