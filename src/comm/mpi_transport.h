// MpiTransport: ranks as processes started by mpirun or srun, with Open MPI loaded at run time.
//
// libmpi.so.40 (Open MPI 4.1 and 5.0) is opened only if the environment shows a launcher, so that
// neither building nor running alone needs MPI.
//
// Ranks of one host use shared memory (host_transport.h), others Open MPI's messages. If a process
// may not read another's memory here, all use messages, and the log says comm.no_host_memory.
// MORAINE_HOST_MEMORY=off: the same, as if every rank had a host of its own.
//
// Ending: after a fault, MPI_Finalize would wait for the ranks that are lost; it is not called. mpirun then sends
//         SIGTERM to all; where the program does not handle it, it takes effect a second later, so
//         that each rank can print what it knows.
#pragma once

#include <memory>

#include "comm/transport.h"

namespace moraine {

// Whether this process was started as a rank of a larger job (mpirun, srun).
bool started_by_mpi();

// Joins the job; once per process, by the thread that will destroy it. Ranks that do not
// come within two minutes, or do not leave within one, end the process with kPeerLost (watchdog.h).
// Errors: kNotFound (no library), kPeerLost.
std::unique_ptr<Transport> open_mpi_transport();

}  // namespace moraine
