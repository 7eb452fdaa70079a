// The page from top to bottom: numbers, time, what was lost, each incident.
#include "supervisor/incident_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/chart_page.h"
#include "base/printable.h"
#include "base/quantile.h"
#include "supervisor/timeline_chart.h"

namespace moraine {
namespace {

constexpr size_t kIncidentsShown = 300, kReplacementsShown = 100;
constexpr size_t kEvidenceShown = 6;
constexpr int64_t kTextShown = 300;  // bytes
constexpr const char* kPhases[] = {"detection", "decision",   "respawn", "meeting",
                                   "loading",   "first_step", "without"};

std::string shown(const std::string& text) { return html_escape(printable(text, kTextShown)); }

std::string tile(const std::string& value, const char* name) {
  return fmt::format("<div class=\"card tile\"><b>{}</b><span>{}</span></div>\n",
                     html_escape(value), name);
}

double lost_seconds(std::span<const LedgerEntry> entries) {
  double sum = 0;
  for (const LedgerEntry& e : entries) sum += e.seconds_lost;
  return sum;
}

std::string tiles(const IncidentPage& page) {
  double watched = 0;
  for (const TimelinePoint& p : page.points) watched += p.end - p.begin;
  const double lost = lost_seconds(page.entries);
  std::string html = "<div class=\"tiles\">\n";
  html += tile(fmt::format("{}", page.entries.size()), "incidents");
  html += tile(fmt::format("{} s", number_text(lost)), "lost");
  // A ledger may be older than the timeline that is kept.
  if (watched > lost) html += tile(fmt::format("{:.2f} %", 100 * lost / watched), "of the time");
  html += tile(page.steps_total > 0 ? fmt::format("{} of {}", page.step, page.steps_total)
                                    : fmt::format("{}", page.step),
               "steps");
  return html + "</div>\n";
}

// What the run made of its time, beside what was to be expected.
std::string useful_card(const UsefulShare& seen, double expected) {
  if (!(seen.watched > 0)) return "";
  std::string text = fmt::format(
      "<p><b>{:.1f} %</b> of {} s went into steps that count ({} s each, {} s between).",
      100 * seen.useful, number_text(seen.watched), number_text(seen.step_seconds),
      number_text(seen.between_seconds));
  if (expected >= 0)
    text += fmt::format(
        " <b>{:.1f} %</b> was to be expected of {} interruptions, after each of which ranks "
        "computed again {} s later (<code>moraine plan reliability</code> has the formula).",
        100 * expected, seen.interruptions, number_text(seen.recovery));
  return page_card(text + "</p>\n");
}

std::string speed_chart(const IncidentPage& page) {
  ChartSeries series{.name = ""};
  for (const TimelinePoint& p : page.points) {
    series.x.push_back((p.begin - page.points.front().begin) / 3600);
    series.y.push_back(p.tokens_per_second);
  }
  return line_chart_svg({.title = "Throughput",
                         .unit = "tokens per second, by hours",
                         .series = {series},
                         .from_zero = true,
                         .wide = true});
}

struct Loss {
  int64_t incidents = 0;
  double seconds = 0;
};

// A bar for each name, the longest first.
std::string loss_table(const char* title, const std::map<std::string, Loss>& losses) {
  std::vector<std::pair<std::string, Loss>> rows(losses.begin(), losses.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.seconds > b.second.seconds;
  });
  const double most = rows.empty() ? 0 : rows.front().second.seconds;
  std::string html = fmt::format(
      "<table><tr><th>{}</th><th></th><th>incidents</th><th>seconds</th></tr>\n", title);
  for (const auto& [name, loss] : rows)
    html += fmt::format(
        "<tr><td>{}</td><td style=\"width:50%\"><div style=\"height:10px;width:{:.1f}%;"
        "background:var(--s2)\"></div></td><td>{}</td><td>{:.2f}</td></tr>\n",
        html_escape(name), most > 0 ? 100 * loss.seconds / most : 0, loss.incidents, loss.seconds);
  return html + "</table>\n";
}

std::string loss_cards(std::span<const LedgerEntry> entries) {
  std::map<std::string, Loss> by_fault, by_level;
  for (const LedgerEntry& e : entries) {
    for (Loss* loss : {&by_fault[fault_name(e.fault)], &by_level[level_name(e.level)]}) {
      ++loss->incidents;
      loss->seconds += e.seconds_lost;
    }
  }
  return fmt::format("<h2>Time lost</h2>\n<div class=\"charts\">\n{}{}</div>\n",
                     page_card(loss_table("fault", by_fault)),
                     page_card(loss_table("made good by", by_level)));
}

std::string who(const LedgerEntry& e) {
  if (e.rank < 0) return shown(e.host);
  return fmt::format("rank {} {}", e.rank, shown(e.host));
}

std::string incident_row(const LedgerEntry& e) {
  std::string evidence;
  for (size_t i = 0; i < std::min(e.evidence.size(), kEvidenceShown); ++i)
    evidence += fmt::format("{}{}", i == 0 ? "" : "<br>", shown(e.evidence[i]));
  if (e.evidence.size() > kEvidenceShown)
    evidence += fmt::format("<br>and {} more", e.evidence.size() - kEvidenceShown);
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
      "<td>{:.3f}</td></tr>\n",
      e.id, utc_of(e.begin_unix), fault_name(e.fault), who(e), e.step, evidence, shown(e.decision),
      level_name(e.level), e.seconds_lost);
}

