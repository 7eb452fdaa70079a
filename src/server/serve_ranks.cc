// ServeRanks: what the first one says is a small JSON document.
#include "server/serve_ranks.h"

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/agree.h"
#include "comm/all_ranks.h"
#include "parallel/host_memory.h"
#include "parallel/rank_threads.h"

namespace moraine {
namespace {

// A rank that ends is found out at once, and one that is stopped by the engine's steps.
constexpr double kControlSeconds = 1e8;

std::string text_of(size_t slot, const VersionPlan& p) {
  return json_text({{"slot", static_cast<int64_t>(slot)},
                    {"path", p.path},
                    {"dtype", p.dtype},
                    {"device", p.device},
                    {"rows", p.rows},
                    {"positions", p.positions},
                    {"pages", p.pages},
                    {"sequences", p.sequences},
                    {"share_cache", p.share_cache},
                    {"low_latency", p.low_latency},
                    {"placement", static_cast<int64_t>(p.placement.mode)},
                    {"expert_slots", p.placement.slots},
                    {"placement_every_steps", p.placement.every_steps},
                    {"placement_gate", p.placement.gate},
                    {"placement_across_hosts", p.placement.across_hosts}});
}

VersionPlan plan_of(const Json& json) {
  const auto number = [&](const char* key) { return json.at(key).get<int64_t>(); };
  return {.path = json.at("path").get<std::string>(),
          .dtype = json.at("dtype").get<std::string>(),
          .device = json.at("device").get<std::string>(),
          .rows = number("rows"),
          .positions = number("positions"),
          .pages = number("pages"),
          .sequences = number("sequences"),
          .share_cache = json.at("share_cache").get<bool>(),
          .low_latency = json.at("low_latency").get<std::string>(),
          .placement = {.mode = static_cast<PlacementMode>(number("placement")),
                        .slots = number("expert_slots"),
                        .every_steps = number("placement_every_steps"),
                        .gate = json.at("placement_gate").get<double>(),
                        .across_hosts = json.at("placement_across_hosts").get<bool>()}};
}

}  // namespace

ServeRanks::ServeRanks(Transport& transport, int64_t threads, double deadline)
    : transport_(transport),
      deadline_(deadline),
      control_(transport, all_ranks(transport), 0, "serve", kControlSeconds),
      threads_(rank_threads(threads, control_)) {}

ServeRanks::~ServeRanks() {
  for (std::thread& thread : following_) {
    if (thread.joinable()) thread.join();
  }
  if (!first() || size() == 1) return;
  try {
    text_of_first(control_, "");
  } catch (const std::exception&) {  // they are lost, and whoever waited for them has said so
  }
}

int ServeRanks::on_this_host() const {
  const std::vector<int> all = all_ranks(transport_);
  const auto here = [&](int rank) {
    return transport_.host_of(rank) == transport_.host_of(transport_.rank());
  };
  return static_cast<int>(std::count_if(all.begin(), all.end(), here));
}

std::shared_ptr<StepRanks> ServeRanks::ranks_of(size_t slot) {
  return std::make_shared<StepRanks>(transport_, 1 + StepRanks::kChannels * static_cast<int>(slot),
                                     deadline_);
}

std::shared_ptr<StepRanks> ServeRanks::begin(const VersionPlan& plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto slot = std::find_if(versions_.begin(), versions_.end(),
                                 [](const auto& version) { return version.expired(); });
  if (slot == versions_.end())
    throw_error(Code::kOverloaded, "{} versions of the model still answer", versions_.size());
  const auto index = static_cast<size_t>(slot - versions_.begin());
  std::shared_ptr<StepRanks> version = ranks_of(index);
  *slot = version;
  text_of_first(control_, text_of(index, plan));
  return version;
}

// Loading takes as long as the slowest disk: the deadline is that of control.
std::unique_ptr<LoadedModel> ServeRanks::load(StepRanks& version, const Open& open) {
  Communicator all(transport_, all_ranks(transport_), version.steps.channel(), "loaded",
                   kControlSeconds);
  std::unique_ptr<LoadedModel> model;
  std::exception_ptr failure;
  std::string text;
  const int64_t host_free = free_before_taking(all);
  try {
    model = open(host_free);
  } catch (const Error& e) {
    failure = std::current_exception();
    text = e.what();
  }
  const std::vector<std::string> texts = all_gather_text(all, text);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    if (!first()) return nullptr;  // the first one says which
    if (failure != nullptr) std::rethrow_exception(failure);
    throw_error(Code::kPeerLost, "rank {} has no part of the model: {}", rank, texts[rank]);
  }
  model->connect();
  return model;
}

void ServeRanks::follow(FileSystem& fs) {
  while (true) {
    const std::string text = text_of_first(control_, "");
    if (text.empty()) return;
    const Json json = parse_json(text, "a message of the first rank");
    const auto slot = static_cast<size_t>(json.at("slot").get<int64_t>());
    std::thread& thread = following_.at(slot);
    if (thread.joinable()) thread.join();  // the version before it has ended
    thread = start_thread("follow a version", [this, &fs, slot, plan = plan_of(json)] {
      try {
        follow_version(fs, slot, plan);
      } catch (const std::exception& e) {
        log_event(Level::kError, "rank.failed", "reason=\"{}\"", e.what());
        transport_.fail(e.what());
      }
    });
  }
}

void ServeRanks::follow_version(FileSystem& fs, size_t slot, const VersionPlan& plan) {
  const std::shared_ptr<StepRanks> version = ranks_of(slot);
  const std::unique_ptr<LoadedModel> model = load(*version, [&](int64_t host_free) {
    const ModelDirectory directory = ModelDirectory::open(fs, plan.path);
    const ModelRanks ranks = version->of_model(directory.config(), plan.share_cache);
    return LoadedModel::open(directory, load_options(plan, threads_, {ranks, host_free}));
  });
  if (model != nullptr) follow_steps(version->steps, model->ctx(), model->model(), model->cache());
}

LoadOptions load_options(const VersionPlan& plan, int64_t threads, const RankPart& part) {
  return {.dtype = plan.dtype,
          .threads = threads,
          .tokens = plan.rows,
          .positions = plan.positions,
          .cache = {.pages = plan.pages, .segments = plan.sequences},
          .ranks = part.ranks,
          .host_free = part.host_free,
          .device = plan.device,
          .low_latency = plan.low_latency,
          .placement = plan.placement};
}

}  // namespace moraine
