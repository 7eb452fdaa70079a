// ChartPage: the HTML page that charts stand on: one file that loads nothing, light or dark as its reader is.
#pragma once

#include <string>
#include <vector>

#include "base/chart.h"

namespace moraine {

struct ChartPage {
  std::string title, subtitle;  // plain text
  std::string body;             // HTML
};
std::string chart_page(const ChartPage& page);

// `inner`, HTML, on a card; "wide": as wide as the page.
std::string page_card(const std::string& inner, const char* css_class = "");

// A card for each chart, as many beside each other as the window has room for.
std::string chart_cards(const std::vector<LineChart>& charts);

}  // namespace moraine
