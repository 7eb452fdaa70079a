// PlanReliability: asks the closed form and the simulation, and shows neighbours of what was asked.
#include "cli/plan_reliability.h"

#include <fmt/format.h>

#include "base/json.h"
#include "cli/plan_step.h"
#include "plan/reliability.h"

namespace moraine {
namespace {

constexpr double kHour = 3600, kDay = 24 * kHour;
constexpr int64_t kLargest[] = {384, 10000};

ReliabilityInputs inputs_of(const ReliabilityFlags& f, int64_t ranks) {
  ReliabilityInputs in;
  in.ranks = ranks;
  in.ranks_per_host = f.ranks_per_host;
  in.rails = f.rails;
  in.rank_mtbf = f.rank_mtbf_hours * kHour;
  in.host_mtbf = f.host_mtbf_hours * kHour;
  in.rail_mtbf = f.rail_mtbf_hours * kHour;
  in.rail_repair = f.rail_repair_hours * kHour;
  in.gap = f.gap_seconds;
  in.detect = f.detect_seconds;
  in.restart = f.restart_seconds;
  in.save = f.save_seconds;
  in.write = f.write_seconds;
  in.every = f.every_seconds;
  return in;
}

std::string time_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  if (seconds < 3 * kHour) return fmt::format("{:.3g} min", seconds / 60);
  if (seconds < 3 * kDay) return fmt::format("{:.3g} h", seconds / kHour);
  return fmt::format("{:.4g} days", seconds / kDay);
}

void print_row(const std::string& name, const Reliability& r) {
  fmt::print("{:<34}{:>14}{:>12}{:>11.3f} %{:>13}\n", name, time_text(1 / r.interruptions),
             time_text(r.every), 100 * r.useful, time_text((1 - r.useful) * kDay));
}

void print_json(const Reliability& r, const SimulatedReliability& s) {
  const Json line = {{"interruption_seconds", 1 / r.interruptions},
                     {"of_ranks", r.of_ranks},
                     {"of_hosts", r.of_hosts},
                     {"of_rails", r.of_rails},
                     {"gap_seconds", r.gaps > 0 ? 1 / r.gaps : 0},
                     {"every_seconds", r.every},
                     {"young_seconds", r.young},
                     {"useful", r.useful},
                     {"simulated_useful", s.useful},
                     {"simulated_error", s.useful_error},
                     {"simulated_interruptions", s.interruptions}};
  fmt::print("{}\n", json_text(line));
}

void print_neighbours(const ReliabilityInputs& in, const Reliability& r) {
  fmt::print("\n{:<34}{:>14}{:>12}{:>13}{:>13}\n", "", "interrupted", "saved", "useful",
             "lost a day");
  for (const double factor : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    ReliabilityInputs other = in;
    other.every = r.every * factor;
    if (other.every < in.write) continue;
    print_row(factor == 1 ? "as asked"
                          : fmt::format("saved {} times as {}", factor < 1 ? 1 / factor : factor,
                                        factor < 1 ? "often" : "seldom"),
              expect_reliability(other));
  }
  for (const int64_t ranks : kLargest) {
    ReliabilityInputs other = in;
    other.ranks = ranks;
    other.every = 0;
    if (ranks > in.ranks)
      print_row(fmt::format("{} ranks (extrapolated)", ranks), expect_reliability(other));
  }
}

// In the words and units of the flags.
void check_flags(const ReliabilityFlags& f) {
  constexpr double kLeastHours = 1e-6;
  check_plan_number("rank-mtbf-hours", f.rank_mtbf_hours, kLeastHours);
  check_plan_number("host-mtbf-hours", f.host_mtbf_hours, kLeastHours);
  check_plan_number("rail-mtbf-hours", f.rail_mtbf_hours, kLeastHours);
  check_plan_number("rail-repair-hours", f.rail_repair_hours, kLeastHours);
  check_plan_number("gap-seconds", f.gap_seconds, 0);
  check_plan_number("detect-seconds", f.detect_seconds, 0);
  check_plan_number("restart-seconds", f.restart_seconds, 0);
  check_plan_number("save-seconds", f.save_seconds, 0);
  check_plan_number("write-seconds", f.write_seconds, 0);
  check_plan_number("every-seconds", f.every_seconds, 0);
}

}  // namespace

void declare_reliability(Flags& flags, ReliabilityFlags* f) {
  flags.integer("ranks-per-host", &f->ranks_per_host, "reliability: ranks of a host.", 1, 65536)
      .integer("rails", &f->rails, "reliability: network paths of a host.", 1, 64)
      .number("rank-mtbf-hours", &f->rank_mtbf_hours,
              "reliability: mean time between failures of one process and its device.")
      .number("host-mtbf-hours", &f->host_mtbf_hours, "reliability: of one host.")
      .number("rail-mtbf-hours", &f->rail_mtbf_hours, "reliability: of one rail of one host.")
      .number("rail-repair-hours", &f->rail_repair_hours, "reliability: until a rail is repaired.")
      .number("gap-seconds", &f->gap_seconds, "reliability: what losing one rail of several costs.")
      .number("detect-seconds", &f->detect_seconds, "reliability: from a fault until it is known.")
      .number("restart-seconds", &f->restart_seconds,
              "reliability: from then to the first new step.")
      .number(
          "save-seconds", &f->save_seconds,
          "reliability: how long training stands still for a checkpoint (stall_ms of its event).")
      .number("write-seconds", &f->write_seconds, "reliability: until the checkpoint is whole.")
      .number("every-seconds", &f->every_seconds, "reliability: between checkpoints; 0: the best.")
      .integer("interruptions", &f->interruptions, "reliability: to simulate.", 100, 10'000'000);
}

void print_reliability(const ReliabilityFlags& f, int64_t ranks, bool json) {
  check_flags(f);
  const ReliabilityInputs in = inputs_of(f, ranks);
  const Reliability r = expect_reliability(in);
  const SimulatedReliability s = simulate_reliability(in, f.interruptions, 1);
  if (json) return print_json(r, s);
  fmt::print("{} ranks, {} on a host, {} rails\n", ranks, f.ranks_per_host, f.rails);
  fmt::print(
      "interrupted every {}: by ranks {:.1f} %, hosts {:.1f} %, all rails of a host {:.2g} %\n",
      time_text(1 / r.interruptions), 100 * r.of_ranks, 100 * r.of_hosts, 100 * r.of_rails);
  if (r.gaps > 0)
    fmt::print("a rail lost every {}, at {} each\n", time_text(1 / r.gaps), time_text(in.gap));
  fmt::print("saved every {}{}\n", time_text(r.every),
             f.every_seconds > 0
                 ? ""
                 : fmt::format(", the best (Young's first order: {})", time_text(r.young)));
  fmt::print("useful {:.3f} % of the time; simulated {:.3f} +- {:.3f} % ({} interruptions, {})\n",
             100 * r.useful, 100 * s.useful, 100 * s.useful_error, s.interruptions,
             time_text(s.seconds));
  print_neighbours(in, r);
}

}  // namespace moraine
