// MpiLibrary: opens Open MPI with dlopen and looks its functions up with dlsym.
#include "comm/mpi_library.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/shared_library.h"

namespace moraine {
namespace {

constexpr const char* kFile = "libmpi.so.40";

void* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr)
    throw_error(Code::kNotFound, "load {}: it has no symbol {}; wanted Open MPI 4.1 or 5.0", kFile,
                name);
  return found;
}

template <class F>
void find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(symbol(library, name));
}

// Global: Open MPI's own plug-ins need its symbols.
MpiLibrary load() {
  const OpenedLibrary library = open_library(kFile, /*global=*/true);
  void* const l = library.handle;
  if (l == nullptr)
    throw_error(Code::kNotFound,
                "load Open MPI: {}: {}; install the Debian package openmpi-bin, or start one "
                "process without mpirun",
                kFile, library.why);
  MpiLibrary m;
  find(l, "MPI_Init_thread", m.init_thread);
  find(l, "MPI_Finalize", m.finalize);
  find(l, "MPI_Comm_rank", m.comm_rank);
  find(l, "MPI_Comm_size", m.comm_size);
  find(l, "MPI_Comm_set_errhandler", m.comm_set_errhandler);
  find(l, "MPI_Error_string", m.error_string);
  find(l, "MPI_Isend", m.isend);
  find(l, "MPI_Irecv", m.irecv);
  find(l, "MPI_Test", m.test);
  find(l, "MPI_Allgather", m.allgather);
  find(l, "MPI_Alltoall", m.alltoall);
  find(l, "MPI_Reduce_scatter_block", m.reduce_scatter_block);
  find(l, "MPI_Barrier", m.barrier);
  find(l, "MPI_Get_library_version", m.get_library_version);
  find(l, "MPI_Sendrecv", m.sendrecv);
  m.world = symbol(l, "ompi_mpi_comm_world");
  m.byte = symbol(l, "ompi_mpi_byte");
  m.real = symbol(l, "ompi_mpi_float");
  m.sum = symbol(l, "ompi_mpi_op_sum");
  m.errors_return = symbol(l, "ompi_mpi_errors_return");
  m.request_null = symbol(l, "ompi_request_null");
  return m;
}

}  // namespace

const MpiLibrary& mpi_library() {
  static const MpiLibrary library = load();
  return library;
}

std::string MpiLibrary::error_text(int error) const {
  char text[512];  // MPI_MAX_ERROR_STRING is 256 (4.1) or less
  int length = 0;
  if (error_string(error, text, &length) != kMpiSuccess) return "error " + std::to_string(error);
  return std::string(text, static_cast<size_t>(length));
}

}  // namespace moraine
