// ServeRanks: the ranks behind a server. The first one answers requests; the others compute along, one version of
// the model beside another while a reload is under way.
//
//   ServeRanks ranks(transport, deadline);             // on all
//   if (!ranks.first()) return ranks.follow(fs);       // until the first one ends
//   std::shared_ptr<StepRanks> version = ranks.begin(plan);
//   ranks.load(*version, [&] { ... });                 // its own part, and waits until all have theirs
//
// Channels: one for what follows; StepRanks::kChannels for each of kVersions versions that may be there at once.
// Errors:   kOverloaded from begin: so many versions still answer; kPeerLost (comm/transport.h).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/file_system.h"
#include "infer/rank_steps.h"

namespace moraine {

// What a rank must know to load its part of a version.
struct VersionPlan {
  std::string path, dtype, device = "cpu";  // LoadOptions, as what follows
  int64_t rows = 0, positions = 0, pages = 0, sequences = 0;
  bool share_cache = false;
  std::string low_latency = "auto";
  ServingPlacement placement = {};
};

class ServeRanks {
 public:
  ServeRanks(Transport& transport, int64_t threads, double deadline);
  ~ServeRanks();  // of the first: the others are done

  bool first() const { return control_.rank() == 0; }
  int size() const { return control_.size(); }
  int on_this_host() const;
  int threads() const { return threads_; }  // that each rank computes with

  std::shared_ptr<StepRanks> begin(const VersionPlan& plan);
  // What `open` gives, once all have theirs; it is told LoadOptions::host_free. If one fails: null, and on the first
  // rank its own Error, or kPeerLost with that of another.
  using Open = std::function<std::unique_ptr<LoadedModel>(int64_t host_free)>;
  std::unique_ptr<LoadedModel> load(StepRanks& version, const Open& open);

  void follow(FileSystem& fs);

 private:
  static constexpr size_t kVersions = 4;
  static_assert(1 + kVersions * StepRanks::kChannels <= kMaxChannels);

  std::shared_ptr<StepRanks> ranks_of(size_t slot);
  void follow_version(FileSystem& fs, size_t slot, const VersionPlan& plan);

  Transport& transport_;
  const double deadline_;
  Communicator control_;
  int threads_;
  std::mutex mutex_;
  std::array<std::weak_ptr<StepRanks>, kVersions> versions_;  // of the first
  std::array<std::thread, kVersions> following_;              // of the others
};

// What one of the ranks has for a version.
struct RankPart {
  ModelRanks ranks = {};
  int64_t host_free = 0;
};
// How a version is loaded on one of the ranks, or alone.
LoadOptions load_options(const VersionPlan& plan, int64_t threads, const RankPart& part = {});

}  // namespace moraine
