// MpiTransport: ranks as processes started by mpirun or srun, with Open MPI loaded at run time.
//
// libmpi.so.40 (Open MPI 4.1 and 5.0) is opened only if the environment says that there is one
// launcher, so that neither building nor running alone needs MPI.
#pragma once

#include <memory>

#include "comm/transport.h"

namespace moraine {

// Whether this process was started as a rank of a larger job (mpirun, srun).
bool started_by_mpi();

// Joins the job. Errors: kNotFound (no library), kPeerLost.
std::unique_ptr<Transport> open_mpi_transport();

}  // namespace moraine
