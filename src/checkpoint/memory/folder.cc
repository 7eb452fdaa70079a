// MemoryFolder: checks owner and mode of the folder before it is used, because in a world-writable
// place somebody else could have made it first.
#include "checkpoint/memory/folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/hash.h"
#include "base/resident.h"

namespace moraine {
namespace {

constexpr const char* kIdFile = "memory_id";  // in the run folder
constexpr const char* kRunFile = "run";       // in the memory folder
constexpr mode_t kOwnerOnly = 0700;

}  // namespace

bool is_own_memory_folder(const std::string& folder) {
  struct stat s {};
  if (::lstat(folder.c_str(), &s) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return false;  // ENOTDIR: the base is a file
    throw_error(Code::kIo, "look at {}: {}", folder, std::strerror(errno));
  }
  if (!S_ISDIR(s.st_mode) || s.st_uid != ::geteuid() || (s.st_mode & 077) != 0) {
    throw_error(Code::kIo,
                "memory copy in {}: it is there, and is not a folder that this user alone may "
                "enter; remove it or set another memory folder",
                folder);
  }
  return true;
}

std::string memory_folder_path(const std::string& base, const std::string& run_root) {
  std::string path =
      std::filesystem::weakly_canonical(std::filesystem::absolute(run_root)).string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const Hash128 hash = hash_bytes(path.data(), static_cast<int64_t>(path.size()));
  return join_path(base, "moraine-" + hash_hex(hash));
}

std::string read_memory_id(FileSystem& fs, const std::string& run_root) {
  const std::string path = join_path(run_root, kIdFile);
  return fs.exists(path) ? fs.read(path) : "";
}

std::string make_memory_id(FileSystem& fs, const std::string& run_root) {
  const std::string old = read_memory_id(fs, run_root);
  if (!old.empty()) return old;
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  id += "\n";
  fs.make_durable_directories(run_root);
  fs.write_atomic(join_path(run_root, kIdFile), id);
  return id;
}

bool is_memory_folder_of(FileSystem& fs, const std::string& folder, const std::string& id) {
  if (id.empty() || !is_own_memory_folder(folder)) return false;
  const std::string run = join_path(folder, kRunFile);
  return fs.exists(run) && fs.read(run) == id;
}

void prepare_memory_folder(FileSystem& fs, const std::string& folder, const std::string& id) {
  if (is_memory_folder_of(fs, folder, id)) return;
  if (!is_own_memory_folder(folder)) {
    fs.make_directories(parent_path(folder));
    if (::mkdir(folder.c_str(), kOwnerOnly) != 0) {
      throw_error(Code::kIo, "make directory {}: {}", folder, std::strerror(errno));
    }
  }
  for (const std::string& name : fs.list(folder)) fs.remove_all(join_path(folder, name));
  fs.write_atomic(join_path(folder, kRunFile), id);
}

int64_t free_memory_bytes(const std::string& base) {
  std::error_code code;
  const std::filesystem::space_info space = std::filesystem::space(base, code);
  if (code) throw_error(Code::kIo, "memory copy in {}: {}", base, code.message());
  const uintmax_t room = std::min<uintmax_t>(space.available, INT64_MAX);
  return std::min(static_cast<int64_t>(room), available_memory_bytes());
}

}  // namespace moraine
