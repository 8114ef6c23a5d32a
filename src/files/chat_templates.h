// Where a model keeps its chat templates.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "files/gguf.h"

namespace kvasir::files {

struct ChatTemplates {
  std::optional<std::string> main;
  std::optional<std::string> tool_use;
};

/// In a folder, the first of each: chat_template.jinja and
/// additional_chat_templates/tool_use.jinja; tokenizer_config's chat_template (one string, or a
/// list of {name, template}); chat_template.json.
[[nodiscard]] Result<ChatTemplates> ReadFolderChatTemplates(const std::filesystem::path& folder,
                                                            const nlohmann::json& tokenizer_config);

/// tokenizer.chat_template and tokenizer.chat_template.tool_use.
[[nodiscard]] ChatTemplates ReadGgufChatTemplates(const GgufMetadata& metadata);

}  // namespace kvasir::files
