// SharedLibrary: where a name lies, how far its segments reach, dlopen.
#include "base/shared_library.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_system.h"
#include "base/read_beginning.h"

namespace moraine {
namespace {

constexpr int64_t kHeadBytes =
    1 << 16;  // a table of segments lies behind the header, some hundred bytes

// LD_LIBRARY_PATH, this program's own, and the system's folders, in order.
std::vector<std::string> loader_folders() {
  std::vector<std::string> folders;
  void* const self = dlopen(nullptr, RTLD_LAZY);
  Dl_serinfo sizes;
  if (self == nullptr || dlinfo(self, RTLD_DI_SERINFOSIZE, &sizes) != 0) return folders;
  std::vector<std::max_align_t> room(sizes.dls_size / sizeof(std::max_align_t) + 1);
  auto* const info = reinterpret_cast<Dl_serinfo*>(room.data());
  info->dls_size = sizes.dls_size;
  info->dls_cnt = sizes.dls_cnt;
  if (dlinfo(self, RTLD_DI_SERINFO, info) != 0) return folders;
  for (unsigned i = 0; i < info->dls_cnt; ++i) folders.emplace_back(info->dls_serpath[i].dls_name);
  return folders;
}

std::vector<std::string> candidates(const std::string& file) {
  if (file.find('/') != std::string::npos) return {file};
  std::vector<std::string> paths = loader_folders();
  for (std::string& path : paths) path = join_path(path, file);
  return paths;
}

// Where its last segment ends in the file; 0: not a library of this machine's kind, which the loader passes over.
uint64_t segments_end(const std::string& head) {
  Elf64_Ehdr header = {};
  if (head.size() < sizeof header) return 0;
  std::memcpy(&header, head.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_phentsize != sizeof(Elf64_Phdr))
    return 0;
  uint64_t end = 0;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment = {};
    const uint64_t at = i * sizeof segment;
    if (header.e_phoff > head.size() || head.size() - header.e_phoff < at + sizeof segment) break;
    std::memcpy(&segment, head.data() + header.e_phoff + at, sizeof segment);
    uint64_t segment_end = 0;
    if (__builtin_add_overflow(segment.p_offset, segment.p_filesz, &segment_end))
      segment_end = UINT64_MAX;
    if (segment.p_type == PT_LOAD) end = std::max(end, segment_end);
  }
  return end;
}

// How the file is cut that the loader would take; empty: it is whole, or the loader says itself what is wrong.
std::string cut(const std::string& file) {
  for (const std::string& path : candidates(file)) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) continue;
    const uint64_t bytes = std::filesystem::file_size(path, error);
    if (error) continue;
    try {
      const uint64_t end = segments_end(read_beginning(path, kHeadBytes));
      if (end == 0) continue;
      if (end <= bytes) return "";
      return fmt::format("{}the file is cut: it has {} bytes, its segments {}",
                         path == file ? "" : path + ": ", bytes, end);
    } catch (const Error&) {
      continue;  // the loader can not read it either
    }
  }
  return "";
}

}  // namespace

OpenedLibrary open_library(const std::string& file, bool global) {
  OpenedLibrary library{.handle = nullptr, .why = cut(file)};
  if (!library.why.empty()) return library;
  library.handle = dlopen(file.c_str(), RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (library.handle != nullptr) return library;
  library.why = dlerror();
  const std::string name = file + ": ";
  if (library.why.starts_with(name)) library.why.erase(0, name.size());
  return library;
}

}  // namespace moraine
