// Reliability: the closed form, and its maximum.
#include "plan/reliability.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace moraine {
namespace {

void check(const ReliabilityInputs& in) {
  const auto wants = [](bool ok, const char* name, double value, const char* wanted) {
    if (!ok)
      throw_error(Code::kInvalidArgument, "plan reliability: {} = {}: wanted {}", name, value,
                  wanted);
  };
  const auto positive = [&](const char* name, double v) {
    wants(v > 0 && std::isfinite(v), name, v, "more than 0");
  };
  const auto not_negative = [&](const char* name, double v) {
    wants(v >= 0 && std::isfinite(v), name, v, "0 or more");
  };
  positive("ranks", static_cast<double>(in.ranks));
  positive("ranks per host", static_cast<double>(in.ranks_per_host));
  positive("rails", static_cast<double>(in.rails));
  positive("mean time between failures of a rank", in.rank_mtbf);
  positive("mean time between failures of a host", in.host_mtbf);
  positive("mean time between failures of a rail", in.rail_mtbf);
  positive("repair of a rail", in.rail_repair);
  not_negative("gap", in.gap);
  not_negative("detection", in.detect);
  not_negative("restart", in.restart);
  not_negative("save", in.save);
  not_negative("write", in.write);
  not_negative("interval", in.every);
  wants(in.every == 0 || in.every >= in.write, "interval", in.every,
        "at least the time to write a checkpoint");
}

double useful_share(const ReliabilityInputs& in, double rate, double gaps, double every) {
  const double s = every + in.save, pr = std::exp(-rate * s), pf = std::exp(-rate * (s + in.write));
  const double f = -std::expm1(-rate * s) / (pf - std::expm1(-rate * s));
  const double recovery = std::expm1(rate * (in.detect + in.restart)) / rate;
  const double failures =
      f * -std::expm1(-rate * (s + in.write)) + (1 - f) * -std::expm1(-rate * s);
  const double useful = every * (f * pf + (1 - f) * pr) / ((1 / rate + recovery) * failures);
  return useful / (1 + gaps * in.gap);
}

// The share has one maximum over the interval: the golden section of its logarithm.
double best_interval(const ReliabilityInputs& in, double rate, double gaps) {
  const double kGolden = 0.6180339887498949;
  double low = std::log(std::max(in.write, 1e-3)),
         high = std::log(std::max(in.write, 1e-3) + 20 / rate);
  for (int i = 0; i < 200; ++i) {
    const double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
    const bool is_left =
        useful_share(in, rate, gaps, std::exp(a)) > useful_share(in, rate, gaps, std::exp(b));
    (is_left ? high : low) = is_left ? b : a;
  }
  return std::exp((low + high) / 2);
}

}  // namespace

Reliability expect_reliability(const ReliabilityInputs& in) {
  check(in);
  const double ranks = static_cast<double>(in.ranks), rails = static_cast<double>(in.rails);
  const double hosts = std::ceil(ranks / static_cast<double>(in.ranks_per_host));
  const double down = in.rail_repair / (in.rail_repair + in.rail_mtbf);
  const bool has_network = hosts > 1;
  Reliability r;
  const double by_ranks = ranks / in.rank_mtbf, by_hosts = hosts / in.host_mtbf,
               by_rails = has_network ? hosts * rails * std::pow(down, rails - 1) * (1 - down) /
                                            in.rail_mtbf
                                      : 0;
  r.interruptions = by_ranks + by_hosts + by_rails;
  r.of_ranks = by_ranks / r.interruptions;
  r.of_hosts = by_hosts / r.interruptions;
  r.of_rails = by_rails / r.interruptions;
  r.gaps = has_network && in.rails > 1 ? hosts * rails * (1 - down) / in.rail_mtbf - by_rails : 0;
  r.every = in.every > 0 ? in.every : best_interval(in, r.interruptions, r.gaps);
  r.useful = useful_share(in, r.interruptions, r.gaps, r.every);
  r.young = std::sqrt(2 * in.save / r.interruptions);
  return r;
}

}  // namespace moraine
