#include "server/logprobs.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace kvasir::server {
namespace {

int Characters(std::string_view bytes) {
  CharacterCounter counter;
  int count = 0;
  for (const char c : bytes) count += counter.Begins(static_cast<unsigned char>(c)) ? 1 : 0;
  return count;
}

// As many as Python's bytes.decode(errors="replace") has.
TEST(CharacterCounter, CountsWhatIsShown) {
  EXPECT_EQ(Characters("Hello"), 5);
  EXPECT_EQ(Characters("na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x98\x80"), 9);
  EXPECT_EQ(Characters("\x80\xBF"), 2);  // begin nothing
  EXPECT_EQ(Characters("a\xE2\x82"
                       "b"),
            3);                                  // cut short
  EXPECT_EQ(Characters("\xE2\x82\xAC\x82"), 2);  // one too many
  EXPECT_EQ(Characters("\xE0\x80\x80"), 3);      // overlong
  EXPECT_EQ(Characters("\xED\xA0\x80"), 3);      // a surrogate
  EXPECT_EQ(Characters("\xF4\x90\x80\x80"), 4);  // beyond U+10FFFF
  EXPECT_EQ(Characters("\xF0\x9F\x98"), 1);
  EXPECT_EQ(Characters("\xC0\xAF\xFF"), 3);
}

}  // namespace
}  // namespace kvasir::server
