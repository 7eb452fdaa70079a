// Damage: signals, limits, memory, and files.
#include "chaos/damage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/asked_flip.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/heartbeat.h"
#include "base/resident.h"
#include "checkpoint/history.h"
#include "checkpoint/memory/folder.h"
#include "supervisor/policy.h"

namespace moraine {
namespace {

constexpr double kOnSeconds = 0.02, kOffSeconds = 0.04;  // of a slow rank
constexpr double kFlapSeconds = 0.1;                     // down, then up for as long
constexpr rlim_t kNoWrites = 4096;                       // bytes of a file, beyond which all fail
constexpr int64_t kSmallDisk = int64_t{8} << 30;         // larger ones belong to others too
constexpr int64_t kMostMemory = int64_t{4} << 30;

// The files of a folder, but those that a save of now is still writing.
std::vector<std::string> files_of(FileSystem& fs, const std::string& folder) {
  std::vector<std::string> files;
  for (const std::string& name : fs.list(folder)) {
    const std::string path = join_path(folder, name);
    if (!fs.is_directory(path) && fs.file_bytes(path) > 0) files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Read whole, as who resumes reads it.
bool is_whole(FileSystem& fs, const std::string& directory) {
  try {
    Checkpoint::open(fs, directory);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool flip_byte(const std::string& path, int64_t at) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  unsigned char byte = 0;
  const bool ok = fd >= 0 && pread(fd, &byte, 1, at) == 1;
  byte ^= 0x40;
  const bool done = ok && pwrite(fd, &byte, 1, at) == 1;
  if (fd >= 0) close(fd);
  return done;
}

}  // namespace

struct Damage::Lasting {
  double ends = 0;
  std::function<void()> tick, end;
};

Damage::Damage(FileSystem& fs, Place place) : fs_(fs), place_(std::move(place)) {}

Damage::~Damage() {
  for (const auto& one : lasting_) one->end();
}

// Of all hosts: a rank may have moved.
std::unique_ptr<HeartbeatFile> Damage::page_of(int rank) const {
  const std::string folder = join_path(place_.run, "supervise");
  if (!fs_.exists(folder)) return nullptr;
  std::vector<std::string> places = {folder};
  for (const std::string& name : fs_.list(folder)) {
    if (name.starts_with("on-")) places.push_back(join_path(folder, name));
  }
  for (const std::string& place : places) {
    auto page = HeartbeatFile::open(fmt::format("{}/rank-{}.beat", place, rank));
    if (page != nullptr && page->is_alive()) return page;
  }
  return nullptr;
}

pid_t Damage::pid_of(int rank) const {
  const auto page = page_of(rank);
  return page == nullptr ? 0 : static_cast<pid_t>(page->page().pid);
}

void Damage::tick() {
  const double now = now_seconds();
  for (auto at = lasting_.begin(); at != lasting_.end();) {
    if ((*at)->tick) (*at)->tick();
    const bool is_over = now >= (*at)->ends;
    if (is_over) (*at)->end();
    at = is_over ? lasting_.erase(at) : std::next(at);
  }
}

bool Damage::stop_now_and_then(const PlannedFault& f, std::string* note) {
  const pid_t pid = pid_of(f.rank);
  if (pid == 0) return false;
  const double begin = now_seconds();
  auto slow = std::make_unique<Lasting>();
  slow->ends = begin + f.seconds;
  slow->tick = [pid, begin] {
    const double phase = std::fmod(now_seconds() - begin, kOnSeconds + kOffSeconds);
    kill(pid, phase < kOffSeconds ? SIGSTOP : SIGCONT);
  };
  slow->end = [pid] { kill(pid, SIGCONT); };
  lasting_.push_back(std::move(slow));
  *note = fmt::format("rank {} runs a third of {:.1f} s", f.rank, f.seconds);
  return true;
}

bool Damage::fail_writes(const PlannedFault& f, std::string* note) {
  const pid_t pid = pid_of(f.rank);
  rlimit before = {};
  if (pid == 0 || prlimit(pid, RLIMIT_FSIZE, nullptr, &before) != 0) return false;
  const rlimit none = {std::min(kNoWrites, before.rlim_max), before.rlim_max};
  if (prlimit(pid, RLIMIT_FSIZE, &none, nullptr) != 0) return false;
  auto limit = std::make_unique<Lasting>();
  limit->ends = now_seconds() + f.seconds;
  limit->end = [pid, before] { prlimit(pid, RLIMIT_FSIZE, &before, nullptr); };
  lasting_.push_back(std::move(limit));
  *note =
      fmt::format("files of rank {} end at {} bytes for {:.1f} s", f.rank, kNoWrites, f.seconds);
  return true;
}

bool Damage::take_memory(const PlannedFault& f, std::string* note) {
  const int64_t bytes = std::min(kMostMemory, available_memory_bytes() / 2);
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto taken = std::make_unique<Lasting>();
  taken->ends = now_seconds() + f.seconds;
  taken->end = [memory, bytes] { munmap(memory, static_cast<size_t>(bytes)); };
  lasting_.push_back(std::move(taken));
  *note = fmt::format("{} MiB for {:.1f} s", bytes >> 20, f.seconds);
  return true;
}

bool Damage::fill_disk(const PlannedFault& f, std::string* note) {
  struct statvfs disk = {};
  if (statvfs(place_.run.c_str(), &disk) != 0) return false;
  const int64_t block = static_cast<int64_t>(disk.f_frsize);
  if (static_cast<int64_t>(disk.f_blocks) * block > kSmallDisk) {
    *note = fmt::format("{} is on a disk of more than {} GiB, which is not this run's alone",
                        place_.run, kSmallDisk >> 30);
    return false;
  }
  const std::string path = join_path(place_.run, "chaos.fill");
  const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const int64_t bytes = static_cast<int64_t>(disk.f_bavail) * block;
  const std::vector<char> zeros(size_t{1} << 20, 'x');
  while (write(fd, zeros.data(), zeros.size()) > 0) continue;
  close(fd);
  auto full = std::make_unique<Lasting>();
  full->ends = now_seconds() + f.seconds;
  full->end = [path] { unlink(path.c_str()); };
  lasting_.push_back(std::move(full));
  *note = fmt::format("{} MiB for {:.1f} s", bytes >> 20, f.seconds);
  return true;
}

// The process does it at its next point of that kind (base/asked_flip.h).
bool Damage::flip_in_process(const PlannedFault& f, std::string* note) {
  constexpr double kPatience = 2;
  const int most = policy_row(RunFault::kRankDiverged).per_hour;
  if (flips_ >= most) {
    *note = fmt::format("the supervisor takes {} an hour", most);
    return false;
  }
  const auto page = page_of(f.rank);
  if (page == nullptr) return false;
  const bool is_weights = f.fault == ChaosFault::kFlipWeights;
  page->ask_flip(asked_flip(is_weights ? FlipPlace::kWeights : FlipPlace::kGradients, f.place));
  const double end = now_seconds() + kPatience;
  while (page->page().asked_flip != 0 && now_seconds() < end && page->is_alive()) {
    tick();
    usleep(1000);
  }
  if (page->take_back_flip()) {
    *note = fmt::format("rank {} came to no step", f.rank);
    return false;
  }
  ++flips_;
  *note = fmt::format("a bit of {} of rank {}", is_weights ? "weights" : "gradients", f.rank);
  return true;
}

bool Damage::has_links(std::string* note) const {
  if (place_.links != nullptr && place_.links->problem().empty()) return true;
  *note = place_.links == nullptr ? "the run is on one host: --links" : place_.links->problem();
  return false;
}

// Only where no link has a fault: it may leave some traffic through, and ends at a time of its own.
bool Damage::cut_all_links(const PlannedFault& f, std::string* note) {
  if (!has_links(note)) return false;
  CutLinks& links = *place_.links;
  if (!links_with_faults_.empty()) {
    *note = fmt::format("link {} has a fault already", *links_with_faults_.begin());
    return false;
  }
  for (int link = 0; link < place_.link_count; ++link) {
    links_with_faults_.insert(link);
    links.cut(link, Cut::kSilent, 0);
  }
  *note = fmt::format("{} links, {:.1f} s", place_.link_count, f.seconds);
  auto gone = std::make_unique<Lasting>();
  gone->ends = now_seconds() + f.seconds;
  gone->end = [this, &links] {
    for (const int link : links_with_faults_) links.heal(link, Cut::kSilent, 0);
    links_with_faults_.clear();
  };
  lasting_.push_back(std::move(gone));
  return links.problem().empty();
}

bool Damage::cut_link(const PlannedFault& f, std::string* note) {
  if (!has_links(note)) return false;
  CutLinks& links = *place_.links;
  const int link = static_cast<int>(f.place * place_.link_count);
  if (!links_with_faults_.insert(link).second) {
    *note = fmt::format("link {} has a fault already", link);
    return false;
  }
  const int side = static_cast<int>(f.place * 1000) % 2;
  const Cut how = f.fault == ChaosFault::kLinkSilent   ? Cut::kSilent
                  : f.fault == ChaosFault::kLinkOneWay ? Cut::kOneWay
                  : f.fault == ChaosFault::kLinkLarge  ? Cut::kLargeOnly
                  : f.fault == ChaosFault::kLinkDrop   ? Cut::kCrowded
                                                       : Cut::kDown;
  links.cut(link, how, side);
  auto gone = std::make_unique<Lasting>();
  gone->ends = now_seconds() + f.seconds;
  if (f.fault == ChaosFault::kLinkFlap) {
    gone->tick = [&links, link, how, side, begin = now_seconds(), is_up = false]() mutable {
      const bool up = std::fmod(now_seconds() - begin, 2 * kFlapSeconds) > kFlapSeconds;
      if (up == is_up) return;
      is_up = up;
      up ? links.heal(link, how, side) : links.cut(link, how, side);
    };
  }
  gone->end = [this, &links, link, how, side] {
    links.heal(link, how, side);
    links_with_faults_.erase(link);
  };
  lasting_.push_back(std::move(gone));
  *note = fmt::format("link {} of {}, {:.1f} s", link, place_.link_count, f.seconds);
  return links.problem().empty();
}

// A run with nothing whole on its disk ends by name, as it should: that is no storm. So the one before the newest must
// be whole, and not just any: an older one may be about to go, to make room.
bool Damage::leaves_one_whole(const std::vector<int64_t>& steps, std::string* note) {
  if (steps.size() > 1 && is_whole(fs_, checkpoint_path(fs_, place_.run, steps[steps.size() - 2])))
    return true;
  *note = steps.empty() ? "there is no checkpoint"
                        : fmt::format("there is no whole checkpoint before step-{}", steps.back());
  return false;
}

// Then a rank is killed, so that somebody reads it.
bool Damage::damage_newest(const PlannedFault& f, const std::string& folder, std::string* note) {
  const pid_t pid = pid_of(f.rank);
  const std::vector<int64_t> steps =
      fs_.exists(folder) ? list_checkpoints(fs_, folder) : std::vector<int64_t>();
  if (pid == 0 || steps.empty()) return false;
  if (folder == place_.run && !leaves_one_whole(steps, note)) return false;
  const std::vector<std::string> files = files_of(fs_, checkpoint_path(fs_, folder, steps.back()));
  if (files.empty()) return false;
  const auto index = static_cast<size_t>(f.place * static_cast<double>(files.size()));
  const std::string& path = files[index];
  const int64_t bytes = fs_.file_bytes(path);
  const auto at = static_cast<int64_t>(f.place * 997) % bytes;
  const bool is_cut = f.fault == ChaosFault::kTruncate;
  const bool done = is_cut ? truncate(path.c_str(), bytes / 2) == 0 : flip_byte(path, at);
  if (!done) return false;
  *note = is_cut ? fmt::format("{} cut to {} bytes, rank {} killed", path, bytes / 2, f.rank)
                 : fmt::format("byte {} of {}, rank {} killed", at, path, f.rank);
  kill(pid, SIGKILL);
  return true;
}

InjectedFault Damage::inject(const PlannedFault& f) {
  InjectedFault done;
  done.planned = f;
  done.unix_time = unix_seconds();
  const auto send = [&](int signal) {
    const pid_t pid = pid_of(f.rank);
    done.note = fmt::format("rank {}, process {}", f.rank, pid);
    return pid != 0 && kill(pid, signal) == 0;
  };
  try {
    switch (f.fault) {
      case ChaosFault::kKill:
        done.was_done = send(SIGKILL);
        break;
      case ChaosFault::kStop:
        done.was_done = send(SIGSTOP);
        break;
      case ChaosFault::kSlow:
        done.was_done = stop_now_and_then(f, &done.note);
        break;
      case ChaosFault::kFlip:
      case ChaosFault::kTruncate:
        done.was_done = damage_newest(f, place_.run, &done.note);
        break;
      case ChaosFault::kFlipMemory:
        done.was_done =
            damage_newest(f, memory_folder_path(place_.memory_base, place_.run), &done.note);
        break;
      case ChaosFault::kFailWrites:
        done.was_done = fail_writes(f, &done.note);
        break;
      case ChaosFault::kMemoryPressure:
        done.was_done = take_memory(f, &done.note);
        break;
      case ChaosFault::kFillDisk:
        done.was_done = fill_disk(f, &done.note);
        break;
      case ChaosFault::kFlipWeights:
      case ChaosFault::kFlipGradients:
        done.was_done = flip_in_process(f, &done.note);
        break;
      case ChaosFault::kLinkDown:
      case ChaosFault::kLinkSilent:
      case ChaosFault::kLinkOneWay:
      case ChaosFault::kLinkLarge:
      case ChaosFault::kLinkFlap:
      case ChaosFault::kLinkDrop:
        done.was_done = cut_link(f, &done.note);
        break;
      case ChaosFault::kLinksAll:
        done.was_done = cut_all_links(f, &done.note);
        break;
      case ChaosFault::kKillSupervisor:
        break;
    }
  } catch (const Error& e) {  // a file that went away meanwhile
    done.note = e.what();
  }
  if (!done.was_done && done.note.empty()) done.note = "nothing was there to do it to";
  return done;
}

}  // namespace moraine