std::string what_is_left_out(size_t left_out) {
  if (left_out == 0) return "";
  return fmt::format("<p class=\"soft\">{} earlier ones are in ledger.jsonl.</p>\n", left_out);
}

std::string incident_table(std::span<const LedgerEntry> entries) {
  std::string html = "<h2>Incidents</h2>\n";
  if (entries.empty()) return html + page_card("Nothing happened.");
  std::string rows =
      "<div class=\"scroll\"><table><tr><th>no.</th><th>begin, UTC</th><th>fault</th><th>where</th>"
      "<th>step</th><th>evidence</th><th>decision</th><th>made good by</th><th>seconds lost</th>"
      "</tr>\n";
  const size_t count = std::min(entries.size(), kIncidentsShown);
  for (size_t i = 0; i < count; ++i) rows += incident_row(entries[entries.size() - 1 - i]);
  return fmt::format("{}{}{}", html, page_card(fmt::format("{}</table></div>\n", rows)),
                     what_is_left_out(entries.size() - count));
}

double phase_of(const LedgerEntry& e, const char* name) {
  for (const LedgerPhase& phase : e.phases)
    if (phase.name == name) return phase.seconds;
  return -1;
}

std::string cell(double seconds) {
  return seconds < 0 ? "<td></td>" : fmt::format("<td>{:.3f}</td>", seconds);
}

std::string replacement_row(const LedgerEntry& e) {
  std::string cells = fmt::format("<tr><td>{}</td><td>{}</td>", e.id, who(e));
  for (const char* name : kPhases) cells += cell(phase_of(e, name));
  return fmt::format("{}<td>{:.3f}</td></tr>\n", cells, e.end - e.begin);
}

std::string median_row(const std::vector<const LedgerEntry*>& entries) {
  std::string cells = "<tr><td></td><td>median of all</td>";
  for (const char* name : kPhases) {
    std::vector<double> values;
    for (const LedgerEntry* e : entries)
      if (const double seconds = phase_of(*e, name); seconds >= 0) values.push_back(seconds);
    cells += cell(values.empty() ? -1 : quantile_of(values, 0.5));
  }
  std::vector<double> whole;
  for (const LedgerEntry* e : entries) whole.push_back(e->end - e->begin);
  return fmt::format("{}{}</tr>\n", cells, cell(quantile_of(whole, 0.5)));
}

std::string replacement_table(std::span<const LedgerEntry> entries) {
  std::vector<const LedgerEntry*> started;
  for (const LedgerEntry& e : entries)
    if (!e.phases.empty()) started.push_back(&e);
  if (started.empty()) return "";
  std::string rows =
      "<div class=\"scroll\"><table><tr><th>no.</th><th>where</th><th>detection</th>"
      "<th>decision</th><th>respawn</th><th>meeting</th><th>loading</th><th>first step</th>"
      "<th>without it</th>"
      "<th>in all, seconds</th></tr>\n";
  rows += median_row(started);
  const size_t count = std::min(started.size(), kReplacementsShown);
  for (size_t i = 0; i < count; ++i) rows += replacement_row(*started[started.size() - 1 - i]);
  return fmt::format("<h2>Processes that were started again</h2>\n{}{}",
                     page_card(fmt::format("{}</table></div>\n", rows)),
                     what_is_left_out(started.size() - count));
}

}  // namespace

std::string incident_page(const IncidentPage& page) {
  std::vector<double> marks;
  for (const LedgerEntry& e : page.entries) marks.push_back(e.begin_unix);
  std::string body = tiles(page);
  body += "<h2>Ranks</h2>\n";
  body += page_card(timeline_svg({page.points, page.outages, std::move(marks)}));
  body += timeline_legend();
  body += page_card(speed_chart(page));
  body += useful_card(page.useful, page.useful_expected);
  body += loss_cards(page.entries);
  body += incident_table(page.entries);
  body += replacement_table(page.entries);
  const std::string until = page.points.empty() ? "" : utc_of(page.points.back().end);
  body += fmt::format("<footer>{} {}</footer>\n",
                      page.outcome.empty() ? "The run goes on; written" : "Written", until);
  return chart_page({.title = printable(page.title, kTextShown),
                     .subtitle = page.outcome.empty() ? "supervised run, not over yet"
                                                      : printable(page.outcome, 1000),
                     .body = body});
}

}  // namespace moraine
