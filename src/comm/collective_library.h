// CollectiveLibrary: the entries of NCCL or RCCL that we call, with prototypes of our own.
//
//   entry          both libraries: libnccl.so.2, librccl.so.1
//   version        ncclGetVersion
//   make_id        ncclGetUniqueId
//   open           ncclCommInitRank
//   close          ncclCommDestroy
//   abort          ncclCommAbort
//   async_error    ncclCommGetAsyncError
//   error_text     ncclGetErrorString
//   begin_group    ncclGroupStart
//   end_group      ncclGroupEnd
//   send           ncclSend
//   receive        ncclRecv
//   all_gather     ncclAllGather
//
// It moves bytes between the memories of devices, in the order of a device's stream. It adds nothing up: the order of
// sums is ours (parallel/device_collectives.h). 0 is success. Nothing of it is needed to build or to start.
//
// Errors:  kNotFound: what the loader said, or which entry is missing; what to do instead.
// Source:  nccl.h of 2.x, whose binary interface RCCL has as well. Never called with a device behind it.
#pragma once

#include <cstddef>
#include <string>

namespace moraine {

struct CollectiveId {
  char bytes[128];
};

constexpr int kCollectiveBytes = 0;        // the type of an element: ncclInt8
constexpr int kCollectiveRemoteError = 6;  // another rank, or the way to it, is lost
constexpr int kCollectiveInProgress = 7;   // of async_error: no error yet

struct CollectiveLibrary {
  int (*version)(int* version);
  int (*make_id)(CollectiveId* id);
  int (*open)(void** comm, int ranks, CollectiveId id, int rank);
  int (*close)(void* comm);
  int (*abort)(void* comm);
  int (*async_error)(void* comm, int* error);
  const char* (*error_text)(int error);
  int (*begin_group)();
  int (*end_group)();
  int (*send)(const void* data, size_t count, int type, int peer, void* comm, void* stream);
  int (*receive)(void* data, size_t count, int type, int peer, void* comm, void* stream);
  int (*all_gather)(const void* mine, void* all, size_t count, int type, void* comm, void* stream);
};

// Opens it for the rest of the process. file: "libnccl.so.2", or a path.
CollectiveLibrary load_collective_library(const std::string& file);

// Of a device whose generation has this name; empty: it has none, unless MORAINE_COLLECTIVE_LIBRARY names a file.
std::string collective_library_file(const std::string& generation, bool emulated);

}  // namespace moraine
