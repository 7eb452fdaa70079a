// The kernel's small files, each of which may be absent.
#include "supervisor/host_sensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace moraine {
namespace {

constexpr std::string_view kSpace = " \t\n";

std::optional<std::string> read_or_none(FileSystem& fs, const std::string& path) {
  try {
    return fs.read(path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<std::string> list_or_none(FileSystem& fs, const std::string& path) {
  try {
    return fs.list(path);
  } catch (const Error&) {
    return {};
  }
}

template <class T>
std::optional<T> number_at(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kSpace)));
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<int64_t> read_number(FileSystem& fs, const std::string& path) {
  const std::optional<std::string> text = read_or_none(fs, path);
  return text ? number_at<int64_t>(*text) : std::nullopt;
}

// Behind `name`, which begins a line, and what stands between: "MemTotal:  12 kB", "oom_kill 3".
std::optional<int64_t> read_row(FileSystem& fs, const std::string& path, std::string_view name) {
  const std::optional<std::string> text = read_or_none(fs, path);
  if (!text) return std::nullopt;
  for (std::string_view rest = *text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.size() <= name.size() || !line.starts_with(name)) continue;
    if (kSpace.find(line[name.size()]) == std::string_view::npos) continue;
    return number_at<int64_t>(line.substr(name.size()));
  }
  return std::nullopt;
}

// Absent plus a number is the number.
void add(int64_t* sum, const std::optional<int64_t>& value) {
  if (value && *value >= 0) *sum = std::max<int64_t>(*sum, 0) + *value;
}

int64_t free_bytes(FileSystem& fs, const std::string& folder) {
  if (folder.empty()) return -1;
  try {
    return fs.free_bytes(folder);
  } catch (const Error&) {
    return -1;
  }
}

void read_memory(FileSystem& fs, const std::string& root, HostReading* r) {
  constexpr int64_t kKiB = 1024;
  const std::string path = root + "/proc/meminfo";
  if (const auto kib = read_row(fs, path, "MemTotal:")) r->memory_total = *kib * kKiB;
  if (const auto kib = read_row(fs, path, "MemAvailable:")) r->memory_available = *kib * kKiB;
  const std::string pressure = read_or_none(fs, root + "/proc/pressure/memory").value_or("");
  constexpr std::string_view kSome = "some avg10=";
  if (!pressure.starts_with(kSome)) return;
  const auto share = number_at<double>(std::string_view(pressure).substr(kSome.size()));
  if (share && *share >= 0 && *share <= 100) r->memory_pressure = *share;
}

// The path of the own group behind `controllers` in /proc/self/cgroup: "4:memory:/path", or of version 2 "0::/path".
std::string own_group(const std::string& groups, std::string_view controllers) {
  for (std::string_view rest = groups; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    if (line.substr(first + 1, second - first - 1) != controllers) continue;
    const std::string_view path = line.substr(second + 1);
    // ".." is a group above the root of our view: not to be seen from here.
    return path.find("..") == std::string_view::npos ? std::string(path) : std::string("/");
  }
  return "/";
}

// The kernel counts those of a group in both places, so one of them is enough.
std::optional<int64_t> count_oom_kills(FileSystem& fs, const std::string& root) {
  if (const auto kills = read_row(fs, root + "/proc/vmstat", "oom_kill")) return kills;
  const std::string groups = read_or_none(fs, root + "/proc/self/cgroup").value_or("");
  const std::string mounted = root + "/sys/fs/cgroup";
  const std::string of_now = fmt::format("{}{}/memory.events", mounted, own_group(groups, ""));
  if (const auto kills = read_row(fs, of_now, "oom_kill")) return kills;
  const std::string group = own_group(groups, "memory");
  return read_row(fs, fmt::format("{}/memory{}/memory.oom_control", mounted, group), "oom_kill");
}

void read_edac(FileSystem& fs, const std::string& root, HostReading* r) {
  const std::string folder = root + "/sys/devices/system/edac/mc";
  for (const std::string& name : list_or_none(fs, folder)) {
    if (!name.starts_with("mc")) continue;
    add(&r->edac_corrected, read_number(fs, fmt::format("{}/{}/ce_count", folder, name)));
    add(&r->edac_uncorrected, read_number(fs, fmt::format("{}/{}/ue_count", folder, name)));
  }
}

void read_nics(FileSystem& fs, const std::string& root, HostReading* r) {
  const std::string folder = root + "/sys/class/net";
  for (const std::string& name : list_or_none(fs, folder)) {
    const std::string at = join_path(folder, name);
    if (name == "lo" || !fs.is_directory(at)) continue;  // bonding_masters is a file
    NicReading nic{.name = name};
    add(&nic.errors, read_number(fs, at + "/statistics/rx_errors"));
    add(&nic.errors, read_number(fs, at + "/statistics/tx_errors"));
    add(&nic.dropped, read_number(fs, at + "/statistics/rx_dropped"));
    // Of an interface that is switched off the file is there and gives no number.
    if (fs.exists(at + "/carrier")) nic.carrier = read_number(fs, at + "/carrier").value_or(0) != 0;
    add(&nic.carrier_changes, read_number(fs, at + "/carrier_changes"));
    r->nics.push_back(std::move(nic));
  }
}

// The lowest point at which the kernel acts by force; -1: none is known.
double zone_limit(FileSystem& fs, const std::string& zone) {
  double limit = -1;
  for (int i = 0;; ++i) {
    const auto type = read_or_none(fs, fmt::format("{}/trip_point_{}_type", zone, i));
    if (!type) return limit;
    if (!type->starts_with("hot") && !type->starts_with("critical")) continue;
    const auto point = read_number(fs, fmt::format("{}/trip_point_{}_temp", zone, i));
    if (!point || *point <= 0) continue;  // firmware that knows none says 0 or less
    const double degrees = static_cast<double>(*point) / 1000;
    limit = limit < 0 ? degrees : std::min(limit, degrees);
  }
}

void read_heat(FileSystem& fs, const std::string& root, HostReading* r) {
  const std::string folder = root + "/sys/class/thermal";
  for (const std::string& name : list_or_none(fs, folder)) {
    if (!name.starts_with("thermal_zone")) continue;
    const std::string zone = join_path(folder, name);
    const auto milli = read_number(fs, zone + "/temp");
    if (!milli || *milli <= 0) continue;  // switched off zones say 0 or below it
    const double degrees = static_cast<double>(*milli) / 1000, limit = zone_limit(fs, zone);
    const bool first = r->temperature < 0;
    const bool nearer = limit > 0 && (r->temperature_limit < 0 ||
                                      limit - degrees < r->temperature_limit - r->temperature);
    const bool hotter = limit < 0 && r->temperature_limit < 0 && degrees > r->temperature;
    if (!first && !nearer && !hotter) continue;
    r->temperature = degrees;
    r->temperature_limit = limit;
  }
  const std::string cores = root + "/sys/devices/system/cpu";
  for (const std::string& name : list_or_none(fs, cores)) {
    if (name.size() < 4 || !name.starts_with("cpu") || name[3] < '0' || name[3] > '9') continue;
    const std::string path = fmt::format("{}/{}/thermal_throttle/core_throttle_count", cores, name);
    if (fs.exists(path)) add(&r->throttles, read_number(fs, path));
  }
}

}  // namespace

HostReading read_oom_kills(FileSystem& fs, const HostSensors& sensors) {
  HostReading r;
  r.oom_kills = count_oom_kills(fs, sensors.root).value_or(-1);
  return r;
}

HostReading read_host(FileSystem& fs, const HostSensors& sensors) {
  HostReading r = read_oom_kills(fs, sensors);
  read_memory(fs, sensors.root, &r);
  r.disk_free = free_bytes(fs, sensors.run_folder);
  r.memory_folder_free = free_bytes(fs, sensors.memory_folder);
  read_edac(fs, sensors.root, &r);
  read_nics(fs, sensors.root, &r);
  read_heat(fs, sensors.root, &r);
  return r;
}

}  // namespace moraine
