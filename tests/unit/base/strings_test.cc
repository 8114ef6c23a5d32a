#include "base/strings.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

TEST(Strings, EditDistanceCountsChangedBytes) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("--prot", "--port"), 2u);
  EXPECT_EQ(EditDistance("flaw", "lawn"), EditDistance("lawn", "flaw"));
}

TEST(Strings, EscapeHtmlLeavesNoMarkup) {
  EXPECT_EQ(EscapeHtml("<a href=\"x\" id='y'>&"), "&lt;a href=&#34;x&#34; id=&#39;y&#39;&gt;&amp;");
  EXPECT_EQ(EscapeHtml("na\xC3\xAFve"), "na\xC3\xAFve");
}

}  // namespace
}  // namespace kvasir
