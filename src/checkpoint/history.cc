// History: finds, marks and removes checkpoints; every change of the folder is one rename.
#include "checkpoint/history.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"

namespace moraine {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kReplaced = ".replaced";
constexpr const char* kLastGood = "last_good";
constexpr std::string_view kLastGoodBegin = "moraine-last-good 1 step ";

std::string step_path(const std::string& root, int64_t step, std::string_view suffix) {
  return join_path(root, fmt::format("{}{}{}", kStep, step, suffix));
}

// The step of the name step-<n><suffix>; -1 if the name is another.
int64_t parse_step(std::string_view name, std::string_view suffix) {
  if (!name.starts_with(kStep) || !name.ends_with(suffix)) return -1;
  if (name.size() <= kStep.size() + suffix.size()) return -1;
  const std::string_view digits =
      name.substr(kStep.size(), name.size() - kStep.size() - suffix.size());
  int64_t step = -1;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (code != std::errc() || end != digits.data() + digits.size() || step < 0) return -1;
  return fmt::format("{}", step) == digits ? step : -1;  // one name per step: no leading zeros
}

// A directory leaves the history by one rename, so a crash cannot leave half of it behind.
void discard(FileSystem& fs, const std::string& root, int64_t step, std::string_view suffix) {
  const std::string rubble = step_path(root, step, kPartial);
  fs.remove_all(rubble);
  fs.rename(step_path(root, step, suffix), rubble);
  fs.sync_directory(root);
  fs.remove_all(rubble);
}

std::string last_good_text(int64_t step) {
  const std::string text = fmt::format("{}{}", kLastGoodBegin, step);
  const Hash128 hash = hash_bytes(text.data(), static_cast<int64_t>(text.size()));
  return fmt::format("{} hash {}\n", text, hash_hex(hash));
}

}  // namespace

std::string partial_path(const std::string& root, int64_t step) {
  return step_path(root, step, kPartial);
}

std::string checkpoint_path(FileSystem& fs, const std::string& root, int64_t step) {
  const std::string path = step_path(root, step, "");
  const std::string replaced = step_path(root, step, kReplaced);
  return !fs.exists(path) && fs.exists(replaced) ? replaced : path;
}

std::vector<int64_t> list_checkpoints(FileSystem& fs, const std::string& root) {
  std::set<int64_t> steps;
  if (!fs.is_directory(root)) return {};
  for (const std::string& name : fs.list(root)) {
    const int64_t step = std::max(parse_step(name, ""), parse_step(name, kReplaced));
    if (step >= 0 && fs.is_directory(join_path(root, name))) steps.insert(step);
  }
  return {steps.begin(), steps.end()};
}

std::optional<Checkpoint> newest_good(FileSystem& fs, const std::string& root,
                                      const OnBadCheckpoint& on_bad, const WantedStep& wanted) {
  const std::vector<int64_t> steps = list_checkpoints(fs, root);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (wanted && !wanted(*step)) continue;
    const std::string directory = checkpoint_path(fs, root, *step);
    try {
      Checkpoint checkpoint = Checkpoint::open(fs, directory, true);
      if (checkpoint.info().step == *step) return checkpoint;
      on_bad(directory, fmt::format("is step {} by its manifest", checkpoint.info().step));
    } catch (const Error& error) {
      if (error.code() == Code::kInvalidArgument) throw;
      on_bad(directory, error.what());
    }
  }
  return std::nullopt;
}

void mark_last_good(FileSystem& fs, const std::string& root, int64_t step) {
  if (!fs.is_directory(checkpoint_path(fs, root, step))) {
    throw_error(Code::kNotFound, "mark step {} of {} as good: there is no such checkpoint", step,
                root);
  }
  fs.write_atomic(join_path(root, kLastGood), last_good_text(step));
}

std::optional<int64_t> last_good(FileSystem& fs, const std::string& root) {
  const std::string path = join_path(root, kLastGood);
  if (!fs.exists(path)) return std::nullopt;
  const std::string text = fs.read(path);
  int64_t step = -1;
  if (text.starts_with(kLastGoodBegin)) {
    std::from_chars(text.data() + kLastGoodBegin.size(), text.data() + text.size(), step);
  }
  if (step < 0 || text != last_good_text(step)) {
    throw_error(Code::kCorrupt,
                "read {}: damaged; remove it, the next good checkpoint makes it anew", path);
  }
  return step;
}

std::vector<int64_t> apply_retention(FileSystem& fs, const std::string& root,
                                     const Retention& retention, std::optional<int64_t> protect) {
  if (retention.keep < 1 || retention.permanent_every < 0) {
    throw_error(Code::kInvalidArgument,
                "checkpoint retention: keep {} and permanent every {}; allowed: at least 1 and 0",
                retention.keep, retention.permanent_every);
  }
  const std::optional<int64_t> good = last_good(fs, root);
  std::vector<int64_t> removed;
  std::vector<int64_t> steps = list_checkpoints(fs, root);
  steps.resize(steps.size() - std::min(steps.size(), static_cast<size_t>(retention.keep)));
  for (const int64_t step : steps) {
    if (step == good || step == protect) continue;
    if (retention.permanent_every > 0 && step % retention.permanent_every == 0) continue;
    remove_checkpoint(fs, root, step);
    removed.push_back(step);
  }
  return removed;
}

void remove_checkpoint(FileSystem& fs, const std::string& root, int64_t step) {
  // The older of the two first, else it would come back to life.
  for (const std::string_view suffix : {kReplaced, std::string_view()}) {
    if (fs.exists(step_path(root, step, suffix))) discard(fs, root, step, suffix);
  }
}

void remove_checkpoints_after(FileSystem& fs, const std::string& root, int64_t step) {
  const std::vector<int64_t> steps = list_checkpoints(fs, root);
  for (auto later = steps.rbegin(); later != steps.rend() && *later > step; ++later) {
    remove_checkpoint(fs, root, *later);
  }
}

void commit_checkpoint(FileSystem& fs, const std::string& root, int64_t step) {
  const std::string path = step_path(root, step, "");
  const std::string replaced = step_path(root, step, kReplaced);
  const bool replaces = fs.exists(path);
  if (replaces) {
    fs.rename(path, replaced);
    fs.sync_directory(root);
  }
  fs.rename(partial_path(root, step), path);  // until here, .replaced counts as the step
  fs.sync_directory(root);
  if (replaces) discard(fs, root, step, kReplaced);
}

void clear_rubble(FileSystem& fs, const std::string& root) {
  for (const std::string& name : fs.list(root)) {
    const int64_t replaced = parse_step(name, kReplaced);
    if (parse_step(name, kPartial) >= 0 || name == fmt::format("{}{}", kLastGood, kPartial)) {
      fs.remove_all(join_path(root, name));
    } else if (replaced >= 0 && fs.exists(step_path(root, replaced, ""))) {
      discard(fs, root, replaced, kReplaced);
    } else if (replaced >= 0) {
      fs.rename(join_path(root, name), step_path(root, replaced, ""));
      fs.sync_directory(root);
    }
  }
}

}  // namespace moraine
