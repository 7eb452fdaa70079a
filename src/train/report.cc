// The page from top to bottom: numbers, curves, balance, sample, config.
#include "train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/chart_page.h"

namespace moraine {
namespace {

using Member = double StepMetrics::*;

std::vector<double> column(const std::vector<StepMetrics>& metrics, Member member) {
  std::vector<double> values;
  for (const StepMetrics& m : metrics) values.push_back(m.*member);
  return values;
}

std::vector<double> steps(const std::vector<StepMetrics>& metrics) {
  std::vector<double> values;
  for (const StepMetrics& m : metrics) values.push_back(static_cast<double>(m.step));
  return values;
}

// The points that are known, for a line that is measured only now and then.
ChartSeries sparse(const std::vector<StepMetrics>& metrics, Member member, const char* name,
                   int colour) {
  ChartSeries s = {.name = name, .colour = colour};
  for (const StepMetrics& m : metrics) {
    if (!std::isfinite(m.*member)) continue;
    s.x.push_back(static_cast<double>(m.step));
    s.y.push_back(m.*member);
  }
  s.dots = s.x.size() <= 25;
  if (s.x.empty()) s.name.clear();
  return s;
}

int64_t smoothing_window(size_t n) {
  return std::clamp<int64_t>(static_cast<int64_t>(n) / 60, 1, 301);
}

// Raw points pale, their running mean above.
std::vector<ChartSeries> raw_and_smooth(const std::vector<StepMetrics>& metrics, Member member,
                                        const char* name, bool cut_peaks = false) {
  const std::vector<double> x = steps(metrics), y = column(metrics, member);
  const int64_t window = smoothing_window(y.size());
  if (window < 3) return {{.name = name, .x = x, .y = y}};
  std::vector<double> mean = y;
  const double limit = cut_peaks ? peak_limit(y) : StepMetrics::kUnknown;
  for (double& v : mean) v = v > limit ? limit : v;  // one spike does not make a plateau
  return {{.name = "", .faint = true, .x = x, .y = y},
          {.name = name, .x = x, .y = smooth(mean, window)}};
}

bool any_known(const std::vector<StepMetrics>& metrics, Member member) {
  return std::any_of(metrics.begin(), metrics.end(),
                     [&](const StepMetrics& m) { return std::isfinite(m.*member); });
}

std::string loss_card(const std::vector<StepMetrics>& metrics) {
  LineChart chart = {.title = "Loss",
                     .unit = "nats per token, by step",
                     .series = raw_and_smooth(metrics, &StepMetrics::loss, "train"),
                     .wide = true};
  chart.series.push_back(sparse(metrics, &StepMetrics::valid_loss, "validation", 2));
  std::string inner =
      "<div class=\"pick\"><input type=\"radio\" name=\"axis\" id=\"axis-lin\" checked><label "
      "for=\"axis-lin\">linear</label>"
      "<input type=\"radio\" name=\"axis\" id=\"axis-log\"><label "
      "for=\"axis-log\">logarithmic</label>";
  inner += "<div class=\"lin\">" + line_chart_svg(chart) + "</div>";
  chart.log_x = true;
  return page_card(inner + "<div class=\"log\">" + line_chart_svg(chart) + "</div></div>", "wide");
}

std::string curve_cards(const std::vector<StepMetrics>& metrics) {
  std::string html = loss_card(metrics);
  const auto add = [&](const char* title, const char* unit, Member member, bool zero, bool cut) {
    if (!any_known(metrics, member)) return;
    html += page_card(line_chart_svg({.title = title,
                                      .unit = unit,
                                      .series = raw_and_smooth(metrics, member, "", cut),
                                      .from_zero = zero,
                                      .cut_peaks = cut}));
  };
  add("Gradient norm", "before clipping", &StepMetrics::gradient_norm, true, true);
  if (any_known(metrics, &StepMetrics::lr)) {  // exact: not smoothed
    ChartSeries lr = {.name = "", .x = steps(metrics), .y = column(metrics, &StepMetrics::lr)};
    html += page_card(
        line_chart_svg({.title = "Learning rate", .unit = "", .series = {lr}, .from_zero = true}));
  }
  add("Speed", "tokens per second", &StepMetrics::tokens_per_s, true, false);
  add("Share of the machine", "percent of measured peak", &StepMetrics::percent_of_peak, true,
      false);
  return html;
}

// [layers][buckets]: highest load over mean in each stretch of steps.
HeatMap balance_over_time(const std::vector<const StepMetrics*>& records, size_t layers) {
  constexpr size_t kColumns = 90;
  const size_t cols = std::min(kColumns, records.size());
  HeatMap map = {.title = "Load of the busiest expert, over the mean",
                 .x_label = "step",
                 .y_label = "layer",
                 .values = std::vector<std::vector<double>>(layers, std::vector<double>(cols, 0))};
  for (size_t c = 0; c < cols; ++c) {
    const size_t begin = records.size() * c / cols, end = records.size() * (c + 1) / cols;
    map.x_names.push_back(number_text(static_cast<double>(records[begin]->step)));
    for (size_t l = 0; l < layers; ++l) {
      for (size_t i = begin; i < end; ++i) {
        const std::vector<float>& loads = records[i]->layer_loads[l];
        const double most =
            loads.empty() ? 0 : static_cast<double>(*std::max_element(loads.begin(), loads.end()));
        map.values[l][c] += most / static_cast<double>(end - begin);
      }
    }
  }
  return map;
}

// [layers][experts]: mean load of the last tenth of the records.
HeatMap balance_by_expert(const std::vector<const StepMetrics*>& records, size_t layers,
                          size_t experts) {
  const size_t count = std::max<size_t>(1, records.size() / 10);
  HeatMap map = {
      .title = "Load of each expert at the end, over the mean",
      .x_label = "expert",
      .y_label = "layer",
      .values = std::vector<std::vector<double>>(layers, std::vector<double>(experts, 0)),
      .numbers = true};
  for (size_t e = 0; e < experts; ++e) map.x_names.push_back(std::to_string(e));
  for (size_t i = records.size() - count; i < records.size(); ++i) {
    for (size_t l = 0; l < layers; ++l) {
      for (size_t e = 0; e < experts; ++e) {
        map.values[l][e] +=
            static_cast<double>(records[i]->layer_loads[l][e]) / static_cast<double>(count);
      }
    }
  }
  return map;
}

std::string balance_cards(const std::vector<StepMetrics>& metrics) {
  if (!any_known(metrics, &StepMetrics::load_max_over_mean)) return "";
  std::vector<ChartSeries> worst =
      raw_and_smooth(metrics, &StepMetrics::load_max_over_mean, "", true);
  std::string html =
      page_card(line_chart_svg({.title = "Busiest expert",
                                .unit = "load over the mean, worst layer; 1 is balance",
                                .series = worst,
                                .from_zero = true,
                                .cut_peaks = true}));
  html += page_card(
      line_chart_svg({.title = "Load entropy",
                      .unit = "mean over layers; 1 is balance",
                      .series = raw_and_smooth(metrics, &StepMetrics::load_entropy, "")}));
  // Records with loads, of the shape of the last one.
  std::vector<const StepMetrics*> records;
  for (size_t i = metrics.size(); i-- > 0;) {
    const StepMetrics& m = metrics[i];
    if (m.layer_loads.empty()) continue;
    const StepMetrics& last = records.empty() ? m : *records.front();
    const size_t experts = last.layer_loads[0].size();
    const bool same = m.layer_loads.size() == last.layer_loads.size() &&
                      std::all_of(m.layer_loads.begin(), m.layer_loads.end(),
                                  [&](const auto& row) { return row.size() == experts; });
    if (same && experts > 0) records.push_back(&m);
  }
  if (records.empty()) return html;
  std::reverse(records.begin(), records.end());
  const size_t layers = records.back()->layer_loads.size(),
               experts = records.back()->layer_loads[0].size();
  html += page_card(heat_map_svg(balance_over_time(records, layers)));
  return html + page_card(heat_map_svg(balance_by_expert(records, layers, experts)));
}

double last_known(const std::vector<double>& values) {
  for (size_t i = values.size(); i-- > 0;) {
    if (std::isfinite(values[i])) return values[i];
  }
  return StepMetrics::kUnknown;
}

double least(const std::vector<double>& values) {
  double best = StepMetrics::kUnknown;
  for (const double v : values) {
    if (std::isfinite(v) && !(v >= best)) best = v;
  }
  return best;
}

double sum_known(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += std::isfinite(v) ? v : 0;
  return sum;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return StepMetrics::kUnknown;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Fact {
  std::string name, value;
};

std::vector<Fact> facts(const std::vector<StepMetrics>& metrics) {
  const auto of = [&](Member member) { return column(metrics, member); };
  const std::vector<double> loss = of(&StepMetrics::loss);
  const StepMetrics& last = metrics.back();
  std::vector<Fact> all;
  const auto add = [&](const char* name, double value, const std::string& text) {
    if (std::isfinite(value)) all.push_back({name, text});
  };
  const std::vector<double> valid = of(&StepMetrics::valid_loss);
  const double smoothed = last_known(smooth(loss, smoothing_window(loss.size())));
  std::vector<double> tail(loss.end() - std::min<int64_t>(static_cast<int64_t>(loss.size()),
                                                          smoothing_window(loss.size())),
                           loss.end());
  tail.erase(std::remove_if(tail.begin(), tail.end(), [](double v) { return !std::isfinite(v); }),
             tail.end());
  const double final_loss =
      tail.empty() ? smoothed : sum_known(tail) / static_cast<double>(tail.size());
  add("training loss", final_loss, fmt::format("{:.4f}", final_loss));
  add("validation loss", last_known(valid), fmt::format("{:.4f}", last_known(valid)));
  add("lowest validation loss", least(valid), fmt::format("{:.4f}", least(valid)));
  const double bits = last_known(of(&StepMetrics::bits_per_byte));
  add("bits per byte", bits, fmt::format("{:.3f}", bits));
  const double unknown = StepMetrics::kUnknown;
  add("tokens", last.tokens_seen > 0 ? 1 : unknown,
      format_count(static_cast<double>(last.tokens_seen)));
  const double seconds = sum_known(of(&StepMetrics::seconds));
  add("time in steps", seconds > 0 ? seconds : unknown, format_duration(seconds));
  const double speed = median(of(&StepMetrics::tokens_per_s)),
               peak = median(of(&StepMetrics::percent_of_peak));
  add("tokens per second, median", speed, format_count(speed));
  add("of the machine's peak, median", peak, fmt::format("{:.1f}%", peak));
  const double entropy = last_known(of(&StepMetrics::load_entropy));
  add("expert load entropy", entropy, fmt::format("{:.3f}", entropy));
  const double busiest = last_known(of(&StepMetrics::load_max_over_mean));
  add("busiest expert over mean", busiest, fmt::format("{:.2f}", busiest));
  const double skip = last_known(of(&StepMetrics::skip_rate));
  add("skip rate", skip, fmt::format("{:.1f}%", 100 * skip));
  add("dead experts", entropy, std::to_string(last.dead_experts));
  const int64_t bad =
      std::count_if(loss.begin(), loss.end(), [](double v) { return !std::isfinite(v); });
  add("steps with a loss that is not a number", bad > 0 ? 1 : unknown, std::to_string(bad));
  return all;
}

std::string tiles(const std::vector<Fact>& all) {
  std::string html = "<div class=\"tiles\">\n";
  for (const Fact& f : all) {
    html += fmt::format("<div class=\"card tile\"><b>{}</b><span>{}</span></div>\n",
                        html_escape(f.value), html_escape(f.name));
  }
  return html + "</div>\n";
}

}  // namespace

std::string render_report(const std::vector<StepMetrics>& metrics, const ReportText& text) {
  ChartPage page{.title = text.title.empty() ? "Training run" : text.title,
                 .subtitle = "No step has been recorded.",
                 .body = {}};
  std::string& html = page.body;
  if (!metrics.empty()) {
    const StepMetrics& last = metrics.back();
    page.subtitle =
        fmt::format("step {}{}", last.step,
                    last.steps_total > 0 ? fmt::format(" of {}", last.steps_total) : "");
    html += tiles(facts(metrics));
    html += "<h2>Training</h2>\n<div class=\"charts\">\n" + curve_cards(metrics) + "</div>\n";
    const std::string balance = balance_cards(metrics);
    if (!balance.empty())
      html += "<h2>Expert balance</h2>\n<div class=\"charts\">\n" + balance + "</div>\n";
  }
  const auto section = [&](const char* name, const std::string& body) {
    if (!body.empty())
      html +=
          fmt::format("<h2>{}</h2>\n", name) + page_card("<pre>" + html_escape(body) + "</pre>");
  };
  section("Sample", text.sample);
  section("Hardware", text.hardware);
  if (!text.config.empty()) {
    html += "<details><summary>Config</summary>\n" +
            page_card("<pre>" + html_escape(text.config) + "</pre>") + "</details>\n";
  }
  html += "<footer>Written by moraine train from metrics.jsonl.</footer>\n";
  return chart_page(page);
}

void write_report(FileSystem& fs, const std::string& path, const std::string& metrics_path,
                  const ReportText& text) {
  std::vector<StepMetrics> metrics;
  if (fs.exists(metrics_path)) metrics = read_metrics(fs, metrics_path);
  fs.write_atomic(path, render_report(metrics, text));
}

}  // namespace moraine
