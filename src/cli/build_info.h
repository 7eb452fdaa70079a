// BuildInfo: what this program was built from and with. The build makes the one file that defines
// it (cmake/build_info.cmake), so that a new commit compiles that file again and nothing else.
#pragma once

namespace moraine {

struct BuildInfo {
  const char* version;           // "0.3.0"
  const char* commit;            // "cb60ebd2a6f1", "... and changes", or "unknown"
  const char* compiler;          // "GNU 12.2.0"
  const char* build_type;        // "Release"
  const char* instruction_sets;  // that kernels were compiled for, by the names of kernels/isa.h
};

extern const BuildInfo kBuildInfo;

}  // namespace moraine
