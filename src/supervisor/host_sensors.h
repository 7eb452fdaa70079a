// HostSensors: a HostReading from what the kernel of this machine shows.
//
//   memory      /proc/meminfo, /proc/pressure/memory (some, avg10)
//   oom kills   /proc/vmstat; where that has none, memory.events or memory.oom_control of the own control group
//   disk        free bytes of two folders
//   errors      /sys/devices/system/edac/mc/mc*/{ce_count,ue_count}
//   interfaces  /sys/class/net/*/{carrier,carrier_changes,statistics/{rx_errors,tx_errors,rx_dropped}}, without lo
//   heat        /sys/class/thermal/thermal_zone* with trip points `hot` and `critical`;
//               /sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count
//
// What is absent, or is no number, is absent in the reading: nothing here is an error.
//
// Cost: some ten small files, and one for each core that counts throttles.
#pragma once

#include <string>

#include "base/file_system.h"
#include "supervisor/host_reading.h"

namespace moraine {

struct HostSensors {
  std::string root = {};           // before /proc and /sys: "" but for tests
  std::string run_folder = {};     // "": not asked
  std::string memory_folder = {};  // "": not asked
};

HostReading read_host(FileSystem& fs, const HostSensors& sensors);
HostReading read_oom_kills(FileSystem& fs, const HostSensors& sensors);  // that alone

}  // namespace moraine
