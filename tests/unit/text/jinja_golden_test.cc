// The engine against renders of Jinja2 and Hugging Face transformers, byte for byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "support/data.h"
#include "text/chat.h"
#include "text/jinja.h"

namespace kvasir::text {
namespace {

using Json = nlohmann::ordered_json;

Json ReadJson(const std::filesystem::path& path) { return Json::parse(test::ReadFile(path)); }

jinja::LocalTime FrozenClock() { return jinja::ParseLocalTime("2026-11-29T12:34:56").value(); }

// Errors that an engine may render instead: forbidden methods, and filters that Jinja does not
// have.
bool MayRender(const Json& error) {
  return error["type"] == "SecurityError" ||
         error["message"].get<std::string>().starts_with("No filter named");
}

TEST(JinjaGolden, EveryCaseOfJinjaSemantics) {
  KVASIR_SHARED_OR_SKIP(path, "chat-templates/jinja-cases.json");
  const Json data = ReadJson(path);
  ASSERT_GT(data["cases"].size(), 100U);
  for (const Json& c : data["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>() + ": " + c["template"].get<std::string>());
    const auto parsed = jinja::Template::Parse(c["template"].get<std::string>());
    Result<std::string> got = MakeError(ErrorCode::kInternal, "not rendered");
    if (parsed.ok()) {
      jinja::RenderOptions options;
      options.now = FrozenClock();
      got = (*parsed)->Render(c["context"], options);
    } else {
      got = parsed.error();
      EXPECT_TRUE(c.contains("error")) << parsed.error().message;
    }
    if (c.contains("expected")) {
      ASSERT_TRUE(got.ok()) << got.error().message;
      EXPECT_EQ(*got, c["expected"].get<std::string>());
      continue;
    }
    const Json& error = c["error"];
    if (got.ok()) {
      EXPECT_TRUE(MayRender(error)) << "rendered: " << *got;
      continue;
    }
    const bool raised = parsed.ok() && got.error().code == ErrorCode::kInvalidArgument;
    EXPECT_EQ(raised, error["source"] == "raise_exception") << got.error().message;
    if (raised) {
      EXPECT_EQ(got.error().message, error["message"].get<std::string>());
    }
  }
}

class Goldens {
 public:
  explicit Goldens(const std::filesystem::path& folder)
      : data_(ReadJson(folder / "conversations.json")) {}

  [[nodiscard]] ChatRequest Request(const Json& c) const {
    ChatRequest request;
    request.messages = data_["conversations"][c["messages"].get<std::string>()];
    if (!c["tools"].is_null()) request.tools = data_["tools"][c["tools"].get<std::string>()];
    if (!c["documents"].is_null()) {
      request.documents = data_["documents"][c["documents"].get<std::string>()];
    }
    request.add_generation_prompt = c["add_generation_prompt"].get<bool>();
    request.continue_final_message = c.value("continue_final_message", false);
    for (const auto& [key, value] : c["kwargs"].items())
      request.template_kwargs[key] = Named(value);
    return request;
  }

  static std::unique_ptr<ChatTemplate> Load(const std::filesystem::path& folder,
                                            const Json& golden) {
    ChatTemplateConfig config;
    config.source = test::ReadFile(folder / golden["template"].get<std::string>());
    if (!golden["bos_token"].is_null()) config.bos_token = golden["bos_token"].get<std::string>();
    if (!golden["eos_token"].is_null()) config.eos_token = golden["eos_token"].get<std::string>();
    auto created = ChatTemplate::Create(std::move(config));
    EXPECT_TRUE(created.ok()) << created.error().message;
    return created.ok() ? std::move(created).value() : nullptr;
  }

 private:
  // "@x" names tools, "@@x" a conversation.
  [[nodiscard]] Json Named(const Json& value) const {
    if (value.is_array()) {
      Json list = Json::array();
      for (const Json& item : value) list.push_back(Named(item));
      return list;
    }
    if (!value.is_string()) return value;
    const auto text = value.get<std::string>();
    if (text.starts_with("@@")) return data_["conversations"][text.substr(2)];
    if (text.starts_with("@")) return data_["tools"][text.substr(1)];
    return value;
  }

  Json data_;
};

std::vector<std::filesystem::path> GoldenFiles(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "golden")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void CheckCase(const Json& c, const Result<std::string>& got) {
  const bool plain = c.contains("plain_rendered") || c.contains("plain_error");
  const char* const rendered = plain ? "plain_rendered" : "rendered";
  if (c.contains(rendered)) {
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(*got, c[rendered].get<std::string>());
    return;
  }
  const Json& error = c[plain ? "plain_error" : "error"];
  if (got.ok()) {
    EXPECT_TRUE(MayRender(error)) << "rendered, but expected " << error.dump() << "\n" << *got;
    return;
  }
  const std::string source = error["source"];
  EXPECT_EQ(got.error().code == ErrorCode::kUnsupported, source == "engine")
      << got.error().message << "\nexpected " << error.dump();
  if (source == "raise_exception") {
    EXPECT_EQ(got.error().message, error["message"].get<std::string>());
  }
  if (source == "chat_layer") {
    EXPECT_TRUE(got.error().message.ends_with(error["message"].get<std::string>()))
        << got.error().message;
  }
}

TEST(JinjaGolden, EveryRenderOfTheRealTemplates) {
  KVASIR_SHARED_OR_SKIP(folder, "chat-templates");
  const Goldens goldens(folder);
  std::size_t count = 0;
  for (const std::filesystem::path& file : GoldenFiles(folder)) {
    const Json golden = ReadJson(file);
    SCOPED_TRACE(golden["template"].get<std::string>());
    const auto chat = Goldens::Load(folder, golden);
    ASSERT_NE(chat, nullptr);
    for (const Json& c : golden["cases"]) {
      SCOPED_TRACE(c["name"].get<std::string>());
      CheckCase(c, chat->Render(goldens.Request(c), MessageMode::kRaw, FrozenClock()));
      ++count;
    }
  }
  EXPECT_GT(count, 5000U);
}

}  // namespace
}  // namespace kvasir::text
