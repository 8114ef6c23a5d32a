// JSON from outside.
#include "files/json.h"

#include <gtest/gtest.h>

#include <string>

#include "files/printable.h"
#include "unit/files/file_makers.h"

namespace kvasir::files {
namespace {

TEST(ParseJson, ReadsWhatIsValid) {
  const auto value = ParseJson(R"({"a": [1, 2.5, "x\"[[["], "b": null})", "config.json");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ((*value)["a"][0], 1);
  EXPECT_EQ((*value)["a"][2], "x\"[[[");
}

TEST(ParseJson, SaysWhereItIsBroken) {
  ExpectError(ParseJson("{\n \"a\": 1,\n \"b\": }", "dir/config.json"),
              {"dir/config.json", "line 3, column 7"});
  ExpectError(ParseJson("", "x"), {"x: expected valid JSON", "line 1, column 1"});
  ExpectError(ParseJson("{\"a\": 1e999}", "x"), {"x: expected valid JSON"});
  ExpectError(ParseJson("{} trailing", "x"), {"line 1, column 6", "expected end of input"});
  ExpectError(ParseJson("\"\xff\"", "x"), {"UTF-8"});
  ExpectError(ParseJson(std::string("[\"a\0b\"]", 7), "x\ny"), {"x\\x0ay: expected valid JSON"});
  // A megabyte of garbage is not repeated to the user.
  const auto long_error = ParseJson(std::string(1 << 20, 'x'), "x");
  ASSERT_FALSE(long_error.ok());
  EXPECT_LT(long_error.error().message.size(), 400u);
}

TEST(ParseJson, RefusesANulWhateverFollowsIt) {
  for (const std::string& text : {std::string("{\"a\": 1}\0", 9), std::string("{}\0 x", 5),
                                  std::string("{\"a\0b\": 1}", 10)}) {
    const auto parsed = ParseJson(text, "a file");
    ASSERT_FALSE(parsed.ok());
    EXPECT_NE(parsed.error().message.find("a NUL"), std::string::npos) << parsed.error().message;
  }
}

TEST(ParseJson, RefusesDepthWithoutRecursing) {
  for (const char* open : {"[", "{\"a\":"}) {
    for (const int depth : {65, 10'000, 1'000'000}) {
      std::string text;
      for (int i = 0; i < depth; ++i) text += open;
      ExpectError(ParseJson(text, "deep.json"), {"deep.json", "at most 64 levels"});
    }
  }
  const std::string just = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(ParseJson(just, "x").ok());
  EXPECT_FALSE(ParseJson("[" + just + "]", "x").ok());
  EXPECT_TRUE(ParseJson("[" + just + "]", "x", 65).ok());
  EXPECT_TRUE(ParseJson("[\"" + std::string(1000, '[') + "\"]", "x", 1).ok());
}

TEST(Printable, KeepsTextAndShowsTheRest) {
  EXPECT_EQ(Printable("model.layers.0 é 模 😀"), "model.layers.0 é 模 😀");
  EXPECT_EQ(Printable("a\nb\t\x7f\\"), "a\\x0ab\\x09\\x7f\\x5c");
  EXPECT_EQ(Printable("\xff\xc0\xaf\xed\xa0\x80\xe2\x82"),
            "\\xff\\xc0\\xaf\\xed\\xa0\\x80\\xe2\\x82");
  EXPECT_EQ(Printable("\xc2\x85 \xe2\x80\xa8"), "\\xc2\\x85 \\xe2\\x80\\xa8");
  EXPECT_EQ(Printable("abcdef", 3), "abc...");
  EXPECT_EQ(Printable("abc", 3), "abc");
}

}  // namespace
}  // namespace kvasir::files
