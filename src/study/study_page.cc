// StudyPage: a table, intervals, curves.
#include "study/study_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/chart_page.h"
#include "model/parameters.h"
#include "study/study_text.h"

namespace moraine {
namespace {

constexpr double kWidth = 1292, kRow = 30, kTop = 40, kLeft = 260, kRight = 40;

std::string row_html(const VariantResult& r, double base_flops) {
  const ParameterCount count = count_parameters(r.study.config.model);
  std::string changes;
  for (const std::string& a : r.study.variant.assignments) changes += html_escape(a) + "<br>";
  std::string failed;
  for (const StudyOutcome& o : r.outcomes)
    if (!o.why.empty()) failed += fmt::format("<br>seed {}: {}", o.seed, html_escape(o.why));
  const Estimate& d = r.against_base;
  const std::string difference = std::isnan(d.mean) ? "-"
                                 : std::isnan(d.interval)
                                     ? fmt::format("{:+.4f}", d.mean)
                                     : fmt::format("{:+.4f} ± {:.4f}", d.mean, d.interval);
  std::string row = fmt::format(
      "<tr><td><b>{}</b><br><span class=\"soft\">{}{}</span></td><td>{} of {}</td><td>{}</td>"
      "<td>{}</td><td>{}</td>",
      html_escape(r.study.variant.name), changes, failed, r.loss.n, r.outcomes.size(),
      with_error(r.loss.mean, r.loss.error),
      signed_with_error(r.against_base.mean, r.against_base.interval),
      with_digits(median_of(r, &StudyOutcome::bits_per_byte), 4));
  row += fmt::format("<td>{:.3f}</td><td>{}</td><td>{} of {}</td><td>{} / {}</td>",
                     r.study.token_flops / base_flops,
                     format_count(static_cast<double>(r.study.tokens)),
                     format_count(static_cast<double>(count.active)),
                     format_count(static_cast<double>(count.total)), r.study.config.model.hidden,
                     r.study.config.model.expert_hidden);
  return row +
         fmt::format("<td>{}</td><td>{}</td><td>{}</td></tr>\n",
                     with_digits(median_of(r, &StudyOutcome::load_max_over_mean), 2),
                     with_digits(median_of(r, &StudyOutcome::load_entropy), 3),
                     r.loss.n == 0 ? "-" : format_count(median_of(r, &StudyOutcome::tokens_per_s)));
}

std::string table_html(const std::vector<VariantResult>& results) {
  std::string html =
      "<div class=\"scroll\"><table><tr><th>variant</th><th>seeds</th><th>held-out "
      "loss</th><th>against "
      "base</th><th>bits per byte</th><th>flops per token, of base</th><th>tokens</th><th>active "
      "parameters</th><th>hidden / expert hidden</th><th>busiest expert over mean</th><th>entropy "
      "of the "
      "load</th><th>tokens/s</th></tr>\n";
  for (const VariantResult& r : results) html += row_html(r, results.front().study.token_flops);
  return page_card(html + "</table></div>", "wide");
}

// A point and its 95 % interval for each variant, zero being the base.
std::string intervals_svg(const std::vector<VariantResult>& results) {
  std::vector<const VariantResult*> rows;
  double most = 0;
  for (const VariantResult& r : results) {
    const Estimate& d = r.against_base;
    if (!std::isfinite(d.mean)) continue;
    rows.push_back(&r);
    most = std::max(most, std::abs(d.mean) + (std::isfinite(d.interval) ? d.interval : 0));
  }
  if (rows.empty()) return "";
  if (most == 0) most = 1e-4;
  const double height = kTop + kRow * static_cast<double>(rows.size()) + 30;
  const auto x = [&](double v) { return kLeft + (kWidth - kLeft - kRight) * (v / most + 1) / 2; };
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0} {1:.0f}\" role=\"img\"><text class=\"title\" x=\"8\" "
      "y=\"18\">Held-out loss "
      "against the base <tspan class=\"tick\">nats per token; left is better; bar: 95 % interval "
      "over "
      "seeds</tspan></text><path class=\"axis\" d=\"M{2:.1f} 28V{3:.1f}\"/>",
      kWidth, height, x(0), height - 24);
  for (const double v : {-most, -most / 2, 0.0, most / 2, most})
    svg += fmt::format(
        "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x(v),
        height - 8, number_text(v));
  double y = kTop + kRow / 2;
  for (const VariantResult* r : rows) {
    const Estimate& d = r->against_base;
    svg +=
        fmt::format("<text class=\"cell\" style=\"font-size:13px\" x=\"8\" y=\"{:.1f}\">{}</text>",
                    y + 4, html_escape(r->study.variant.name));
    if (std::isfinite(d.interval))
      svg += fmt::format(
          "<path class=\"line c1\" d=\"M{0:.1f} {2:.1f}H{1:.1f}M{0:.1f} {3:.1f}v10M{1:.1f} "
          "{3:.1f}v10\"/>",
          x(d.mean - d.interval), x(d.mean + d.interval), y, y - 5);
    svg +=
        fmt::format("<circle class=\"dot c1\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\"/>", x(d.mean), y);
    y += kRow;
  }
  return svg + "</svg>";
}

