// UnsyncedState: what a power cut would take away, for the FaultyFileSystem.
//
// Bytes of a file that were not synced are cut off; a new file, a new folder or a rename is undone
// if its folder was not synced since. Removals count as synced at once: that is the harder case.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace moraine::testing {

class UnsyncedState {
 public:
  void made(const std::string& path) { names_.push_back({.from = "", .to = path, .old = nullptr}); }
  void opened(const std::string& path, int64_t bytes) { synced_bytes_[path] = bytes; }
  void grows(const std::string& path, int64_t bytes) {  // before an append to a file of `bytes`
    int64_t& synced = synced_bytes_[path];
    if (synced == INT64_MAX) synced = bytes;
  }
  void synced(const std::string& path) { synced_bytes_[path] = INT64_MAX; }
  void folder_synced(const std::string& path) {
    std::erase_if(names_, [&](const Name& name) { return parent_path(name.to) == path; });
  }
  // `old`: content of the file that was replaced, or null.
  void renamed(const std::string& from, const std::string& to,
               std::shared_ptr<const std::string> old) {
    move_paths(from, to);
    names_.push_back({from, to, std::move(old)});
  }

  void cut(FileSystem& fs, bool lose_names) {
    for (const auto& [path, synced] : synced_bytes_) {
      if (fs.exists(path) && fs.file_bytes(path) > synced) fs.truncate(path, synced);
    }
    for (; lose_names && !names_.empty(); names_.pop_back()) undo(fs, Name(names_.back()));
    synced_bytes_.clear();
    names_.clear();
  }

 private:
  // A rename, or with an empty `from` something new.
  struct Name {
    std::string from, to;
    std::shared_ptr<const std::string> old;
  };

  // Paths below a folder move with it.
  void move_paths(const std::string& from, const std::string& to) {
    const auto moved = [&](const std::string& path) {
      const bool within = path == from || path.starts_with(from + "/");
      return within ? to + path.substr(from.size()) : path;
    };
    std::map<std::string, int64_t> files;
    for (const auto& [path, synced] : synced_bytes_) files[moved(path)] = synced;
    synced_bytes_ = std::move(files);
    for (Name& name : names_) {
      if (name.from.empty()) name.to = moved(name.to);
    }
  }

  void undo(FileSystem& fs, const Name& name) {
    if (name.from.empty()) {
      fs.remove_all(name.to);
      return;
    }
    if (!fs.exists(name.to)) return;
    fs.rename(name.to, name.from);
    move_paths(name.to, name.from);
    if (name.old == nullptr) return;
    fs.create(name.to)->append(name.old->data(), static_cast<int64_t>(name.old->size()));
  }

  std::map<std::string, int64_t> synced_bytes_;  // of each file written; INT64_MAX: all
  std::vector<Name> names_;                      // in order
};

}  // namespace moraine::testing
