// ChartPage: the style sheet, and the little that stands around a body.
#include "base/chart_page.h"

#include <fmt/format.h>

namespace moraine {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --page:#f6f6f3; --card:#fff; --text:#22252b; --soft:#6c727d; --grid:#e4e5e8;
  --axis:#a9aeb8; --s1:#2563c9; --s2:#d9622b; --s3:#2e8f63; --low:#3b7dd8; --high:#e06a2b; }
@media (prefers-color-scheme: dark) { :root { --page:#14161a; --card:#1d2026; --text:#e5e7eb; --soft:#969daa;
  --grid:#2f333b; --axis:#5b616d; --s1:#6ea3f7; --s2:#f0905c; --s3:#5fc496; --low:#5b97ee; --high:#ee8a50; } }
* { box-sizing: border-box; }
body { margin:0 auto; max-width:1280px; padding:28px 22px 60px; background:var(--page); color:var(--text);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif; }
h1 { font-size:25px; margin:0 0 2px; } h2 { font-size:17px; margin:30px 0 10px; }
.sub { color:var(--soft); margin:0 0 20px; }
.card { background:var(--card); border:1px solid var(--grid); border-radius:10px; padding:10px 12px; min-width:0; }
.tiles { display:grid; grid-template-columns:repeat(auto-fit,minmax(150px,1fr)); gap:10px; }
.tile b { display:block; font-size:22px; font-weight:600; font-variant-numeric:tabular-nums; }
.tile span { color:var(--soft); font-size:13px; }
.charts { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr)); gap:12px; }
.wide { grid-column:1/-1; }
svg { display:block; width:100%; height:auto; overflow:hidden; font-family:inherit; }
.title { font-size:14px; font-weight:600; fill:var(--text); }
.tick { font-size:11px; font-weight:400; fill:var(--soft); font-variant-numeric:tabular-nums; }
.cell { font-size:10px; fill:var(--text); }
.grid { stroke:var(--grid); fill:none; } .axis { stroke:var(--axis); fill:none; }
.line { fill:none; stroke-width:1.8; stroke-linejoin:round; } .faint { stroke-width:1; opacity:.35; }
.c1 { stroke:var(--s1); } .c2 { stroke:var(--s2); } .c3 { stroke:var(--s3); }
.dot { fill:var(--card); stroke-width:1.8; }
.pick { position:relative; } .pick input { position:absolute; opacity:0; }
.pick label { display:inline-block; font-size:12px; color:var(--soft); padding:1px 10px; border:1px solid var(--grid);
  border-radius:20px; cursor:pointer; margin-left:4px; }
.pick input:checked + label { color:var(--text); border-color:var(--axis); }
.pick input:focus-visible + label { outline:2px solid var(--s1); }
.pick .log { display:none; } #axis-log:checked ~ .log { display:block; } #axis-log:checked ~ .lin { display:none; }
pre { margin:0; white-space:pre-wrap; overflow-wrap:anywhere; font:13px/1.5 ui-monospace,Menlo,Consolas,monospace; }
summary { cursor:pointer; font-size:17px; font-weight:600; margin:26px 0 10px; }
footer { color:var(--soft); font-size:13px; margin-top:30px; }
table { border-collapse:collapse; width:100%; } td { padding:4px 8px; border-top:1px solid var(--grid); }
tr:first-child td { border-top:0; } td:last-child { text-align:right; font-variant-numeric:tabular-nums; }
th { text-align:left; font-weight:600; padding:4px 8px; } th:last-child { text-align:right; }
.scroll { overflow-x:auto; } .scroll td { vertical-align:top; font-size:13px; } .soft { color:var(--soft); }
)";

}  // namespace

std::string chart_page(const ChartPage& page) {
  const std::string title = html_escape(page.title);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style></head><body>\n<h1>{}</h1>\n<p class=\"sub\">{}</p>\n"
      "{}</body></html>\n",
      title, kStyle, title, html_escape(page.subtitle), page.body);
}

std::string page_card(const std::string& inner, const char* css_class) {
  return fmt::format("<div class=\"card {}\">{}</div>\n", css_class, inner);
}

std::string chart_cards(const std::vector<LineChart>& charts) {
  std::string cards;
  for (const LineChart& chart : charts) cards += page_card(line_chart_svg(chart));
  return "<div class=\"charts\">\n" + cards + "</div>\n";
}

}  // namespace moraine
