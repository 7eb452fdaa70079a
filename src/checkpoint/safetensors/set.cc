// Public model folders: resolve the index, open the parts, check one against the other.
#include "checkpoint/safetensors/set.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/json_document.h"
#include "base/nearest.h"

namespace moraine {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool before(const SafetensorsEntry* a, const SafetensorsEntry* b) { return a->name < b->name; }

// tensor -> file name
std::map<std::string, std::string> read_index(FileSystem& fs, const std::string& path) {
  std::map<std::string, std::string> file_of;
  if (fs.file_bytes(path) > kMaxSafetensorsHeader) {
    throw_error(Code::kCorrupt, "read {}: {} bytes, the limit is {}", path, fs.file_bytes(path),
                kMaxSafetensorsHeader);
  }
  try {
    const std::string text = fs.read(path);
    const JsonDocument document(text);
    document.root().at("weight_map").members([&](std::string_view name, const JsonValue& file) {
      if (!is_plain_file_name(file.text())) {
        throw_error(Code::kInvalidArgument, "tensor '{}' is in '{}', wanted a file of this folder",
                    name, file.text());
      }
      if (!file_of.emplace(name, file.text()).second) {
        throw_error(Code::kCorrupt, "tensor '{}' is given twice", name);
      }
    });
  } catch (const Error& error) {
    throw_error(error.code(), "read {}: {}", path, error.what());
  }
  return file_of;
}

}  // namespace

bool is_plain_file_name(std::string_view name) {
  constexpr size_t kLongest = 255;  // what file systems take
  if (name.empty() || name.size() > kLongest || name == "." || name == "..") return false;
  return std::none_of(name.begin(), name.end(),
                      [](char c) { return c == '/' || c == '\\' || (c >= 0 && c < 32); });
}

SafetensorsSet SafetensorsSet::open(FileSystem& fs, const std::string& path) {
  SafetensorsSet set;
  set.path_ = path;
  const std::string single = fs.is_directory(path) ? join_path(path, kSingle) : path;
  const std::string index = join_path(path, kIndex);
  if (!fs.is_directory(path) || fs.exists(single)) {
    set.files_.push_back(SafetensorsFile::open(fs, single));
    for (const SafetensorsEntry& entry : set.files_[0].entries()) set.entries_.push_back(&entry);
    std::sort(set.entries_.begin(), set.entries_.end(), before);
    return set;
  }
  if (!fs.exists(index)) {
    throw_error(Code::kNotFound, "open model {}: found neither {} nor {}", path, kSingle, kIndex);
  }
  const std::map<std::string, std::string> file_of = read_index(fs, index);
  std::map<std::string, size_t> part_of;  // file name -> position in files_
  std::string missing;
  for (const auto& [name, file] : file_of) part_of[file] = 0;
  for (const auto& [file, part] : part_of) {
    if (!fs.exists(join_path(path, file))) missing += (missing.empty() ? "" : ", ") + file;
  }
  if (!missing.empty()) {
    throw_error(Code::kNotFound, "open model {}: {} names files that are missing: {}", path, kIndex,
                missing);
  }
  for (auto& [file, part] : part_of) {
    part = set.files_.size();
    set.files_.push_back(SafetensorsFile::open(fs, join_path(path, file)));
  }
  for (const auto& [name, file] : file_of) {
    const SafetensorsEntry* entry = set.files_[part_of[file]].find(name);
    if (entry == nullptr) {
      throw_error(Code::kCorrupt, "open model {}: {} says that tensor '{}' is in {}, it is not",
                  path, kIndex, name, file);
    }
    set.entries_.push_back(entry);
  }
  return set;
}

const SafetensorsEntry* SafetensorsSet::find(std::string_view name) const {
  const auto at = std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const SafetensorsEntry* entry, std::string_view wanted) { return entry->name < wanted; });
  return at != entries_.end() && (*at)->name == name ? *at : nullptr;
}

const SafetensorsEntry& SafetensorsSet::get(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry != nullptr) return *entry;
  std::vector<std::string> names;
  for (const SafetensorsEntry* e : entries_) names.push_back(e->name);
  throw_error(Code::kNotFound, "read {}: no tensor '{}'; the nearest name is '{}'", path_, name,
              nearest_name(name, names));
}

}  // namespace moraine