// 1e12 and its name, or what fits `flops`.
struct FlopsUnit {
  double flops;
  const char* name;
};
FlopsUnit unit_of(double flops) {
  constexpr FlopsUnit kUnits[] = {{1e21, "10^21"}, {1e18, "10^18"}, {1e15, "10^15"},
                                  {1e12, "10^12"}, {1e9, "10^9"},   {1e6, "10^6"}};
  for (const FlopsUnit& unit : kUnits)
    if (flops >= unit.flops) return unit;
  return kUnits[5];
}

void add_curve(const VariantResult& r, int colour, LineChart& chart) {
  MeanCurve curve = mean_curve(r);
  if (curve.flops.empty()) return;
  for (double& flops : curve.flops) flops /= unit_of(r.study.total_flops).flops;
  chart.series.push_back({.name = r.study.variant.name,
                          .colour = colour,
                          .dots = curve.flops.size() <= 25,
                          .x = curve.flops,
                          .y = curve.loss});
  for (const double sign : {-1.0, 1.0}) {
    ChartSeries edge = {.name = "", .colour = colour, .faint = true, .x = curve.flops};
    for (size_t i = 0; i < curve.loss.size(); ++i)
      edge.y.push_back(curve.loss[i] + sign * curve.error[i]);
    if (std::isfinite(edge.y.front())) chart.series.push_back(std::move(edge));
  }
}

std::vector<LineChart> curves(const std::vector<VariantResult>& results) {
  std::vector<LineChart> charts;
  for (size_t v = results.size() > 1 ? 1 : 0; v < results.size(); ++v) {
    if (results[v].loss.n == 0) continue;
    LineChart chart = {.title = results[v].study.variant.name,
                       .unit = fmt::format("held-out loss, nats per token, by {} training flops",
                                           unit_of(results[v].study.total_flops).name)};
    if (v > 0) add_curve(results[0], 1, chart);
    add_curve(results[v], v > 0 ? 2 : 1, chart);
    charts.push_back(std::move(chart));
  }
  return charts;
}

}  // namespace

std::string study_page(const std::vector<VariantResult>& results) {
  const StudyConfig& base = results.front().study;
  std::string body = table_html(results);
  const std::string intervals = intervals_svg(results);
  if (!intervals.empty()) body += "<h2>Differences</h2>\n" + page_card(intervals, "wide");
  const std::vector<LineChart> charts = curves(results);
  if (!charts.empty()) body += "<h2>Held-out loss as compute is spent</h2>\n" + chart_cards(charts);
  body +=
      "<footer>Held-out loss: mean over seeds ± standard error. Against base: mean of the "
      "differences seed by seed, "
      "± half of the 95 % interval by Student's t; an interval that contains zero shows no "
      "difference. Flops: 6 "
      "for each active weight and 12 H d for each visible key. Pale lines: one standard "
      "error.</footer>\n";
  return chart_page(
      {.title = "Study at equal compute",
       .subtitle = fmt::format("{:.3g} flops a run, {} tokens of the base, sequences of {}",
                               base.total_flops, base.tokens, base.config.train.sequence),
       .body = body});
}

}  // namespace moraine
