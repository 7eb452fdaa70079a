// TestPage: what every page with charts must be: whole, closed, and asking nobody for anything.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/test_text.h"

namespace moraine::testing {

inline void expect_sound(const std::string& html) {
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_TRUE(html.ends_with("</body></html>\n"));
  for (const char* tag : {"div", "svg", "text", "pre", "details", "style", "h2"}) {
    EXPECT_EQ(count(html, std::string("<") + tag + ">") + count(html, std::string("<") + tag + " "),
              count(html, std::string("</") + tag + ">"))
        << tag;
  }
  for (const char* bad :
       {"http:", "https:", "src=", "@import", "url(", "<script", "nan", "inf ", "inf\""}) {
    EXPECT_EQ(count(html, bad), 0) << bad;
  }
}

}  // namespace moraine::testing
