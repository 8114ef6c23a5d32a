// Reading and writing JSON text.
#include "server/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "server/http_message.h"
#include "server/schema.h"

namespace kvasir::server {
namespace {

std::string Escaped(std::string_view text) {
  std::string out;
  AppendJsonString(text, out);
  return out;
}

std::string Logprob(float value) {
  std::string out;
  AppendLogprob(value, out);
  return out;
}

TEST(JsonText, StringsReadBackAsTheyWere) {
  std::string all;
  for (int c = 0; c < 128; ++c) all.push_back(static_cast<char>(c));
  all +=
      "\xC2\x85 \xC2\x86 \xE2\x80\xA7 \xE2\x80\xA8 \xE2\x80\xA9 \xE2\x80\xAA \xF0\x9F\x98\x80 \xE2";
  all.pop_back();
  const std::string text = Escaped(all);
  EXPECT_EQ(nlohmann::json::parse(text).get<std::string>(), all);
  EXPECT_EQ(Escaped("\xC2\x85|\xE2\x80\xA8|\xE2\x80\xA9"), "\"\\u0085|\\u2028|\\u2029\"");
  EXPECT_EQ(Escaped("\xC2\x86\xE2\x80\xAA"), "\"\xC2\x86\xE2\x80\xAA\"");
  EXPECT_EQ(Escaped("a\"b\\c\n\t\x01"), "\"a\\\"b\\\\c\\n\\t\\u0001\"");
}

TEST(JsonText, LogprobsAreFiniteNumbersThatReadBack) {
  EXPECT_EQ(Logprob(-0.0f), "-0.0");
  EXPECT_EQ(Logprob(-5.25f), "-5.25");
  EXPECT_EQ(Logprob(-3.0f), "-3.0");
  EXPECT_EQ(Logprob(-std::numeric_limits<float>::infinity()), "-9999.0");
  EXPECT_EQ(Logprob(std::numeric_limits<float>::quiet_NaN()), "-9999.0");
  EXPECT_EQ(Logprob(-12345.0f), "-9999.0");
  for (const float value : {-0.1f, -1e-7f, -3.3333333f, -17.123457f}) {
    EXPECT_EQ(std::stof(Logprob(value)), value);
  }
}

TEST(JsonText, Limits) {
  Json out;
  const JsonLimits limits{.depth = 3, .values_count = 6};
  EXPECT_FALSE(ParseJson("[[[1]]]", out, limits));
  EXPECT_EQ(out, Json::parse("[[[1]]]"));
  EXPECT_TRUE(ParseJson("[[[[1]]]]", out, limits));
  EXPECT_FALSE(ParseJson("[1,2,3,4,5]", out, limits));
  EXPECT_TRUE(ParseJson("[1,2,3,4,5,6]", out, limits));
  EXPECT_FALSE(ParseJson(R"({"b":1,"a":{"b":2}})", out, limits));
  EXPECT_EQ(out.dump(), R"({"b":1,"a":{"b":2}})");
  EXPECT_TRUE(ParseJson(R"({"b":1,"b":2})", out, limits));
  EXPECT_TRUE(ParseJson("", out, limits));
}

TEST(JsonText, WholeNumbers) {
  EXPECT_EQ(AsInt(Json::parse("3.0")), 3);
  EXPECT_EQ(AsInt(Json::parse("-9223372036854775808")), INT64_MIN);
  for (const char* wrong : {"3.5", "9223372036854775808", "1e30", "\"3\"", "true", "null", "[]"}) {
    EXPECT_FALSE(AsInt(Json::parse(wrong))) << wrong;
  }
}

TEST(HttpMessage, TargetsAndEscapes) {
  EXPECT_EQ(ParseTarget("/a%20b/c?x=1#y")->path, "/a b/c");
  EXPECT_EQ(ParseTarget("/a%20b/c?x=%zz")->query, "x=%zz");
  EXPECT_EQ(ParseTarget("HTTP://host:1/a")->path, "/a");
  EXPECT_EQ(ParseTarget("http://host")->path, "/");
  for (const char* wrong : {"", "a", "/%", "/%4", "/%g0", "/%00"}) {
    EXPECT_FALSE(ParseTarget(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace kvasir::server
