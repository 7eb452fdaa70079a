// TestProcess: a pretended process of a rank, with the moments that its page would tell.
#pragma once

#include <cstdint>
#include <map>

#include "supervisor/run_event.h"

namespace moraine::testing {

struct TestProcess {
  bool alive = false;
  bool hangs = false;
  bool unheard = false;  // nothing comes from its host
  int64_t pid = 0;
  int64_t beats = 0;
  Activity activity = Activity::kStarting;
  double until = 0;                       // it starts up, or loads
  double dies_at = -1;                    // of a lost peer
  std::map<Activity, double> first = {};  // when it first did so

  void mark(double now) { first.emplace(activity, now); }
  void say_moments(double now, BeatSnapshot* beat) const {
    const auto ago = [&](Activity what) {
      const auto at = first.find(what);
      return at == first.end() ? -1.0 : now - at->second;
    };
    beat->met_ago = ago(Activity::kMeeting);
    beat->loaded_ago = ago(Activity::kLoading);
    beat->computed_ago = ago(Activity::kComputing);
  }
};

}  // namespace moraine::testing
