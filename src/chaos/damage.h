// Damage: does one fault to a run that a supervisor keeps alive: real signals, real bytes, real limits.
//
// Everything is found by what the run leaves on its disk: heartbeat pages of ranks (RUN/supervise/rank-<r>.beat, or in
// on-<host>/ there), its checkpoints, its copies in memory.
//
// One checkpoint on disk stays whole: the newest is damaged only where the one before it reads without a fault.
//
// Errors:  none: what cannot be done is said in the fault's note.
// Cost:    a damaged checkpoint costs the reading of the one before it.
// Threads: one. tick() must be called every few milliseconds: faults that last are ended by it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "chaos/chaos_table.h"
#include "comm/rails/cut_links.h"

namespace moraine {

class HeartbeatFile;

class Damage {
 public:
  struct Place {
    std::string run;                       // run directory
    std::string memory_base = "/dev/shm";  // checkpoint.memory_folder
    CutLinks* links = nullptr;             // null: the run is on one host
    int link_count = 0;
  };
  Damage(FileSystem& fs, Place place);
  ~Damage();  // ends what lasts
  Damage(const Damage&) = delete;
  Damage& operator=(const Damage&) = delete;

  // Not kKillSupervisor, whose process is the caller's.
  InjectedFault inject(const PlannedFault& fault);
  void tick();

  // The process that is rank r now; 0: there is none.
  pid_t pid_of(int rank) const;

 private:
  struct Lasting;                                          // a fault that ends
  std::unique_ptr<HeartbeatFile> page_of(int rank) const;  // null: there is no such process
  bool stop_now_and_then(const PlannedFault& f, std::string* note);
  bool fail_writes(const PlannedFault& f, std::string* note);
  bool take_memory(const PlannedFault& f, std::string* note);
  bool fill_disk(const PlannedFault& f, std::string* note);
  bool flip_in_process(const PlannedFault& f, std::string* note);
  bool cut_link(const PlannedFault& f, std::string* note);
  bool cut_all_links(const PlannedFault& f, std::string* note);
  bool has_links(std::string* note) const;
  bool leaves_one_whole(const std::vector<int64_t>& steps, std::string* note);
  bool damage_newest(const PlannedFault& f, const std::string& folder, std::string* note);

  FileSystem& fs_;
  const Place place_;
  std::vector<std::unique_ptr<Lasting>> lasting_;
  std::set<int> links_with_faults_;
  int flips_ = 0;  // in processes
};

}  // namespace moraine
