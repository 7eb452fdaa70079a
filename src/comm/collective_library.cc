// CollectiveLibrary: opens the file and looks its entries up.
#include "comm/collective_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"
#include "base/shared_library.h"

namespace moraine {
namespace {

constexpr const char* kInstead = "parallel.device_links = \"host\" needs no library";

template <class F>
void find(void* library, const std::string& file, const char* name, F*& function) {
  void* const found = dlsym(library, name);
  if (found == nullptr)
    throw_error(Code::kNotFound, "load {}: it has no {}; wanted NCCL or RCCL 2.7 or later; {}",
                file, name, kInstead);
  function = reinterpret_cast<F*>(found);
}

}  // namespace

CollectiveLibrary load_collective_library(const std::string& file) {
  const OpenedLibrary library = open_library(file);
  void* const l = library.handle;
  if (l == nullptr)
    throw_error(Code::kNotFound, "load {}: {}; install it; {}", file, library.why, kInstead);
  CollectiveLibrary c;
  find(l, file, "ncclGetVersion", c.version);
  find(l, file, "ncclGetUniqueId", c.make_id);
  find(l, file, "ncclCommInitRank", c.open);
  find(l, file, "ncclCommDestroy", c.close);
  find(l, file, "ncclCommAbort", c.abort);
  find(l, file, "ncclCommGetAsyncError", c.async_error);
  find(l, file, "ncclGetErrorString", c.error_text);
  find(l, file, "ncclGroupStart", c.begin_group);
  find(l, file, "ncclGroupEnd", c.end_group);
  find(l, file, "ncclSend", c.send);
  find(l, file, "ncclRecv", c.receive);
  find(l, file, "ncclAllGather", c.all_gather);
  return c;
}

std::string collective_library_file(const std::string& generation, bool emulated) {
  const char* const given = std::getenv("MORAINE_COLLECTIVE_LIBRARY");
  if (given != nullptr && *given != '\0') return given;
  if (emulated) return "";
  return generation.starts_with("sm_") ? "libnccl.so.2" : "librccl.so.1";
}

}  // namespace moraine
