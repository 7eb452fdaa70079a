// KeptJob: a job whose lost members are started again, as `moraine supervise` does by its table.
#pragma once

#include <array>
#include <vector>

#include "tests/ranks/job.h"

namespace moraine::testing {

// One process of a member, of the first one on; none: nothing happens to it.
using Deaths = std::vector<Death>;

// What is done about one that stands still.
enum class Stopped : uint8_t {
  kIsKilled,  // as a supervisor does once it has seen it hang
  kIsForgotten,  // its host can not be reached: another takes its place, and it wakes up when that is in a group
};

struct Kept {
  bool ended = false;
  std::string why;              // it has not
  std::array<int, 4> starts{};  // of each member
  int faults = 0;               // that were met
  int stray_code = 0;           // of one that was forgotten
};

class KeptJob {
 public:
  KeptJob(Job& job, int members, std::array<Deaths, 4> deaths, Stopped stopped)
      : job_(job), members_(members), deaths_(std::move(deaths)), stopped_(stopped) {}

  // To the end of the run.
  Kept keep() {
    for (int m = 0; m < members_; ++m) start(m);
    const double begin = now_seconds();
    while (kept_.why.empty() && !all_done()) {
      for (int m = 0; m < members_; ++m) look(m);
      look_for_left_behind();
      wake_stray();
      if (now_seconds() - begin > kPatience) kept_.why = "it takes too long";
      usleep(1000);
    }
    kept_.ended = kept_.why.empty();
    if (stray_ != 0) end_stray();
    return kept_;
  }

 private:
  static constexpr double kPatience = 300;
  // Looks and not seconds: where cores are others' for a while, those who are about to end have as little of them.
  static constexpr int kLeftLooks = 5000;
  static constexpr int kMostStarts = 6;

  void start(int member) {
    const auto nth = static_cast<size_t>(kept_.starts[static_cast<size_t>(member)]++);
    const Deaths& mine = deaths_[static_cast<size_t>(member)];
    job_.start(member, nth < mine.size() ? mine[nth] : Death{});
    done_[static_cast<size_t>(member)] = false;
    if (nth >= kMostStarts) kept_.why = fmt::format("member {} is started again and again", member);
  }
  bool anyone_done() const { return std::count(done_.begin(), done_.end(), true) > 0; }
  // Lost as the others ended: its successor finds nobody.
  void look_for_left_behind() {
    looks_since_done_ = anyone_done() ? looks_since_done_ + 1 : 0;
    if (!all_done() && looks_since_done_ > kLeftLooks) all_again();
  }
  bool all_done() const {
    return std::count(done_.begin(), done_.begin() + members_, true) == members_;
  }

  void look(int member) {
    if (!job_.is_there(member)) return;
    const int status = job_.poll(member);
    if (status == 0) return;
    if (status == Job::kEndedWell) {
      done_[static_cast<size_t>(member)] = true;
      return;
    }
    if (WIFSTOPPED(status)) return stands_still(member);
    if (WIFEXITED(status) && WEXITSTATUS(status) != exit_code(Code::kPeerLost) &&
        WEXITSTATUS(status) != exit_code(Code::kRankDiverged)) {
      kept_.why =
          fmt::format("member {} ended with {}: {}", member, WEXITSTATUS(status), job_.log(member));
      return;
    }
    kept_.faults += WIFSIGNALED(status);
    again(member);
  }

  // Who is done is in no group any more: then all begin again, from what is stored.
  void again(int member) { anyone_done() ? all_again() : start(member); }
  void all_again() {
    for (int m = 0; m < members_; ++m) {
      if (!job_.is_there(m)) continue;
      job_.signal(m, SIGKILL);
      job_.wait(m);
    }
    for (int m = 0; m < members_; ++m) start(m);
  }

  void stands_still(int member) {
    if (stopped_ == Stopped::kIsForgotten) {
      ++kept_.faults;
      stray_ = job_.release(member);
      return start(member);
    }
    usleep(20'000);  // the others come to where they need it
    job_.signal(member, SIGKILL);
  }

  void wake_stray() {
    if (stray_ == 0 || is_awake_) return;
    if (!all_done() && job_.log(0).find(" group.formed generation=2") == std::string::npos) return;
    kill(stray_, SIGCONT);
    is_awake_ = true;
  }
  void end_stray() {
    int status = 0;
    wake_stray();
    if (!kept_.ended) kill(stray_, SIGKILL);
    waitpid(stray_, &status, 0);
    kept_.stray_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  Job& job_;
  const int members_;
  const std::array<Deaths, 4> deaths_;
  const Stopped stopped_;
  Kept kept_;
  std::array<bool, 4> done_{};
  pid_t stray_ = 0;
  bool is_awake_ = false;
  int looks_since_done_ = 0;
};

}  // namespace moraine::testing
