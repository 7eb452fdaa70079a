// Printable: fails if a name from a file can move the cursor of a terminal, begin a line of the
// log, or fill the disk.
#include "base/printable.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

TEST(Printable, LeavesOrdinaryText) {
  EXPECT_EQ(printable("a \"b\" \\ c"), "a \"b\" \\ c");
  EXPECT_EQ(printable("\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, ControlsAndBrokenBytesAreSpelled) {
  EXPECT_EQ(printable("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(printable("a\nb\r\tc\x7f"), "a\\nb\\x0d\\x09c\\x7f");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\xc2\\x9b31m");  // the one-character escape
  EXPECT_EQ(printable("caf\xE9"), "caf\\xe9");
  EXPECT_EQ(printable(std::string_view("\0x", 2)), "\\x00x");
}

// A name shows as another where one of these is in it.
TEST(Printable, TurnsOfDirectionAreSpelled) {
  EXPECT_EQ(printable("exe.\xE2\x80\xAEtxt"), "exe.\\xe2\\x80\\xaetxt");
  for (const std::string turn : {"\xD8\x9C", "\xE2\x80\x8E", "\xE2\x80\x8F", "\xE2\x80\xAA",
                                 "\xE2\x80\xAE", "\xE2\x81\xA6", "\xE2\x81\xA9"})
    EXPECT_EQ(printable(turn).find(turn), std::string::npos) << printable(turn);
  for (const std::string other : {"\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\xAA", "\xD8\x9B"})
    EXPECT_EQ(printable(other), other);
}

TEST(Printable, LongTextIsCut) {
  const std::string text = printable(std::string(1000, 'a'), 10);
  EXPECT_EQ(text, "aaaaaaaaaa ... (990 more bytes)");
  EXPECT_EQ(printable(std::string(10, 'a'), 10), std::string(10, 'a'));
}

}  // namespace
}  // namespace moraine
