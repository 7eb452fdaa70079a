// Job: a training run whose members are processes, forked from the test, that meet over rails.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>

#include "base/fault_point.h"
#include "base/log.h"
#include "comm/rails/rail_address.h"
#include "tests/tiny_run.h"
#include "train/groups.h"
#include "train/run_mesh.h"

namespace moraine::testing {

// Where a process dies: at the nth time that it comes there.
enum class Fate : uint8_t {
  kDies,
  kDiesOnceCopied,  // it first waits until a copy in memory is whole
  kStops,           // it stands still until the test ends it
  kWaits,   // it lives, but waits until somebody comes with whom the second group would be larger
  kFlips,   // a bit of its memory changes
  kSpoils,  // and again, each time from then on
};

struct Death {
  std::string point;
  int nth = 1;
  Fate fate = Fate::kDies;
  double place = 0.5;  // kFlips: where in the memory, of the whole
  int last = 1 << 30;  // kSpoils: until the so many-th time
};

// A bit of one f32, as a fault of the hardware would: a number that is not 0 changes by up to half, 0 becomes 2.
inline void flip_bit(std::span<std::byte> bytes, double place) {
  const size_t at = static_cast<size_t>(place * static_cast<double>(bytes.size())) / 4 * 4;
  const bool zero = std::all_of(bytes.begin() + static_cast<ptrdiff_t>(at),
                                bytes.begin() + static_cast<ptrdiff_t>(at) + 4,
                                [](std::byte b) { return b == std::byte{0}; });
  bytes[at + (zero ? 3 : 2)] ^= std::byte{0x40};
}

class Job {
 public:
  Job(const TinyRun& tiny, const std::string& name, RunConfig config, int members)
      : tiny_(tiny), out_(tiny.out(name)), config_(std::move(config)), members_(members) {
    config_.checkpoint.memory_folder = tiny.root() + "/memory";
    std::filesystem::create_directories(config_.checkpoint.memory_folder);
    address_ = free_local_address();
  }
  ~Job() {
    for (const auto& [member, pid] : pids_) kill(pid, SIGKILL);
    for (const auto& [member, pid] : pids_) waitpid(pid, nullptr, 0);
  }

  double replace_seconds = 60;
  std::atomic<int> stop{0};  // each process has its own: a signal that asks it to stop
  // In the member's process, at each point that it passes; before what is to happen there.
  std::function<void(int member, const char* point)> on_point;

  void start(int member, const Death& death = {}) {
    const pid_t pid = fork();
    if (pid == 0) _exit(live(member, death));
    pids_[member] = pid;
  }
  void start_all() {
    for (int m = 0; m < members_; ++m) start(m);
  }
  // Until it has ended; -signal, or its exit code.
  int wait(int member) {
    int status = 0;
    waitpid(pids_.at(member), &status, 0);
    pids_.erase(member);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  // What has become of it since it was last asked: nothing (0), or a status as waitpid() tells it; of one that has
  // ended that is the last.
  int poll(int member) {
    int status = 0;
    if (waitpid(pids_.at(member), &status, WNOHANG | WUNTRACED) <= 0) return 0;
    if (!WIFSTOPPED(status)) pids_.erase(member);
    // Exit code 0 of waitpid() is no news.
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? kEndedWell : status;
  }
  static constexpr int kEndedWell = -1;
  bool is_there(int member) const { return pids_.contains(member); }
  // It is the caller's from now on, as if its host could not be reached.
  pid_t release(int member) { return pids_.extract(member).mapped(); }
  // Until all of them stand still; then they die at once.
  void end_stopped(std::initializer_list<int> members) const {
    for (const int m : members) {
      int status = 0;
      ASSERT_EQ(waitpid(pids_.at(m), &status, WUNTRACED), pids_.at(m));
      ASSERT_TRUE(WIFSTOPPED(status)) << log(m);
    }
    for (const int m : members) signal(m, SIGKILL);
  }
  void signal(int member, int signal) const { kill(pids_.at(member), signal); }
  // What a member that ended well says: hash, and the generation of its last group.
  std::string said(int member) const {
    std::ifstream file(place(member));
    std::string text;
    std::getline(file, text);
    return text;
  }
  std::string log(int member) const { return posix_file_system().read(place(member) + ".log"); }
  const std::string& out() const { return out_; }

 private:
  std::string place(int member) const { return fmt::format("{}.member-{}", out_, member); }

  // Copies come and go meanwhile: a folder that is gone when it is looked into holds none.
  static bool holds_copy(const std::filesystem::path& folder) {
    std::error_code gone;
    std::filesystem::directory_iterator at(folder, gone);
    for (; !gone && at != std::filesystem::directory_iterator(); at.increment(gone)) {
      const std::filesystem::path& place = at->path();
      if (place.filename() == "manifest.json" && folder.extension() != ".partial") return true;
      std::error_code vanished;
      if (at->is_directory(vanished) && holds_copy(place)) return true;
    }
    return false;
  }
  bool has_copy() const { return holds_copy(config_.checkpoint.memory_folder); }

  int live(int member, const Death& death) {
    const std::string log = place(member) + ".log";
    (void)!std::freopen(log.c_str(), "a", stderr);
    int times = 0;
    const RailsJob* running = nullptr;
    set_fault_bytes([&](const char* name, std::span<std::byte> bytes) {
      if (death.point != name || ++times < death.nth) return;
      const bool spoils = death.fate == Fate::kSpoils && times <= death.last;
      if (times == death.nth || spoils) flip_bit(bytes, death.place);
    });
    set_fault_handler([&](const char* name) {
      if (on_point) on_point(member, name);
      if (death.point != name || ++times != death.nth) return;
      while (death.fate == Fate::kDiesOnceCopied && !has_copy()) usleep(1000);
      if (death.fate != Fate::kWaits) raise(death.fate == Fate::kStops ? SIGSTOP : SIGKILL);
      if (death.fate == Fate::kStops) return;
      while (running->generation() < 3 && !running->has_newcomers()) usleep(1000);
    });
    RailsOptions rails;
    rails.rank = member, rails.ranks = members_;
    rails.rendezvous = address_;
    rails.start_seconds = 60;
    rails.replace_seconds = replace_seconds;
    rails.stop_signal = &stop;
    rails.most_ranks = [this](int present) { return most_ranks(config_, present); };
    RunOptions options;
    options.out = out_;
    options.stop_signal = &stop;
    options.machine_file = tiny_.root() + "/machine.json";
    WatchedFileSystem fs(posix_file_system(), [](const std::string&) {});
    try {
      RailsJob job(rails);
      running = &job;
      const RunResult result = train_in_groups(fs, config_, options, job);
      std::ofstream(place(member)) << result.hash << " " << job.generation();
      return 0;
    } catch (const Error& e) {
      log_event(Level::kError, "rank.failed", "reason=\"{}\"", e.what());
      return exit_code(e.code());
    } catch (const std::exception& e) {
      // Not further: this process is a copy of the test, and would take its folder away.
      log_event(Level::kError, "rank.failed", "reason=\"{}\"", e.what());
      return EXIT_FAILURE;
    }
  }

  const TinyRun& tiny_;
  const std::string out_;
  RunConfig config_;
  const int members_;
  std::string address_;
  std::map<int, pid_t> pids_;
};

inline void expect_same_end(const Job& job, int members, const std::string& hash, int generation) {
  for (int m = 0; m < members; ++m)
    EXPECT_EQ(job.said(m), fmt::format("{} {}", hash, generation)) << job.log(m);
}

}  // namespace moraine::testing
