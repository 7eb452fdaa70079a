// PlanCluster: a table of sizes, and a page with where the time goes as ranks grow.
#include "cli/plan_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/chart_page.h"
#include "base/check_place.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/plan_step.h"
#include "train/cluster_plan.h"

namespace moraine {
namespace {

constexpr int64_t kMostRanks = 1 << 17;

std::vector<int64_t> parse_sizes(const std::string& text) {
  std::vector<int64_t> sizes;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    int64_t value = 0;
    const auto [rest, code] = std::from_chars(text.data() + at, text.data() + end, value);
    if (code != std::errc() || rest != text.data() + end || value < 1 || value > kMostRanks)
      throw_error(Code::kInvalidArgument, "--sizes {}: wanted numbers from 1 to {}, as 8,48,384",
                  text, kMostRanks);
    sizes.push_back(value);
    at = end + 1;
  }
  return sizes;
}

std::string mesh_text(const MeshPlan& p) {
  return fmt::format("{}x{}x{}{}", p.mesh.data(), p.mesh.context, p.mesh.expert,
                     p.recompute == Recompute::kLayer ? "r" : "");
}

std::string error_text(const ClusterPlan& p) {
  if (!p.is_extrapolated) return "";
  return p.error < 0 ? "extrapolated, error unknown"
                     : fmt::format("extrapolated, +- {:.0f} %", 100 * p.error);
}

double exposed_share(const ClusterPlan& p) { return p.best.time.exposed / p.best.time.seconds; }

void print_header() {
  fmt::print("{:>7}{:>7}  {:<16}{:>11}{:>10}{:>9}{:>10}{:>10}{:>9}{:>9}{:>12}\n", "ranks", "used",
             "mesh", "batch", "step ms", "exposed", "GiB", "GB far", "useful", "simul.",
             "tokens/day");
}

void print_row(const ClusterPlan& p) {
  fmt::print(
      "{:>7}{:>7}  {:<16}{:>11}{:>10.1f}{:>7.1f} %{:>10.2f}{:>10.3f}{:>7.2f} %{:>7.2f} %{:>12.4g}"
      "  {}\n",
      p.ranks_asked, p.ranks, mesh_text(p.best), p.batch_tokens, 1e3 * p.best.time.seconds,
      100 * exposed_share(p), static_cast<double>(p.best.bytes) / (1 << 30),
      p.best.time.bytes_far / 1e9, 100 * p.reliability.useful, 100 * p.simulated.useful,
      p.tokens_per_day, error_text(p) + (p.best.fits ? "" : "; does not fit in memory"));
}

Json json_of(const ClusterPlan& p) {
  Json json = {{"ranks", p.ranks_asked},
               {"ranks_used", p.ranks},
               {"data", p.best.mesh.data()},
               {"context", p.best.mesh.context},
               {"expert", p.best.mesh.expert},
               {"recompute", p.best.recompute == Recompute::kLayer},
               {"batch_tokens", p.batch_tokens},
               {"step_ms", 1e3 * p.best.time.seconds},
               {"exposed_ms", 1e3 * p.best.time.exposed},
               {"communication_ms", 1e3 * p.best.time.communication},
               {"memory_bytes", p.best.bytes},
               {"fits", p.best.fits},
               {"bytes_near", p.best.time.bytes_near},
               {"bytes_far", p.best.time.bytes_far},
               {"useful", p.reliability.useful},
               {"simulated_useful", p.simulated.useful},
               {"simulated_error", p.simulated.useful_error},
               {"simulated_slow", p.simulated.slow},
               {"interruption_seconds", 1 / p.reliability.interruptions},
               {"checkpoint_every_seconds", p.reliability.every},
               {"tokens_per_day", p.tokens_per_day},
               {"is_extrapolated", p.is_extrapolated}};
  if (p.error >= 0) json["calibration_error"] = p.error;
  return json;
}

// The fastest plan of a mesh's kind at each size.
enum class MeshKind : uint8_t { kData, kExperts, kContext };
constexpr const char* kKindNames[] = {"data alone", "experts divided", "sequences shared"};

MeshKind kind_of(const Mesh& mesh) {
  if (mesh.context > 1) return MeshKind::kContext;
  return mesh.expert > 1 ? MeshKind::kExperts : MeshKind::kData;
}

// Milliseconds of a step for each 1,000 tokens of a rank: sizes have different batches.
double per_tokens(const ClusterPlan& p, double seconds) {
  return 1e3 * seconds * 1e3 * static_cast<double>(p.ranks) / static_cast<double>(p.batch_tokens);
}

LineChart chart_of_meshes(const std::vector<ClusterPlan>& plans) {
  LineChart chart{.title = "Time of a step by mesh", .unit = "ms per 1,000 tokens of a rank"};
  chart.log_x = chart.from_zero = true;
  for (int kind = 0; kind < 3; ++kind) {
    ChartSeries series{.name = kKindNames[kind], .colour = kind + 1, .dots = true};
    for (const ClusterPlan& p : plans) {
      const auto best = std::find_if(p.meshes.begin(), p.meshes.end(), [&](const MeshPlan& m) {
        return static_cast<int>(kind_of(m.mesh)) == kind;
      });
      if (best == p.meshes.end()) continue;
      series.x.push_back(static_cast<double>(p.ranks));
      series.y.push_back(per_tokens(p, best->time.seconds));
    }
    if (!series.x.empty()) chart.series.push_back(series);
  }
  return chart;
}

LineChart chart_of_split(const std::vector<ClusterPlan>& plans) {
  LineChart chart{.title = "Where the time of the best mesh goes",
                  .unit = "ms per 1,000 tokens of a rank"};
  chart.log_x = chart.from_zero = true;
  const auto add = [&](const char* name, int colour, const auto& seconds) {
    ChartSeries series{.name = name, .colour = colour, .dots = true};
    for (const ClusterPlan& p : plans) {
      series.x.push_back(static_cast<double>(p.ranks));
      series.y.push_back(per_tokens(p, seconds(p.best.time)));
    }
    chart.series.push_back(series);
  };
  add("all", 1, [](const StepTime& t) { return t.seconds; });
  add("compute", 2, [](const StepTime& t) { return t.compute; });
  add("exposed communication", 3, [](const StepTime& t) { return t.exposed; });
  return chart;
}

LineChart chart_of_use(const std::vector<ClusterPlan>& plans) {
  LineChart chart{.title = "Useful share of the time", .unit = "%"};
  chart.log_x = true;
  ChartSeries closed{.name = "without slow hosts", .colour = 2, .dots = true},
      simulated{.name = "simulated", .colour = 1, .dots = true};
  for (const ClusterPlan& p : plans) {
    closed.x.push_back(static_cast<double>(p.ranks));
    closed.y.push_back(100 * p.reliability.useful);
    simulated.x.push_back(static_cast<double>(p.ranks));
    simulated.y.push_back(100 * p.simulated.useful);
  }
  chart.series = {closed, simulated};
  return chart;
}

std::string table_of(const std::vector<ClusterPlan>& plans) {
  std::string html =
      "<h2>Sizes</h2><table><tr><th>ranks</th><th>used</th><th>data x context x expert</th>"
      "<th>batch tokens</th><th>step ms</th><th>exposed %</th><th>useful %</th><th>tokens a "
      "day</th>"
      "<th></th></tr>";
  for (const ClusterPlan& p : plans)
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td>"
        "<td>{:.2f}</td><td>{:.4g}</td><td>{}</td></tr>",
        p.ranks_asked, p.ranks, mesh_text(p.best), p.batch_tokens, 1e3 * p.best.time.seconds,
        100 * exposed_share(p), 100 * p.simulated.useful, p.tokens_per_day, error_text(p));
  return page_card(html + "</table>", "wide");
}

