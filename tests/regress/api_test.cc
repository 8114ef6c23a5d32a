// Faults that users of other servers met with requests. README.md lists them all; a test's name
// holds its row.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/server/server_fixture.h"

namespace kvasir::server::test {
namespace {

/// The status; each must be an error in JSON that is short.
int Refused(ServerFixture& fixture, const std::string& path, const Json& body) {
  const Answer answer = fixture.Post(path, body);
  EXPECT_TRUE(answer.status == 200 || answer.json().contains("error")) << answer.body;
  EXPECT_LT(answer.body.size(), 600U) << answer.body;
  return answer.status;
}

Json With(const std::string& name, const Json& value) {
  return Json{{"prompt", "a"}, {"max_tokens", 1}, {name, value}};
}

TEST(RegressApi, Row035ACompletionsBodyAtTheChatRouteIsOneShortAnswer) {
  ServerFixture fixture;
  Json prompts = Json::array();
  for (int i = 0; i < 50; ++i) prompts.push_back(std::vector<TokenId>(100, 40));
  const Answer answer =
      fixture.Post("/v1/chat/completions", {{"prompt", prompts}, {"max_tokens", 1}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_LT(answer.body.size(), 300U);
  EXPECT_NE(answer.body.find("messages"), std::string::npos);
}

TEST(RegressApi, Rows040And042And198And215And217ConstraintsAreRefusedNeverIgnored) {
  ServerFixture fixture;
  const Json schema = {{"type", "object"}};
  for (const Json& format : std::vector<Json>{
           {{"type", "json_object"}},
           {{"type", "json_schema"}, {"json_schema", Json::object()}},
           {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}},
           {{"type", "json_schema"}, {"schema", schema}},
           {{"type", "grammar"}},
           {{"type", "regex"}, {"pattern", "foo**"}},
           {{"json_schema", {{"name", "x"}}}}}) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
      Json body = ChatBody("write a poem");
      body["prompt"] = "write a poem";
      body["response_format"] = format;
      EXPECT_EQ(Refused(fixture, path, body), 400) << format;
    }
  }
  std::string nested(60'000, '(');
  nested += std::string(60'000, ')');
  for (const std::string& pattern :
       {std::string("foo**"), std::string("("), std::string("["), std::string("(?P<"),
        std::string("a{99999}"), std::string("(a+)+$"), std::string("\\p{Foo}"),
        std::string("(?<=x)*"), std::string("^*$"), std::string("{2,3}"), nested}) {
    for (const char* field : {"guided_regex", "guided_grammar"}) {
      EXPECT_EQ(Refused(fixture, "/v1/completions", With(field, pattern)), 400);
    }
    EXPECT_EQ(Refused(fixture, "/v1/completions", With("structured_outputs", {{"regex", pattern}})),
              400);
  }
}

TEST(RegressApi, Rows090And196And197PartsThatAreNotTextAreRefusedUnread) {
  ServerFixture fixture;
  std::string large = "data:image/png;base64,";
  large += std::string(5'000'000, 'A');
  for (const std::string& url :
       {std::string("http://169.254.169.254/"), std::string("http://127.0.0.1:8000/metrics"),
        std::string("http://[::1]/"), std::string("http://0x7f000001/"),
        std::string("file:///etc/passwd"), std::string("gopher://x"), large}) {
    for (const char* type : {"image_url", "input_audio", "video_url", "file", "image"}) {
      const Json part = {{"type", type}, {type, {{"url", url}}}};
      const Json body = {
          {"messages", Json::array({Json{{"role", "user"}, {"content", Json::array({part})}}})}};
      EXPECT_EQ(Refused(fixture, "/v1/chat/completions", body), 400) << type;
    }
  }
}

TEST(RegressApi, Row208BiasesOutsideOfTheVocabulary) {
  ServerFixture fixture;
  for (const char* key : {"191222", "384", "-1", "abc", "", "5.0", " 5", "99999999999999999999"}) {
    EXPECT_EQ(Refused(fixture, "/v1/completions", With("logit_bias", {{key, 1}})), 400) << key;
  }
  for (const Json& value :
       std::vector<Json>{nullptr, "1", true, Json::array({1}), Json::object()}) {
    EXPECT_EQ(Refused(fixture, "/v1/completions", With("logit_bias", {{"5", value}})), 400)
        << value;
  }
  // Beyond a hundred is a hundred.
  for (const Json& value : std::vector<Json>{101, -101, 1e39, -1e308}) {
    EXPECT_EQ(Refused(fixture, "/v1/completions", With("logit_bias", {{"5", value}})), 200)
        << value;
  }
  for (const int64_t id : {int64_t{384}, int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_EQ(Refused(fixture, "/v1/completions", With("stop_token_ids", {id})), 400) << id;
  }
}

TEST(RegressApi, Row209LongListsOfIdsWorkOrAreRefused) {
  ServerFixture fixture;
  Json bias = Json::object();
  std::vector<int> ids;
  for (int id = 0; id < 384; ++id) {
    bias[std::to_string(id)] = 1;
    ids.push_back(id);
  }
  EXPECT_EQ(Refused(fixture, "/v1/completions", With("logit_bias", bias)), 200);
  EXPECT_EQ(Refused(fixture, "/v1/completions", With("allowed_token_ids", ids)), 200);
  EXPECT_EQ(Refused(fixture, "/v1/completions", With("stop_token_ids", std::vector<int>(5'000, 7))),
            200);
  EXPECT_EQ(
      Refused(fixture, "/v1/completions", With("allowed_token_ids", std::vector<int>(2'000, 7))),
      400);
}

TEST(RegressApi, Rows210And211And214HugeNumbersAreRefusedAtOnce) {
  ServerFixture fixture;
  for (const Json& n : std::vector<Json>{0, -1, 1.5, "2", 129, 5'000'000, 9223372036854775808ULL}) {
    EXPECT_EQ(Refused(fixture, "/v1/completions", With("n", n)), 400) << n;
  }
  for (const Json& logprobs :
       std::vector<Json>{-1, 21, 383, 384, 1'000'000, 1'000'000'000, 1.5, "5"}) {
    EXPECT_EQ(Refused(fixture, "/v1/completions", With("logprobs", logprobs)), 400) << logprobs;
    EXPECT_EQ(Refused(fixture, "/v1/completions", With("prompt_logprobs", logprobs)), 400);
    Json chat = ChatBody("x");
    chat["logprobs"] = true;
    chat["top_logprobs"] = logprobs;
    EXPECT_EQ(Refused(fixture, "/v1/chat/completions", chat), 400) << logprobs;
  }
  for (const Json& prompt : std::vector<Json>{Json::array({999'999'999}), Json::array({-1}),
                                              Json::array({Json::array()}), Json::array({1.5}),
                                              Json::array(), 7, true, Json::object()}) {
    EXPECT_EQ(Refused(fixture, "/v1/completions", {{"prompt", prompt}, {"max_tokens", 1}}), 400)
        << prompt;
  }
}

TEST(RegressApi, Row216AnythingNestedOrRepeatedInFieldsThatAreNotRead) {
  ServerFixture fixture;
  const std::string begin = R"({"prompt":"a","max_tokens":1,)";
  std::string keys;
  for (int i = 0; i < 200'000; ++i) keys += ",\"k" + std::to_string(i) + "\":" + std::to_string(i);
  const std::string deep = std::string(3'000, '[') + std::string(3'000, ']');
  EXPECT_EQ(fixture.Call("POST", "/v1/completions", begin + "\"tools\":" + deep + "}").status, 400);
  EXPECT_EQ(fixture.Call("POST", "/v1/completions", begin + "\"user\":" + deep + "}").status, 400);
  // Many keys are no fault, and no work that grows with their square.
  EXPECT_EQ(fixture.Call("POST", "/v1/completions", begin + "\"x\":1" + keys + "}").status, 200);
}

}  // namespace
}  // namespace kvasir::server::test
