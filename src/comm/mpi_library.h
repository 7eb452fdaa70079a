// MpiLibrary: Open MPI's functions, found at run time.
//
// Declared here as Open MPI 4.1 and 5.0 define their binary interface (libmpi.so.40): handles are
// pointers to objects of the library, constants are addresses of its symbols. No other MPI fits.
#pragma once

#include <cstddef>
#include <string>

namespace moraine {

using MpiComm = void*;
using MpiType = void*;
using MpiOp = void*;
using MpiRequest = void*;

struct MpiStatus {
  int source, tag, error, cancelled;
  size_t bytes;
};

constexpr int kMpiSuccess = 0, kMpiAnySource = -1, kMpiThreadSerialized = 2;

struct MpiLibrary {
  int (*init_thread)(int* argc, char*** argv, int wanted, int* provided);
  int (*finalize)();
  int (*comm_rank)(MpiComm, int* rank);
  int (*comm_size)(MpiComm, int* size);
  int (*comm_set_errhandler)(MpiComm, void* handler);
  int (*error_string)(int error, char* text, int* length);
  int (*isend)(const void* data, int count, MpiType, int peer, int tag, MpiComm, MpiRequest*);
  int (*irecv)(void* data, int count, MpiType, int peer, int tag, MpiComm, MpiRequest*);
  int (*test)(MpiRequest*, int* done, MpiStatus*);
  int (*allgather)(const void* send, int count, MpiType, void* all, int each, MpiType, MpiComm);
  int (*alltoall)(const void* send, int count, MpiType, void* all, int each, MpiType, MpiComm);
  int (*reduce_scatter_block)(const void* send, void* out, int each, MpiType, MpiOp, MpiComm);
  int (*barrier)(MpiComm);
  int (*get_library_version)(char* text, int* length);
  int (*sendrecv)(const void* send, int count, MpiType, int to, int tag, void* out, int out_count,
                  MpiType, int from, int out_tag, MpiComm, MpiStatus*);

  MpiComm world;
  MpiType byte, real;  // real: float
  MpiOp sum;
  void* errors_return;
  MpiRequest request_null;

  std::string error_text(int error) const;
};

// Loads it at the first call. Errors: kNotFound: says which file or symbol, and what to install.
const MpiLibrary& mpi_library();

}  // namespace moraine
