#include "text/chat_messages.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace kvasir::text {
namespace {

using Json = nlohmann::ordered_json;

template <typename... Args>
Error Wrong(fmt::format_string<Args...> format, Args&&... args) {
  return MakeParamError(ErrorCode::kInvalidArgument, "messages", format,
                        std::forward<Args>(args)...);
}

// Where a part of a type keeps its text; empty: not a type of text.
std::string_view TextKey(std::string_view type) {
  if (type == "text" || type == "input_text" || type == "output_text") return "text";
  if (type == "refusal" || type == "thinking") return type;
  return {};
}

struct TextPart {
  std::string text;
  Json part;  ///< {"type": "text", "text": ..., and what else the client gave}
};

Result<TextPart> ReadPart(const Json& part, const std::string& path) {
  if (part.is_string()) {
    const auto text = part.get<std::string>();
    return TextPart{text, Json{{"type", "text"}, {"text", text}}};
  }
  if (!part.is_object()) {
    return Wrong("{}: a content part must be an object or a string, got {}", path,
                 part.type_name());
  }
  std::string type = "text";
  if (const auto at = part.find("type"); at != part.end()) {
    if (!at->is_string()) {
      return Wrong("{}.type: expected a string, got {}", path, at->type_name());
    }
    type = at->get<std::string>();
  }
  const std::string key(TextKey(type));
  if (key.empty()) {
    return Wrong("{}: content parts of type '{}' are not supported by this model; send text", path,
                 type);
  }
  const auto text = part.find(key);
  if (text == part.end() || !text->is_string()) {
    return Wrong("{}.{}: a part of type '{}' needs a string here, got {}", path, key, type,
                 text == part.end() ? "nothing" : text->type_name());
  }
  TextPart result{text->get<std::string>(), part};
  if (key != "text") result.part.erase(key);
  result.part["type"] = "text";
  result.part["text"] = result.text;
  return result;
}

Result<Json> PrepareContent(const Json& content, const MessageRules& rules,
                            const std::string& path) {
  if (content.is_null()) {
    return rules.parts && !rules.keep_strings ? Json::array() : Json("");
  }
  if (content.is_string()) {
    if (!rules.parts || rules.keep_strings) return content;
    return Json::array({Json{{"type", "text"}, {"text", content}}});
  }
  if (!content.is_array()) {
    return Wrong("{}: expected a string or a list of parts, got {}", path, content.type_name());
  }
  Json parts = Json::array();
  std::string joined;
  for (std::size_t i = 0; i < content.size(); ++i) {
    KVASIR_ASSIGN_OR_RETURN(TextPart part, ReadPart(content[i], fmt::format("{}[{}]", path, i)));
    if (i > 0) joined += "\n";
    joined += part.text;
    parts.push_back(std::move(part.part));
  }
  if (rules.parts) return parts;
  return Json(std::move(joined));
}

// Whether a text holds more open brackets at once than a parsed value may have levels.
bool TextDeeperThan(std::string_view text, int limit) {
  int depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > limit) return true;
  }
  return false;
}

// Arguments that are no JSON object or list stay as they are: a model may have written them.
bool ParseArguments(Json& arguments) {
  if (arguments.is_null()) {
    arguments = Json::object();
    return false;
  }
  if (!arguments.is_string()) return false;
  const auto& text = arguments.get_ref<const std::string&>();
  if (text.empty()) {
    arguments = Json::object();
    return true;
  }
  if (TextDeeperThan(text, kRequestDepthMax)) return false;
  Json parsed = Json::parse(text, nullptr, false);
  if (parsed.is_discarded() || !parsed.is_structured()) return false;
  arguments = std::move(parsed);
  return true;
}

Status PrepareToolCalls(Json& message, const MessageRules& rules, const std::string& path,
                        bool& parsed_arguments) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return Status::Ok();
  if (!calls->is_array()) {
    return Wrong("{}.tool_calls: expected a list, got {}", path, calls->type_name());
  }
  if (calls->empty()) {
    message.erase(calls);
    return Status::Ok();
  }
  for (std::size_t i = 0; i < calls->size(); ++i) {
    Json& call = (*calls)[i];
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (!call.is_object() || function == call.end() || !function->is_object()) {
      return Wrong("{}.tool_calls[{}]: expected an object with a 'function' object", path, i);
    }
    if (!rules.parse_arguments) continue;
    parsed_arguments |= ParseArguments((*function)["arguments"]);
  }
  return Status::Ok();
}

// One reasoning text under every name that templates read: the first that is there counts.
void AliasReasoning(Json& message) {
  constexpr std::array<const char*, 3> kNames = {"reasoning_content", "thinking", "reasoning"};
  const auto first = std::find_if(kNames.begin(), kNames.end(),
                                  [&](const char* name) { return message.contains(name); });
  if (first == kNames.end()) return;
  const Json reasoning = message[*first];
  for (const char* name : kNames) {
    if (!message.contains(name)) message[name] = reasoning;
  }
}

Result<Json> PrepareMessage(const Json& given, const MessageRules& rules, const std::string& path,
                            bool& parsed_arguments) {
  Json message = Json::object();
  for (const auto& [key, value] : given.items()) {
    if (!value.is_null()) message[key] = value;
  }
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) {
    return Wrong("{}.role: expected a string, got {}", path,
                 role == message.end() ? "nothing" : role->type_name());
  }
  if (rules.developer_to_system && *role == "developer") *role = "system";
  KVASIR_ASSIGN_OR_RETURN(message["content"],
                          PrepareContent(message.contains("content") ? message["content"] : Json(),
                                         rules, path + ".content"));
  KVASIR_RETURN_IF_ERROR(PrepareToolCalls(message, rules, path, parsed_arguments));
  AliasReasoning(message);
  return message;
}

void AppendContent(Json& content, const Json& more) {
  if (content.is_string() && more.is_string()) {
    content = content.get<std::string>() + "\n\n" + more.get<std::string>();
    return;
  }
  const auto as_parts = [](const Json& value) {
    return value.is_array() ? value : Json::array({Json{{"type", "text"}, {"text", value}}});
  };
  content = as_parts(content);
  for (const Json& part : as_parts(more)) content.push_back(part);
}

void MergeSystemMessages(Json& messages) {
  Json merged = Json::array();
  Json* first = nullptr;
  merged.get_ref<Json::array_t&>().reserve(messages.size());  // `first` must stay valid
  for (Json& message : messages) {
    if (message["role"] == "system") {
      if (first != nullptr) {
        AppendContent((*first)["content"], message["content"]);
        continue;
      }
      merged.insert(merged.begin(), std::move(message));
      first = &merged.front();
    } else {
      merged.push_back(std::move(message));
    }
  }
  messages = std::move(merged);
}

}  // namespace

bool DeeperThan(const Json& json, int limit) {
  if (!json.is_structured()) return false;
  if (limit == 0) return true;
  return std::any_of(json.begin(), json.end(),
                     [&](const Json& child) { return DeeperThan(child, limit - 1); });
}

Result<PreparedMessages> PrepareMessages(const Json& messages, const MessageRules& rules) {
  PreparedMessages prepared;
  prepared.messages = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    KVASIR_ASSIGN_OR_RETURN(Json message,
                            PrepareMessage(messages[i], rules, fmt::format("messages[{}]", i),
                                           prepared.parsed_arguments));
    if (message["role"] == "system") ++prepared.system_messages;
    prepared.messages.push_back(std::move(message));
  }
  if (rules.merge_system_messages) MergeSystemMessages(prepared.messages);
  return prepared;
}

}  // namespace kvasir::text
