// HostReading: what the sensors of one host say at one moment.
//
// What a host does not show is -1 or empty: no sensor is needed. Counters are the kernel's own, since boot; who
// compares two readings finds what happened between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moraine {

struct NicReading {
  std::string name;
  int64_t errors = -1;  // received and sent, dropped ones left out
  int64_t dropped =
      -1;  // received; also frames that nobody here asked for, so it grows on sound hosts
  bool carrier = true;
  int64_t carrier_changes = -1;
};

struct HostReading {
  int host = 0;  // in the list of the run's hosts
  int64_t memory_total = -1, memory_available = -1;
  double memory_pressure =
      -1;  // share of the last 10 seconds in which some task waited for memory, 0 to 100
  int64_t oom_kills = -1;                              // counter
  int64_t disk_free = -1;                              // bytes, of the run's folder
  int64_t memory_folder_free = -1;                     // bytes, where copies in memory are
  int64_t edac_corrected = -1, edac_uncorrected = -1;  // counters
  double temperature = -1,
         temperature_limit = -1;  // degrees Celsius, of the sensor nearest to its limit
  int64_t throttles = -1;         // times that cores were slowed down for their heat
  std::vector<NicReading> nics = {};
};

template <class Visitor>
void each_field(Visitor& visit, NicReading& n) {
  visit("name", n.name);
  visit("errors", n.errors);
  visit("dropped", n.dropped);
  visit("carrier", n.carrier);
  visit("carrier_changes", n.carrier_changes);
}

template <class Visitor>
void each_field(Visitor& visit, HostReading& r) {
  visit("host", r.host);
  visit("memory_total", r.memory_total);
  visit("memory_available", r.memory_available);
  visit("memory_pressure", r.memory_pressure);
  visit("oom_kills", r.oom_kills);
  visit("disk_free", r.disk_free);
  visit("memory_folder_free", r.memory_folder_free);
  visit("edac_corrected", r.edac_corrected);
  visit("edac_uncorrected", r.edac_uncorrected);
  visit("temperature", r.temperature);
  visit("temperature_limit", r.temperature_limit);
  visit("throttles", r.throttles);
  visit("nics", r.nics);
}

}  // namespace moraine
