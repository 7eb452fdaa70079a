// TestPage: what every page with charts must be: whole, closed, and asking nobody for anything.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace moraine::testing {

inline int64_t count(const std::string& text, const std::string& what) {
  int64_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

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
