// Cluster: reads the tables, scales the machine.
#include "plan/cluster.h"

#include <algorithm>

#include "base/error.h"

namespace moraine {
namespace {

constexpr double kHour = 3600;
constexpr double kMost = 1e12;

Machine scaled(Machine m, double speed, double memory_speed) {
  m.f32_gflops *= speed, m.bf16_gflops *= speed, m.int8_gops *= speed;
  m.read_gb_s *= memory_speed, m.copy_gb_s *= memory_speed;
  for (ProductPoint& p : m.products) p.gflops *= speed;
  for (OperationFit& o : m.operations) o.call_us /= std::min(speed, memory_speed);
  return m;
}

}  // namespace

std::vector<ClusterTable> cluster_tables(Cluster& c) {
  return {
      {"host",
       {{"machine", &c.machine_path, "", "Machine file of a host like these, beside this file."},
        {"ranks", &c.ranks_per_host, "", "Ranks of a host.", 1, 65536},
        {"cores", &c.cores, "", "Cores of a host; 0: the machine's threads.", 0, 65536},
        {"memory_gib", &c.memory_gib, "GiB", "Memory of a host; 0: any plan fits.", 0, 1e9},
        {"speed", &c.speed, "", "Arithmetic of a host, as a multiple of what was measured.", 1e-6,
         1e6},
        {"memory_speed", &c.memory_speed, "", "Its memory, likewise.", 1e-6, 1e6}}},
      {"near",
       {{"latency_us", &c.near_latency_us, "us", "A message between ranks of a host; 0: measured.",
         0, 1e9},
        {"gb_s", &c.near_gb_s, "GB/s", "Its rate between two ranks; 0: measured.", 0, 1e9}}},
      {"far",
       {{"latency_us", &c.far_latency_us, "us", "A message between hosts.", 0, 1e9},
        {"gb_s", &c.far_gb_s, "GB/s", "Of one rail of a host.", 1e-9, 1e9},
        {"rails", &c.rails, "", "Network paths of a host.", 1, 64}}},
      {"storage",
       {{"write_gb_s", &c.write_gb_s, "GB/s", "Of a host, for checkpoints.", 1e-9, 1e9}}},
      {"failures",
       {{"rank_mtbf_hours", &c.rank_mtbf_hours, "hours",
         "Mean time between failures of a process with its device.", 1e-6, kMost},
        {"host_mtbf_hours", &c.host_mtbf_hours, "hours", "Of a host.", 1e-6, kMost},
        {"rail_mtbf_hours", &c.rail_mtbf_hours, "hours", "Of one rail of a host.", 1e-6, kMost},
        {"rail_repair_hours", &c.rail_repair_hours, "hours", "Until a rail is repaired.", 1e-6,
         kMost},
        {"gap_seconds", &c.gap_seconds, "seconds", "What losing one rail of several costs.", 0,
         kMost},
        {"detect_seconds", &c.detect_seconds, "seconds", "From a fault until it is known.", 0,
         kMost},
        {"restart_seconds", &c.restart_seconds, "seconds", "From then to the first new step.", 0,
         kMost}}},
      {"stragglers",
       {{"mtbf_hours", &c.slow_mtbf_hours, "hours", "Until a host is slow; 0: never.", 0, kMost},
        {"minutes", &c.slow_minutes, "minutes", "How long it stays so, mean.", 0, kMost},
        {"factor", &c.slow_factor, "", "How many times as long its steps take.", 1, 1e6}}},
  };
}

Cluster read_cluster(FileSystem& fs, const std::string& path) {
  Cluster c;
  const SettingsTable settings = SettingsTable::parse(fs.read(path), path);
  std::vector<std::string> names;
  for (const ClusterTable& table : cluster_tables(c)) names.push_back(table.name);
  settings.read({}, names);
  for (const ClusterTable& table : cluster_tables(c)) settings.table(table.name).read(table.fields);
  if (c.machine_path.empty())
    throw_error(Code::kInvalidArgument, "{}: wanted the machine file of a host",
                settings.table("host").where("machine"));
  const size_t slash = path.rfind('/');
  const bool is_relative = c.machine_path.front() != '/' && slash != std::string::npos;
  c.machine = scaled(load_machine(fs, is_relative ? join_path(path.substr(0, slash), c.machine_path)
                                                  : c.machine_path),
                     c.speed, c.memory_speed);
  if (c.cores == 0) c.cores = c.machine.threads;
  return c;
}

Place place_in_cluster(const Cluster& c, int64_t ranks) {
  const int64_t here = std::min(ranks, c.ranks_per_host);
  Place place = place_on_machine(c.machine, here);
  place.cores = c.cores;
  place.threads = std::max<int64_t>(1, c.cores / here);
  if (c.near_latency_us > 0)
    place.near.latency_seconds = place.bucket.latency_seconds = c.near_latency_us * 1e-6;
  if (c.near_gb_s > 0)
    place.near.bytes_per_second = place.bucket.bytes_per_second = c.near_gb_s * 1e9;
  place.far = {.latency_seconds = c.far_latency_us * 1e-6,
               .bytes_per_second = c.far_gb_s * 1e9 * static_cast<double>(c.rails)};
  return place;
}

ClusterFaults cluster_faults(const Cluster& c, int64_t ranks, double state_bytes,
                             double copy_bytes) {
  const double hosts = static_cast<double>((ranks + c.ranks_per_host - 1) / c.ranks_per_host);
  ClusterFaults faults;
  faults.parts = {.ranks = ranks,
                  .ranks_per_host = c.ranks_per_host,
                  .rails = c.rails,
                  .rank_mtbf = c.rank_mtbf_hours * kHour,
                  .host_mtbf = c.host_mtbf_hours * kHour,
                  .rail_mtbf = c.rail_mtbf_hours * kHour,
                  .rail_repair = c.rail_repair_hours * kHour,
                  .gap = c.gap_seconds,
                  .detect = c.detect_seconds,
                  .restart = c.restart_seconds};
  // Training stands still for the copy; each host writes its part.
  faults.parts.save = copy_bytes * static_cast<double>(std::min(ranks, c.ranks_per_host)) /
                      (c.machine.copy_gb_s * 1e9);
  faults.parts.write = state_bytes / hosts / (c.write_gb_s * 1e9);
  faults.slow_mtbf = c.slow_mtbf_hours * kHour;
  faults.slow_seconds = c.slow_minutes * 60;
  faults.slow_factor = c.slow_factor;
  return faults;
}

}  // namespace moraine
