// The sources are searched for MR_KERNEL(name, and compiled into a folder that goes away.
#include "testing/ptx/ptx_source.h"

#include <cstdlib>
#include <vector>

#include "base/child_process.h"
#include "base/error.h"
#include "base/file_system.h"
#include "testing/places.h"
#include "testing/rig.h"

namespace moraine::testing {
namespace {

std::string compiler() {
  const char* const path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "" : path;
  for (size_t at = 0; at <= folders.size();) {
    const size_t end = std::min(folders.find(':', at), folders.size());
    const std::string file = join_path(folders.substr(at, end - at), "clang++-19");
    if (posix_file_system().exists(file)) return file;
    at = end + 1;
  }
  return "";
}

std::string compile(const std::string& file, const std::string& target) {
  const TempFolder folder;
  const std::string out = folder.path() + "/kernels.ptx", log = folder.path() + "/log";
  ChildProcess clang({compiler(), "-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib",
                      "--cuda-path=/nonexistent", "--cuda-gpu-arch=" + target, "-std=c++20", "-O3",
                      "-I" + source_path("src"), "-Wno-unknown-cuda-version", "-ffp-contract=off",
                      "-S", file, "-o", out},
                     log);
  if (clang.wait() != 0)
    throw_error(Code::kDevice, "compile {} for {}: {}", file, target,
                posix_file_system().read(log + ".err"));
  return posix_file_system().read(out);
}

}  // namespace

bool can_compile_ptx() { return !compiler().empty(); }

std::string PtxSource::file_with(const std::string& kernel) const {
  const std::string folder = source_path("src/kernels/gpu");
  for (const std::string& name : posix_file_system().list(folder)) {
    if (name.size() < 3 || name.substr(name.size() - 3) != ".cu") continue;
    const std::string file = join_path(folder, name);
    if (posix_file_system().read(file).find("MR_KERNEL(" + kernel + ",") != std::string::npos)
      return file;
  }
  throw_error(Code::kNotFound, "no kernel {} in the .cu files of {}", kernel, folder);
}

const std::string& PtxSource::text_with(const std::string& kernel) {
  const std::string file = file_with(kernel);
  const auto known = texts_.find(file);
  if (known != texts_.end()) return known->second;
  return texts_[file] = compile(file, target_);
}

}  // namespace moraine::testing