void write_page(const std::string& path, const std::string& cluster,
                const std::vector<ClusterPlan>& plans) {
  posix_file_system().write_atomic(
      path,
      chart_page(
          {.title = "A run on a cluster",
           .subtitle = cluster + ": predicted, not measured. Figures beyond the measured ranks are "
                                 "extrapolated and carry the calibration error.",
           .body =
               chart_cards({chart_of_split(plans), chart_of_meshes(plans), chart_of_use(plans)}) +
               table_of(plans)}));
}

}  // namespace

void declare_plan_cluster(Flags& flags, PlanClusterFlags* f) {
  flags
      .text("cluster", &f->cluster_path,
            "cluster: description of the hosts (docs/formats/cluster.md).")
      .text("sizes", &f->sizes, "cluster: ranks.")
      .text("chart", &f->chart, "cluster: HTML file with the time split against ranks, by mesh.");
}

void print_plan_cluster(const PlanClusterFlags& f, const RunConfig& config,
                        const ClusterAsked& asked) {
  if (f.cluster_path.empty())
    throw_error(Code::kInvalidArgument,
                "plan cluster: --cluster is missing: wanted a TOML file that describes the hosts");
  check_plan_number("imbalance", asked.imbalance, 1);
  const std::vector<int64_t> sizes = parse_sizes(f.sizes);
  if (!f.chart.empty()) check_file_place(posix_file_system(), "plan cluster --chart", f.chart);
  const Cluster cluster = read_cluster(posix_file_system(), f.cluster_path);
  const Calibration& calibration = cluster.machine.calibration;
  if (!asked.json) {
    fmt::print("{} ranks a host, {} cores; {} rails of {:.3g} GB/s\n", cluster.ranks_per_host,
               cluster.cores, cluster.rails, cluster.far_gb_s);
    fmt::print("{}\n\n",
               calibration.plans > 0
                   ? fmt::format("calibration: {} plans of up to {} ranks, error median {:.1f} %, "
                                 "largest {:.1f} %",
                                 calibration.plans, calibration.ranks_most,
                                 100 * calibration.error_median, 100 * calibration.error_largest)
                   : "the machine file has no calibration (`bench plan --machine`): errors are not "
                     "known");
    print_header();
  }
  std::vector<ClusterPlan> plans;
  for (const int64_t ranks : sizes) {
    plans.push_back(plan_cluster(config, cluster, ranks,
                                 {.imbalance = asked.imbalance,
                                  .document = asked.document,
                                  .interruptions = f.interruptions}));
    if (asked.json)
      fmt::print("{}\n", json_text(json_of(plans.back())));
    else
      print_row(plans.back());
  }
  if (!f.chart.empty()) write_page(f.chart, f.cluster_path, plans);
}

}  // namespace moraine
