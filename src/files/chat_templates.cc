#include "files/chat_templates.h"

#include <system_error>
#include <utility>

#include "files/json.h"
#include "files/mapped_file.h"
#include "files/printable.h"

namespace kvasir::files {
namespace {

namespace fs = std::filesystem;

// The longest templates in use have 40 kB.
constexpr int64_t kMaxTemplateBytes = 4'000'000;

// Leaves `text` as it is where the file is absent.
Status ReadIfThere(const fs::path& path, std::optional<std::string>& text) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return Status::Ok();
  KVASIR_ASSIGN_OR_RETURN(text, ReadTextFile(path, kMaxTemplateBytes));
  return Status::Ok();
}

// A "chat_template" value: one string, or [{"name": "default", "template": ...}, ...]. What is
// already set stays.
Status TakeValue(const nlohmann::json& value, const fs::path& path, ChatTemplates& templates) {
  const auto keep = [](std::optional<std::string>& place, const std::string& text) {
    if (!place.has_value()) place = text;
  };
  if (value.is_null()) return Status::Ok();
  if (value.is_string()) {
    keep(templates.main, value.get_ref<const std::string&>());
    return Status::Ok();
  }
  const auto refuse = [&](std::string_view found) {
    return MakeError(ErrorCode::kDataLoss,
                     "{}: expected 'chat_template' to be a string or a list of objects with the "
                     "strings 'name' and 'template', came {}",
                     PrintablePath(path), found);
  };
  if (!value.is_array()) return refuse(value.type_name());
  for (const nlohmann::json& item : value) {
    if (!item.is_object()) return refuse(std::string("a list with ") + item.type_name());
    const auto name = item.find("name");
    const auto text = item.find("template");
    if (name == item.end() || text == item.end() || !name->is_string() || !text->is_string()) {
      return refuse("an object without them");
    }
    if (*name == "default") keep(templates.main, text->get_ref<const std::string&>());
    if (*name == "tool_use") keep(templates.tool_use, text->get_ref<const std::string&>());
  }
  return Status::Ok();
}

}  // namespace

Result<ChatTemplates> ReadFolderChatTemplates(const fs::path& folder,
                                              const nlohmann::json& tokenizer_config) {
  ChatTemplates templates;
  KVASIR_RETURN_IF_ERROR(ReadIfThere(folder / "chat_template.jinja", templates.main));
  KVASIR_RETURN_IF_ERROR(
      ReadIfThere(folder / "additional_chat_templates" / "tool_use.jinja", templates.tool_use));
  if (tokenizer_config.contains("chat_template")) {
    KVASIR_RETURN_IF_ERROR(TakeValue(tokenizer_config.at("chat_template"),
                                     folder / "tokenizer_config.json", templates));
  }
  const fs::path json_path = folder / "chat_template.json";
  std::optional<std::string> text;
  if (!templates.main.has_value()) KVASIR_RETURN_IF_ERROR(ReadIfThere(json_path, text));
  if (text.has_value()) {
    KVASIR_ASSIGN_OR_RETURN(const nlohmann::json value, ParseJson(*text, json_path.native()));
    if (value.contains("chat_template")) {
      KVASIR_RETURN_IF_ERROR(TakeValue(value.at("chat_template"), json_path, templates));
    }
  }
  return templates;
}

ChatTemplates ReadGgufChatTemplates(const GgufMetadata& metadata) {
  ChatTemplates templates;
  const auto read = [&](std::string_view key, std::optional<std::string>& place) {
    if (const auto text = metadata.String(key)) place = std::string(*text);
  };
  read("tokenizer.chat_template", templates.main);
  read("tokenizer.chat_template.tool_use", templates.tool_use);
  return templates;
}

}  // namespace kvasir::files
